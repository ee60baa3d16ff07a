"""The calibration of a classifier: a map of probabilities and prediction sets, also pooled over old and new rows.

After an update every row counts alike, earlier or new. So a few new rows change little, many decide, and one row more
never changes much. The version before judged the earlier rows, so prediction sets then have no guarantee
(``pooled-conformal``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from murho.model.calibration.class_map import NONE, TEMPERATURE, ClassMap, Rows, fit_temperature
from murho.model.calibration.conformal import POOLED
from murho.model.calibration.prediction_sets import (
    MAXIMUM_KNOTS,
    ROUNDING,
    USUAL,
    ClassGroup,
    PredictionSets,
    fit_prediction_sets,
)
from murho.model.json_validation import MisfitError, Stored

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

__all__ = [
    "ClassCalibration",
    "pooled_map",
    "pooled_sets",
]


@dataclass(frozen=True)
class ClassCalibration(Stored):
    """Calibration of a classifier, in place of a regression's `model.calibration.conformal.ConformalMap`.

    Attributes:
        map: From pooled to calibrated log-probabilities.
        sets: Prediction sets of calibrated probabilities.
        method: Tells it from a regression's in a file.
    """

    map: ClassMap
    sets: PredictionSets
    method: Literal["class"] = "class"

    def __post_init__(self) -> None:
        """Raise a `MisfitError` unless the map and the sets have as many classes."""
        if self.map.intercept and len(self.map.intercept) != self.sets.classes:
            raise MisfitError("map.intercept", f"{self.sets.classes} numbers, one for each class", self.map.intercept)

    @property
    def rows(self) -> int:
        """Number of held-out rows behind it."""
        return self.sets.rows


NO_FLOOR = 10**12
"""With so many rows behind it, a map adds nothing to small probabilities."""


def pooled_map(
    earlier: ClassMap, log_probabilities: Tensor, labels: Tensor, *, weights: Tensor | None = None
) -> ClassMap:
    """The earlier map, made surer or less sure by what new rows say.

    The temperature T that fits the new rows after the earlier map is fitted with a prior around 1. The logits of the
    earlier map are then divided by ``T^s``, with s the share of the new rows in all rows. The form of the map stays:
    a new intercept or matrix takes a training.

    Args:
        earlier: The earlier map.
        log_probabilities: Of each new row, ``[n, C]``; n may be 0.
        labels: Class of each new row, ``[n]``, whole numbers from 0 to C - 1.
        weights: Relative weights, ``[n]``; None: all rows count alike.
    """
    count = len(labels)
    rows = earlier.rows + count
    if not count:
        return earlier
    logs = replace(earlier, rows=NO_FLOOR).log_probabilities(log_probabilities.detach().cpu().double())
    shares = torch.ones(count, dtype=torch.float64) if weights is None else weights.detach().cpu().double()
    # Weighted rows count as many as equal ones of the same information (Kish's effective sample size).
    shares = shares * (shares.sum() / shares.square().sum())
    temperature = fit_temperature(Rows(logs, labels.detach().cpu().long(), shares))
    factor = temperature ** (-count / rows)
    if earlier.method == NONE:
        return ClassMap(TEMPERATURE, (factor,), (), rows)
    return replace(
        earlier,
        weights=tuple(factor * weight for weight in earlier.weights),
        intercept=tuple(factor * number for number in earlier.intercept),
        rows=rows,
    )


def pooled_sets(
    earlier: PredictionSets,
    probabilities: Tensor,
    labels: Tensor,
    *,
    weights: Tensor | None = None,
    units: NDArray[np.generic] | None = None,
) -> PredictionSets:
    """Prediction sets from the probabilities behind earlier ones and from those of new rows.

    Classes that shared a threshold for want of rows still do.

    Args:
        earlier: The earlier sets.
        probabilities: Calibrated ones of new rows, ``[n, C]``; n may be 0.
        labels: Class of each new row, ``[n]``, whole numbers from 0 to C - 1.
        weights: Relative weights, ``[n]``; None: all rows count alike.
        units: Id of each row's exchangeable unit, ``[n]``; None: each row is one.
    """
    count = len(labels)
    if not count:
        return earlier
    codes = labels.detach().cpu().numpy().astype(np.int64)
    own = probabilities.detach().cpu().double().numpy()[np.arange(count), codes]
    shares = np.ones(count) if weights is None else weights.detach().cpu().double().numpy()
    shares = shares * (count / shares.sum())
    # How many independent rows the new ones are worth is counted as for sets of their own.
    alone = fit_prediction_sets(probabilities, labels, weights=weights, units=units)
    worth = alone.units / count
    total = earlier.rows + count
    groups = []
    for group in earlier.groups:
        inside = np.isin(codes, group.classes)
        old = earlier.rows * group.weight
        new_units = worth * float(inside.sum())
        groups.append(
            _pooled(group, old, own[inside], shares[inside], total, new_units, MAXIMUM_KNOTS // len(earlier.groups))
        )
    return PredictionSets(earlier.classes, total, earlier.units + alone.units, tuple(groups), POOLED)


def _pooled(
    group: ClassGroup,
    old: float,
    own: NDArray[np.float64],
    shares: NDArray[np.float64],
    total: int,
    new_units: float,
    knots: int,
) -> ClassGroup:
    """A group with new rows.

    Args:
        group: The earlier group.
        old: Rows behind it.
        own: Probability that each new row gave to its own class, ``[k]``.
        shares: Weight of each, in rows, ``[k]``.
        total: All rows, of all groups.
        new_units: Independent rows that the new ones are worth.
        knots: Most knots.
    """
    weight = old + float(shares.sum())
    if not weight > 0.0:
        return group
    masses = np.diff(group.levels, prepend=0.0) * old
    falling, place = np.unique(-np.concatenate([np.array(group.probabilities), own]), return_inverse=True)
    levels = np.cumsum(np.bincount(place.reshape(-1), np.concatenate([masses, shares]))) / weight
    levels[-1] = 1.0
    units = group.units + new_units
    if len(levels) > knots:
        # A coverage between two knots takes the threshold of the next one, which covers more.
        wanted = np.concatenate([USUAL, np.linspace(0.0, 1.0, max(2, knots - len(USUAL) - 1))])
        places = np.searchsorted(levels, wanted * (units + 1.0) / units - ROUNDING)
        kept = np.unique(np.append(places[places < len(levels)], len(levels) - 1))
        falling, levels = falling[kept], levels[kept]
    return ClassGroup(group.classes, weight / total, units, tuple(levels.tolist()), tuple((-falling).tolist()))
