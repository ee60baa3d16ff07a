"""What the answers of a model say of its doubt, summed up for Prometheus: std, epistemic share, rows unlike training's.

Each is a sum over rows, so that a query divides two of them: the mean std of the last five minutes is
``rate(murho_std_total[5m]) / rate(murho_spread_rows_total[5m])``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from prometheus_client import Counter

from murho.model.predictive.prediction import Prediction

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from prometheus_client import CollectorRegistry

    from murho.model.predictive.prediction import AnyPrediction

__all__ = ["DoubtMetrics", "ModelDoubt"]

LABELS = ("model", "version")


class DoubtMetrics:
    """Sums over the rows that were answered.

    Args:
        registry: Gets the metrics.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.unlike = Counter(
            "murho_unlike_rows_total", "Rows beyond the range of the training rows.", LABELS, registry=registry
        )
        self.rows = Counter(
            "murho_spread_rows_total",
            "Rows answered with draws and noise, over which the next sums go.",
            LABELS,
            registry=registry,
        )
        self.std = Counter(
            "murho_std_total", "Sum over rows of the predictive std, in the target's unit.", LABELS, registry=registry
        )
        self.entropy = Counter(
            "murho_entropy_total", "Sum over rows of the entropy, in nats.", LABELS, registry=registry
        )
        self.share = Counter(
            "murho_epistemic_share_total",
            "Sum over rows of the epistemic share, 0 to 1: of the variance, or of the entropy for classes.",
            LABELS,
            registry=registry,
        )

    def remove(self, name: str, version: str) -> None:
        """Takes the series of a version out."""
        for metric in (self.unlike, self.rows, self.std, self.entropy, self.share):
            metric.remove(name, version)


class ModelDoubt:
    """The sums of one version.

    Answers without draws (``samples=0``) and of the function alone (``noise=false``) have no split of their spread, so
    only the rows unlike the training rows are counted there.

    Args:
        metrics: The metrics.
        name: The model.
        version: Its version.
        of_one_unit: Whether all answers have the same unit, so that std and entropy can be summed up.
    """

    __slots__ = ("_entropy", "_labels", "_metrics", "_of_one_unit", "_rows", "_share", "_std", "_unlike")

    def __init__(self, metrics: DoubtMetrics, name: str, version: str, *, of_one_unit: bool = True) -> None:
        self._metrics, self._labels, self._of_one_unit = metrics, (name, version), of_one_unit
        self._unlike = metrics.unlike.labels(name, version)
        self._rows = metrics.rows.labels(name, version)
        self._share = metrics.share.labels(name, version)
        # Looked up once: the library takes 3 microseconds for it. A model has one of the two.
        self._std: Counter | None = None
        self._entropy: Counter | None = None

    def record(self, prediction: AnyPrediction, *, noise: bool) -> None:
        """Adds the rows of one answer.

        Args:
            prediction: The answer, finite.
            noise: Whether it describes new observations.
        """
        if prediction.unlike is not None:
            found = int(np.count_nonzero(prediction.unlike))
            if found:
                self._unlike.inc(found)
        if not noise:
            return
        if isinstance(prediction, Prediction):
            if prediction.std is None or prediction.epistemic_std is None:
                return
            self._add_std(prediction.std)
            self._share.inc(_sum_of_shares(prediction.epistemic_std, prediction.std, power=2))
        else:
            if prediction.entropy is None or prediction.epistemic_entropy is None:
                return
            self._add_entropy(prediction.entropy)
            self._share.inc(_sum_of_shares(prediction.epistemic_entropy, prediction.entropy))
        self._rows.inc(len(prediction))

    def _add_std(self, std: NDArray[np.float64]) -> None:
        if self._of_one_unit:
            if self._std is None:
                self._std = self._metrics.std.labels(*self._labels)
            self._std.inc(_sum(std))

    def _add_entropy(self, entropy: NDArray[np.float64]) -> None:
        if self._of_one_unit:
            if self._entropy is None:
                self._entropy = self._metrics.entropy.labels(*self._labels)
            self._entropy.inc(max(0.0, _sum(entropy)))


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
