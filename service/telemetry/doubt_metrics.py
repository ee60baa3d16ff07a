"""What the answers of a model say of its doubt, summed up for Prometheus: std, epistemic share, rows unlike training's.

Each is a sum over rows, so that a query divides two of them: the mean std of the last five minutes is
``rate(murho_std_total[5m]) / rate(murho_spread_rows_total[5m])``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from prometheus_client import Counter

from murho.model.engines.prediction import Prediction

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from prometheus_client import CollectorRegistry

    from murho.model.engines.target_models import AnyPrediction

__all__ = ["DoubtMetrics"]

LABELS = ("model", "version")


class DoubtMetrics:
    """Sums over the rows that were answered.

    Answers without draws (``samples=0``) and of the function alone (``noise=false``) have no split of their spread, so
    only the rows unlike the training rows are counted there.

    Args:
        registry: Gets the metrics.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        unlike = Counter(
            "murho_unlike_rows_total", "Rows beyond the range of the training rows.", LABELS, registry=registry
        )
        rows = Counter(
            "murho_spread_rows_total",
            "Rows answered with draws and noise, over which the next sums go.",
            LABELS,
            registry=registry,
        )
        std = Counter(
            "murho_std_total", "Sum over rows of the predictive std, in the target's unit.", LABELS, registry=registry
        )
        entropy = Counter("murho_entropy_total", "Sum over rows of the entropy, in nats.", LABELS, registry=registry)
        share = Counter(
            "murho_epistemic_share_total",
            "Sum over rows of the epistemic share, 0 to 1: of the variance, or of the entropy for classes.",
            LABELS,
            registry=registry,
        )
        self._always = lru_cache(4096)(
            lambda name, version: (
                unlike.labels(name, version),
                rows.labels(name, version),
                share.labels(name, version),
            )
        )
        self._std = lru_cache(4096)(std.labels)
        self._entropy = lru_cache(4096)(entropy.labels)

    def record(self, name: str, version: str, prediction: AnyPrediction, *, noise: bool) -> None:
        """Adds the rows of one answer.

        Args:
            name: The model.
            version: Its version.
            prediction: The answer, finite.
            noise: Whether it describes new observations.
        """
        unlike, rows, share = self._always(name, version)
        if prediction.outside is not None:
            found = int(np.count_nonzero(prediction.outside))
            if found:
                unlike.inc(found)
        if not noise:
            return
        if isinstance(prediction, Prediction):
            if prediction.std is None or prediction.epistemic_std is None:
                return
            self._std(name, version).inc(_sum(prediction.std))
            share.inc(_sum_of_shares(prediction.epistemic_std, prediction.std, power=2))
        else:
            if prediction.entropy is None or prediction.epistemic_entropy is None:
                return
            self._entropy(name, version).inc(max(0.0, _sum(prediction.entropy)))
            share.inc(_sum_of_shares(prediction.epistemic_entropy, prediction.entropy))
        rows.inc(len(prediction))


def _sum(values: NDArray[np.float64]) -> float:
    """Returns the sum of `[B]`; a single row, the usual case, without NumPy's overhead."""
    return float(values[0]) if len(values) == 1 else float(values.sum())


def _sum_of_shares(part: NDArray[np.float64], whole: NDArray[np.float64], power: int = 1) -> float:
    """Returns the sum over rows of (part / whole)^power, `[B]` both, each between 0 and 1; 0 where the whole is 0."""
    if len(whole) == 1:
        one, all_of_it = float(part[0]), float(whole[0])
        return min(max(one / all_of_it, 0.0), 1.0) ** power if all_of_it > 0.0 else 0.0
    share = np.divide(part, whole, out=np.zeros_like(whole), where=whole > 0.0)
    share = np.clip(share, 0.0, 1.0, out=share)
    return float(share @ share) if power == 2 else float(share.sum())
