"""Conformal prediction sets of classes, and the held-out rows that they are made of.

A class is in a row's set if its calibrated probability is at least a threshold, and the likeliest class always is. The
threshold of coverage c is a conformal quantile of the probabilities that held-out rows gave to their own class
(least ambiguous sets, Sadinle, Lei and Wasserman 2019, doi:10.1080/01621459.2017.1395341: with right probabilities no
sets of the same coverage are smaller on average). Classes with enough held-out rows have a threshold of their own
(Mondrian: Vovk, Gammerman and Shafer 2005), so that a rare class is covered as well as a frequent one. The others
share one.

What holds for a new, exchangeable row of a class with a threshold of its own:

split-conformal
    No member has seen the held-out rows. The set contains the row's class with probability c at least, whatever the
    network: exactly, as only the number of rows decides whether a class has its own threshold. A new row of any of the
    classes that share a threshold is covered so, too, where the shares of these classes decide nothing on who shares.
cross-conformal
    Only some members have not seen a held-out row, and all answer. No theorem promises c (sets of K folds have about
    ``1 - 2 (1 - c)`` at least, Vovk et al. 2018; Barber et al. 2021); measured coverage is near it.

A threshold is never above those of lower coverages, and the likeliest class is always in: either makes sets larger than
need be, never smaller. Where the likeliest class is right more often than c, sets cover more than c.

What is kept of held-out rows is how probable each found its own class. A class with many rows is a group by itself, and
classes with few rows are one together. Of many rows a group keeps some quantiles, the knots.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from murho.model.calibration.conformal import SPLIT, Method
from murho.model.errors import OptionError
from murho.model.json_validation import Count, MisfitError, NotNegative, Share, Stored

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = [
    "MAXIMUM_KNOTS",
    "ROUNDING",
    "USUAL",
    "ClassGroup",
    "PredictionSets",
    "ScoredRows",
    "fit_prediction_sets",
    "grouped_classes",
]


OWN_ROWS = 10.0
"""Held-out rows from which on the probabilities of a class are kept apart from those of others."""
MAXIMUM_GROUPS = 12
MAXIMUM_KNOTS = 600
"""Of all groups together. Where rows are more, a coverage between two knots takes the threshold of the next one: with
10 classes and 40,000 rows sets of unusual coverages cover up to .01 more."""
USUAL = np.array([50, 60, 70, 75, 80, 82, 84, 85, 86, 88, *range(90, 100), 99.5, 99.9]) / 100.0
"""Coverages whose threshold is kept exactly however many rows there are."""
ROUNDING = 1e-9
"""Levels may miss a coverage by it."""


@dataclass(frozen=True)
class ClassGroup(Stored):
    """Held-out rows of a class, or of several classes with few rows each.

    Attributes:
        classes: Numbers of the classes.
        weight: Share of these rows in the weight of all.
        units: Number of exchangeable units behind them; the number of rows where these weigh alike and are one each.
        levels: Shares of the weight of the rows, rising, ``[knots]``.
        probabilities: Falling, ``[knots]``: the share ``levels`` of the rows gives its own class at least this.
    """

    classes: tuple[Count, ...]
    weight: NotNegative
    units: NotNegative
    levels: tuple[float, ...]
    probabilities: tuple[Share, ...]

    def __post_init__(self) -> None:
        """Raise a `MisfitError` unless the levels rise up to 1, and as many probabilities fall."""
        if any(a >= b for a, b in pairwise((0.0, *self.levels))) or (self.levels and self.levels[-1] > 1.0):
            raise MisfitError("levels", "rising numbers above 0, up to 1", self.levels)
        if len(self.probabilities) != len(self.levels) or any(a <= b for a, b in pairwise(self.probabilities)):
            raise MisfitError("probabilities", f"{len(self.levels)} falling numbers", self.probabilities)


def grouped_classes(units: list[float]) -> list[tuple[int, ...]]:
    """Classes of each group: the largest are alone, those with few rows are together, at the end."""
    order = sorted(range(len(units)), key=lambda number: (-units[number], number))
    large = [number for number in order if units[number] >= OWN_ROWS][: MAXIMUM_GROUPS - 1]
    alone: list[tuple[int, ...]] = [(number,) for number in large]
    others = order[len(alone) :]
    if alone and not any(units[number] > 0.0 for number in others):
        # Nothing is known of classes without rows: they go with the smallest one.
        alone[-1] += tuple(sorted(others))
        return alone
    return [*alone, tuple(sorted(others))]


class ScoredRows(NamedTuple):
    """Held-out rows: probability of the own class, the class, weight (of sum 1) and unit of each, ``[n]``."""

    own: NDArray[np.float64]
    codes: NDArray[np.int64]
    shares: NDArray[np.float64]
    ids: NDArray[np.int64]

    def units_of(self, chosen: NDArray[np.bool_]) -> float:
        """Number of units behind the chosen rows; fewer if they weigh differently (Kish's effective sample size)."""
        if not chosen.any():
            return 0.0
        parts = np.bincount(self.ids[chosen], self.shares[chosen])
        return float(parts.sum() ** 2 / np.sum(parts**2))

    def groups(self, members: Sequence[tuple[int, ...]]) -> tuple[ClassGroup, ...]:
        """The rows of groups of classes, with at most `MAXIMUM_KNOTS` knots in all."""
        spare = MAXIMUM_KNOTS - len(members) * (len(USUAL) + 1)
        return tuple(self._group(numbers, spare) for numbers in members)

    def _group(self, numbers: tuple[int, ...], spare: int) -> ClassGroup:
        """The rows of these classes, with knots at the `USUAL` coverages and their share of ``spare`` others."""
        chosen = np.isin(self.codes, numbers)
        units, weight = self.units_of(chosen), float(self.shares[chosen].sum())
        if not chosen.any():
            return ClassGroup(numbers, 0.0, 0.0, (), ())
        # Rows of equal probability are one step.
        falling, place = np.unique(-self.own[chosen], return_inverse=True)
        levels = np.cumsum(np.bincount(place.reshape(-1), self.shares[chosen])) / weight
        levels[-1] = 1.0
        knots = int(spare * weight)
        if len(levels) > len(USUAL) + 1 + knots:
            factor = (units + 1.0) / units
            # Half of the others evenly, half ever denser towards 1.
            even, dense = np.linspace(0.0, 1.0, knots // 2), 1.0 - np.geomspace(1.0, 1.0 / len(levels), knots // 2)
            places = np.searchsorted(levels, np.concatenate([USUAL, even, dense]) * factor - ROUNDING)
            chosen_places = np.unique(np.append(places[places < len(levels)], len(levels) - 1))
            falling, levels = falling[chosen_places], levels[chosen_places]
        return ClassGroup(numbers, weight, units, tuple(levels.tolist()), tuple((-falling).tolist()))


SPARE = 5.0
"""A class has a threshold of its own at coverage c if at least so many of its held-out rows are expected outside the
sets, ``(n + 1) (1 - c)``: the coverage then differs from c by at most about ``0.45 (1 - c)`` for two thirds of the sets
of held-out rows (it has a Beta distribution)."""
SPARE_TOGETHER = 20.0
"""The same of classes that share a threshold. More than the rows of the rarest classes: if these alone decided the
threshold, the rare classes would be in almost every set."""
KNOWN_COVERAGES = 100


@dataclass(frozen=True)
class PredictionSets(Stored):
    """Prediction sets of C classes for any coverage.

    Attributes:
        classes: C.
        rows: Number of held-out rows behind the sets.
        units: Number of exchangeable units behind all rows.
        groups: Of classes; each class is in one.
        method: ``split-conformal``, ``cross-conformal`` or ``pooled-conformal``, see the module and
            `model.calibration.conformal`.
    """

    classes: Annotated[int, Field(ge=2)]
    rows: Count
    units: NotNegative
    groups: tuple[ClassGroup, ...]
    method: Method = SPLIT

    def __post_init__(self) -> None:
        """Raise a `MisfitError` unless each class is in one group."""
        members = sorted(number for group in self.groups for number in group.classes)
        if len(members) != self.classes or members != list(range(len(members))):
            raise MisfitError("groups", f"each class from 0 to {self.classes - 1} in one group", members)

    def sets(self, probabilities: Tensor, coverage: float) -> Tensor:
        """The set of each row.

        Args:
            probabilities: Calibrated, ``[B, C]``.
            coverage: c, strictly between 0 and 1.

        Returns:
            Whether a class is in the set, bool ``[B, C]``: at least one class in each row. All classes where the
            held-out rows are too few for the coverage. Sets of a higher coverage contain those of a lower one.

        Raises:
            OptionError: The coverage is not between 0 and 1.
        """
        thresholds = torch.as_tensor(self.thresholds(coverage), dtype=probabilities.dtype, device=probabilities.device)
        inside = probabilities >= thresholds
        likeliest = probabilities.argmax(dim=-1, keepdim=True)
        return inside.scatter(-1, likeliest, torch.ones_like(likeliest, dtype=torch.bool))

    def thresholds(self, coverage: float) -> NDArray[np.float64]:
        """Probability from which on each class is in a set of this coverage, ``[C]``; 0 where rows are too few.

        Raises:
            OptionError: The coverage is not between 0 and 1.
        """
        if not 0.0 < coverage < 1.0:
            raise OptionError(f"coverage: expected a number strictly between 0 and 1, found {coverage}")
        if coverage not in self._known:
            # Which classes share a threshold changes at some coverages. No threshold rises there: sets are nested.
            steps = [step for step in self._steps if step < coverage]
            found: NDArray[np.float64] = np.min([self._thresholds_of(level) for level in (*steps, coverage)], axis=0)
            if len(self._known) >= KNOWN_COVERAGES:
                return found
            self._known[coverage] = found
        return self._known[coverage]

    @cached_property
    def _known(self) -> dict[float, NDArray[np.float64]]:
        """Thresholds by coverage, of the first `KNOWN_COVERAGES` that were asked for: they take up to 1 ms."""
        return {}

    def _thresholds_of(self, coverage: float) -> NDArray[np.float64]:
        thresholds = np.zeros(self.classes)
        for pool in self._pools(coverage):
            value = self._threshold(pool, coverage)
            for group in pool:
                thresholds[list(group.classes)] = value
        return thresholds

    def _pools(self, coverage: float) -> list[tuple[ClassGroup, ...]]:
        """Groups that share a threshold. Those with too few rows share one, with the next larger ones if need be."""
        groups = self._by_size
        alone = sum(self._enough((group,), coverage, SPARE) for group in groups)
        while 0 < alone < len(groups) and not self._enough(groups[alone:], coverage, SPARE_TOGETHER):
            alone -= 1
        pools: list[tuple[ClassGroup, ...]] = [(group,) for group in groups[:alone]]
        return [*pools, groups[alone:]] if alone < len(groups) else pools

    def _enough(self, pool: tuple[ClassGroup, ...], coverage: float, spare: float) -> bool:
        return (self._units_of(pool) + 1.0) * (1.0 - coverage) >= spare - ROUNDING

    def _units_of(self, pool: tuple[ClassGroup, ...]) -> float:
        return min(self.units, sum(group.units for group in pool))

    @cached_property
    def _by_size(self) -> tuple[ClassGroup, ...]:
        return tuple(sorted(self.groups, key=lambda group: -group.units))

    @cached_property
    def _steps(self) -> tuple[float, ...]:
        """Coverages up to which a group, or the groups from one on, have enough rows."""
        groups = self._by_size
        alone = {1.0 - SPARE / (self._units_of((group,)) + 1.0) for group in groups}
        rests = [self._units_of(groups[first:]) for first in range(len(groups))]
        return tuple(sorted(alone | {1.0 - SPARE_TOGETHER / (units + 1.0) for units in rests}))

    def _threshold(self, pool: tuple[ClassGroup, ...], coverage: float) -> float:
        """The conformal quantile: the highest knot that the share c of the rows, and of one more row, is not below."""
        weight, units = sum(group.weight for group in pool), self._units_of(pool)
        if not weight > 0.0:
            return 0.0
        knots = -np.unique(-np.concatenate([np.array(group.probabilities) for group in pool]))
        reached = np.zeros(len(knots))
        for group in pool:
            below = np.searchsorted(-np.array(group.probabilities), -knots, side="right")
            reached += group.weight / weight * np.array([0.0, *group.levels])[below]
        enough = reached * (units / (units + 1.0)) >= coverage - ROUNDING
        return float(knots[np.argmax(enough)]) if enough.any() else 0.0


def fit_prediction_sets(
    probabilities: Tensor,
    labels: Tensor,
    *,
    weights: Tensor | None = None,
    units: NDArray[np.generic] | None = None,
    method: str = SPLIT,
) -> PredictionSets:
    """Prediction sets from held-out rows.

    Args:
        probabilities: Calibrated, ``[n, C]``.
        labels: Class of each row, ``[n]``, whole numbers from 0 to C - 1.
        weights: Relative weights, ``[n]``, not negative. Sets then cover the share c of the *weight* of new rows. None:
            all rows count alike.
        units: Id of each row's exchangeable unit, ``[n]``, such as its group. None: each row is one.
        method: Who judged the rows, see the module.
    """
    classes = probabilities.shape[1]
    codes = labels.detach().cpu().numpy().astype(np.int64)
    own = probabilities.detach().cpu().double().gather(1, torch.from_numpy(codes)[:, None])[:, 0].numpy()
    shares = np.ones(len(codes)) if weights is None else weights.detach().cpu().double().numpy()
    ids = np.arange(len(codes)) if units is None else np.unique(np.asarray(units), return_inverse=True)[1].reshape(-1)
    kept = shares > 0.0
    rows = ScoredRows(own[kept], codes[kept], shares[kept] / max(shares.sum(), 1e-300), ids[kept])
    members = grouped_classes([rows.units_of(rows.codes == number) for number in range(classes)])
    groups = rows.groups(members)
    return PredictionSets(classes, len(rows.codes), rows.units_of(np.full(len(rows.codes), True)), groups, method)
