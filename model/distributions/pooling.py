"""One conformal map of the rows behind an earlier map and of new rows."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from murho.model.distributions.calibration import POOLED, ConformalMap, fit_conformal_map

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
    become many, and a further row never changes it much. The earlier rows were scored before the model changed: there
    is no guarantee.

    Args:
        earlier: The earlier map.
        scores: Normal scores of the new rows, ``[n]``; n may be 0.
        narrowing: Factor of the new scores, from `calibration.sharpening`; None: there is none to apply.
        weights: Relative weights of the new rows, ``[n]``; None: all count alike.
        units: Number of exchangeable units behind the new scores; None: every row is one.

    Returns:
        The map. Its narrowing is the mean of both factors, by numbers of rows, of their logarithms.
    """
    count = len(scores)
    old = earlier.representative_scores()
    factor = _mean_factor((earlier.narrowing, earlier.rows), (narrowing, count))
    # The earlier scores are narrowed already.
    own = np.asarray(scores, dtype=np.float64) * (1.0 if narrowing is None else factor or 1.0)
    shares = np.ones(count) if weights is None else weights * (count / weights.sum())
    fitted = fit_conformal_map(
        np.concatenate([old, own]),
        weights=None if weights is None else np.concatenate([np.ones(len(old)), shares]),
        units=None if units is None else len(old) + units,
        method=POOLED,
    )
    return earlier if fitted is None else replace(fitted, narrowing=factor)


def _mean_factor(*parts: tuple[float | None, int]) -> float | None:
    known = [(math.log(factor), rows) for factor, rows in parts if factor is not None and rows > 0]
    if not known:
        return None
    return math.exp(sum(log * rows for log, rows in known) / sum(rows for _, rows in known))
