"""Held-out rows of classes, as prediction sets keep them: how probable each row found its own class.

A class with many rows is a group by itself, and classes with few rows are one together. Of many rows a group keeps
some quantiles, the knots.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from murho.model.json_validation import (
    expect_fields,
    expect_list,
    expect_number,
    expect_numbers,
    expect_whole,
    wrong,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = [
    "MAXIMUM_KNOTS",
    "ROUNDING",
    "USUAL",
    "ClassGroup",
    "ScoredRows",
    "expect_not_negative",
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
class ClassGroup:
    """Held-out rows of a class, or of several classes with few rows each.

    Attributes:
        classes: Numbers of the classes.
        weight: Share of these rows in the weight of all.
        units: Number of exchangeable units behind them; the number of rows where these weigh alike and are one each.
        levels: Shares of the weight of the rows, rising, ``[knots]``.
        probabilities: Falling, ``[knots]``: the share ``levels`` of the rows gives its own class at least this.
    """

    classes: tuple[int, ...]
    weight: float
    units: float
    levels: tuple[float, ...]
    probabilities: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        """For ``model.json``."""
        return {
            "classes": list(self.classes),
            "weight": self.weight,
            "units": self.units,
            "levels": list(self.levels),
            "probabilities": list(self.probabilities),
        }

    @classmethod
    def from_json(cls, data: object, where: str) -> Self:
        """The inverse of `to_json`; ``where`` is the path of the data.

        Raises:
            CheckpointError: A field is missing, unknown or has a value that can't be used.
        """
        fields = expect_fields(data, where, ("classes", "weight", "units", "levels", "probabilities"))
        members = expect_list(fields["classes"], f"{where}.classes")
        levels, probabilities = (
            expect_numbers(fields[name], f"{where}.{name}") for name in ("levels", "probabilities")
        )
        if any(a >= b for a, b in zip((0.0, *levels), levels, strict=False)) or (levels and levels[-1] > 1.0):
            raise wrong(f"{where}.levels", "rising numbers above 0, up to 1", levels)
        falling = all(a > b for a, b in pairwise(probabilities))
        if len(probabilities) != len(levels) or not falling or not all(0.0 <= value <= 1.0 for value in probabilities):
            raise wrong(f"{where}.probabilities", f"{len(levels)} falling numbers from 0 to 1", probabilities)
        return cls(
            classes=tuple(expect_whole(number, f"{where}.classes[{index}]") for index, number in enumerate(members)),
            weight=expect_not_negative(fields["weight"], f"{where}.weight"),
            units=expect_not_negative(fields["units"], f"{where}.units"),
            levels=levels,
            probabilities=probabilities,
        )


def expect_not_negative(value: object, where: str) -> float:
    """Return the value if it is a number from 0."""
    number = expect_number(value, where)
    if number < 0.0:
        raise wrong(where, "a number from 0", value)
    return number


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
