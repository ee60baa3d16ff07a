"""One conformal map of the rows behind an earlier map and of new rows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from murho.model.distributions.asymmetry import asymmetry_share
from murho.model.distributions.calibration import MAXIMUM_KNOTS, POOLED, ConformalMap

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["pooled_map"]


def pooled_map(
    earlier: ConformalMap,
    scores: NDArray[np.float64],
    *,
    narrowing: float | None = None,
    weights: NDArray[np.float64] | None = None,
    units: float | None = None,
) -> ConformalMap:
    """Fit a map to the scores that stand for an earlier map, and to new scores.

    Every row counts alike, earlier or new. So the map moves from the earlier one to that of the new rows as these
    become many, and a further row never changes it much. New scores count as far as they are skewed beyond chance
    (`model.distributions.asymmetry`), the rest of them as their size with either sign; for the earlier ones that has
    been decided. The earlier rows were scored before the model changed: there is no guarantee.

    Args:
        earlier: The earlier map.
        scores: Normal scores of the new rows, ``[n]``; n may be 0.
        narrowing: Factor of the new scores for what other members add; None: there is none to apply.
        weights: Relative weights of the new rows, ``[n]``; None: all count alike.
        units: Number of exchangeable units behind the new scores; None: every row is one.

    Returns:
        The map. Its narrowing is the mean of both factors, by numbers of rows, of their logarithms.
    """
    count = len(scores)
    old = earlier.representative_scores()
    own = np.asarray(scores, dtype=np.float64) * (narrowing or 1.0)  # the earlier scores are narrowed already
    shares = np.ones(count) if weights is None else weights * (count / weights.sum())
    skewed = asymmetry_share(own, shares / count, count if units is None else units) if count else 0.0
    values = np.concatenate([old, own, -own])
    weight = np.concatenate([np.ones(len(old)), 0.5 * (1.0 + skewed) * shares, 0.5 * (1.0 - skewed) * shares])
    order = np.argsort(values, kind="stable")
    values, weight = values[order], weight[order]
    rows = earlier.rows + count
    # The earlier map leaves room for the new row already, so levels are those in the middle of each score's share.
    known = torch.special.ndtri(torch.from_numpy((np.cumsum(weight) - 0.5 * weight) / rows)).numpy()
    nominal = _knots(rows)
    centre = float(np.interp(0.0, known, values))
    upper, lower = (np.interp(nominal * sign, known, values) for sign in (1.0, -1.0))
    factor = _mean_factor((earlier.narrowing, earlier.rows), (narrowing, count))
    return ConformalMap.of_quantiles(nominal, upper, lower, centre, rows=rows, method=POOLED, narrowing=factor)


def _knots(rows: int) -> NDArray[np.float64]:
    """Normal scores of levels above the median, in the middle of a row's share: evenly spaced, and the outermost."""
    ranks = np.arange(rows // 2, rows)
    if len(ranks) > MAXIMUM_KNOTS:
        spaced = np.linspace(0, len(ranks) - 1, MAXIMUM_KNOTS // 2).round().astype(int)
        ranks = ranks[np.unique(np.concatenate([spaced, np.arange(len(ranks) - MAXIMUM_KNOTS // 2, len(ranks))]))]
    levels = (ranks + 0.5) / rows
    scores: NDArray[np.float64] = torch.special.ndtri(torch.from_numpy(levels[levels > 0.5])).numpy()
    return scores


def _mean_factor(*parts: tuple[float | None, int]) -> float | None:
    known = [(math.log(factor), rows) for factor, rows in parts if factor is not None and rows > 0]
    if not known:
        return None
    return math.exp(sum(log * rows for log, rows in known) / sum(rows for _, rows in known))
