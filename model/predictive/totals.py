"""Totals with error bars: the sum, mean or count over many rows, group by group.

A draw is a function of all rows, so under one draw the function values of a group's rows simply add up. Under draw s
the total of new observations has mean and variance

    F_s = sum_i w_i m_s(x_i),        V_s = sum_i w_i^2 var_s(y_i),

because the noise of rows is independent given the draw. The total is the mixture over draws, and its two parts follow
from the law of total variance: ``Var_s[F_s] + E_s[V_s]``. What the missing cells of different rows may be is
independent, too, given the cells that are known. So ``m_s(x_i)`` is the average over all completed copies of a row, and
the variance between copies, which the answer for the row counts as epistemic, adds up like noise.

Where noise is skewed, the sum of few rows is, too: each draw's total is a shifted lognormal distribution with the third
cumulant that the rows add up to (it is Gaussian without skewness). A count is a sum of Bernoulli variables, so under a
draw it is Poisson-binomial: exact for up to 200 rows, and beyond them by the same three moments with a correction for
whole numbers (Volkova 1996, "A refinement of the central limit theorem for sums of independent random indicators").

All that is kept of rows are sums, so memory does not grow with rows, and partial totals of blocks add up in any order
(`Totals.merge`). A group of one row has the answer for that row.

Held-out rows tell how wrong totals are, which the calibration of single rows can't (`TotalsCalibration`).
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self, TypeAlias

import numpy as np

from murho.model.arrays import Doubles, Floats, Ints, Places
from murho.model.calibration.totals_calibration import TotalsCalibration
from murho.model.distributions.sums import LEAST, VALUES_AT_A_TIME, count_distribution, describe_totals
from murho.model.errors import OptionError
from murho.model.predictive.prediction import AnyPrediction, Prediction, PredictOptions
from murho.model.predictive.row_moments import RowMoments
from murho.model.tables.columns import MOST_EXACT
from murho.model.tables.schema import Columns, FeatureKind, Schema, count_rows, json_cells

Label: TypeAlias = tuple[str | float | bool | None, ...]

STATISTICS = ("sum", "mean", "count_above", "count")
MOST_WARNINGS = 100
MOST_GROUPS = 10_000
"""Groups of one answer: each keeps two sums for every draw."""
EXACT_ROWS, EXACT_VALUES = 200, 2**17
"""Rows of a group, and groups times draws times classes, up to which counts are exact: together 100 MB."""
COUNT_ROUNDING = 1e-6
BLOCK_VALUES = 2**18
"""Rows times draws times classes of a block: 2 MiB in each of a few arrays, and a fraction of a second."""
MOST_UNITS = 2**20
"""Units of all groups of an answer together: 200 MB."""
UNIT_BYTES, GROUP_BYTES, ROW_BYTES, EVENT_BYTES, NUMBER_BYTES = 200, 64, 64, 4, 32
"""Memory of a unit; of a group and of a row of a block under one draw, with copies; of an event; of a number of the
answer."""
EXACT_COST = 0.01
"""Work of one exact count, in row-draws: times rows, rows and draws."""
MOST_VALUES = 2**24
"""Groups times draws times classes of an answer, times what it has of each: two sums, levels and thresholds."""


@dataclass(frozen=True, slots=True)
class TotalsOptions:
    """What is asked of many rows.

    Attributes:
        statistic: One of `STATISTICS`; ``count`` is of each class of a classifier.
        threshold: Of ``count_above``, in the target's unit.
        of: Samples, percentiles, thresholds of the total, seed, calibrated.
    """

    statistic: str = "sum"
    threshold: float | None = None
    of: PredictOptions = field(default_factory=PredictOptions)

    def check(self, schema: Schema) -> None:
        """Check the options against a target.

        Raises:
            OptionError: The statistic is unknown, or not of this target, or a threshold is missing or not needed.
        """
        classes = schema.target.classes is not None
        fitting = ("count",) if classes else STATISTICS[:3]
        if self.statistic not in fitting:
            raise OptionError(
                f"--statistic: {self.statistic!r:.80} is not known for {schema.target.name!r}; "
                f"use {' or '.join(fitting)}"
            )
        if (self.statistic == "count_above") != (self.threshold is not None):
            raise OptionError("--threshold: a number is needed for count_above, and for nothing else")
        if self.threshold is not None and not math.isfinite(self.threshold):
            raise OptionError(f"--threshold: expected a finite number, not {self.threshold}")
        if not self.of.noise:
            raise OptionError("--noise: a total is of new observations, with their noise; leave it out")


@dataclass(frozen=True, slots=True)
class TotalsAnswer:
    """Totals of G groups, ``[G]``, or of G groups and C classes, ``[G, C]``; in the target's unit, or counts.

    Attributes:
        groups: Their labels, in the order of their first rows.
        rows: Number of rows of each group, ``[G]``.
        unlike: How many of these are unlike the training rows, ``[G]``.
        samples: S.
        seed: Seed of the draws.
        calibrated: Whether the spread is calibrated.
        mean: The mean of each total.
        std: Its standard deviation; None if S is 0, as are the next four.
        epistemic_std: Its part that rows share because they share a draw.
        aleatoric_std: Its part from the noise of the rows.
        percentiles: ``[G, K]`` or ``[G, C, K]``.
        exceedance: Probabilities that a total exceeds thresholds, ``[G, T]``; None also without thresholds.
    """

    groups: list[Label]
    rows: Ints
    unlike: Ints
    samples: int
    seed: int
    calibrated: bool
    mean: Doubles
    std: Doubles | None = None
    epistemic_std: Doubles | None = None
    aleatoric_std: Doubles | None = None
    percentiles: Doubles | None = None
    exceedance: Doubles | None = None

    def document(self, asked: PredictOptions) -> dict[str, Any]:
        """Return the answer as JSON data, with arrays as they are; levels and thresholds stand beside their values."""
        said: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        unlike, calibrated = said.pop("unlike").tolist(), said.pop("calibrated")
        details = ("percentiles", "levels", asked.percentiles), ("exceedance", "thresholds", asked.thresholds)
        for name, detail, given in details:
            values = said.pop(name)
            if given:
                said[name] = None if values is None else {detail: list(given), "values": values}
        warnings = [
            {"pointer": f"/groups/{place}", "message": f"Rows unlike the training rows: {count} of {rows}."}
            for place, (count, rows) in enumerate(zip(unlike, self.rows.tolist(), strict=True))
            if count
        ]
        return said | {"calibrated": calibrated, "warnings": warnings[:MOST_WARNINGS]}


def default_statistic(schema: Schema) -> str:
    """Return the statistic of a request that names none."""
    return "sum" if schema.target.classes is None else "count"


def labels_of(schema: Schema, columns: Columns, names: Sequence[str]) -> list[Label]:
    """Return the label of each row: its cells in some features, as people write them; a missing cell is None.

    Args:
        schema: The features.
        columns: Their canonical columns, ``[B]`` each.
        names: Names of features.

    Raises:
        OptionError: There is no such feature, or its numbers are too large to be told apart.
    """
    features = {feature.name: feature for feature in schema.features}
    cells = []
    for name in names:
        if name not in features:
            raise OptionError(f"--by: {name!r:.80} is no feature; there are {', '.join(map(repr, features))}")
        feature, column = features[name], columns[name]
        if feature.kind is FeatureKind.NUMERIC and bool(np.any(np.abs(column) >= MOST_EXACT)):
            raise OptionError(
                f"--by: {name!r} has numbers from 2^53 on, whose last digits a feature does not keep, so that "
                "neighbours would be one group; send a label for each row in groups"
            )
        cells.append(json_cells(feature, column))
    return list(zip(*cells, strict=True)) if names else [()] * count_rows(columns)


@dataclass(slots=True)
class _Group:
    """The sums of one group, each with a last axis of C classes; C is 1 for a number.

    Attributes:
        drawn: ``F_s`` and ``sum_s V_s`` of each draw, ``[2, S, C]``.
        sums: Of mean, own epistemic variance, noise variance, third central moment, noise std and the variance of
            imputed cells, weighted, ``[6, C]``.
        rows: Number of rows.
        unlike: How many of them are unlike the training rows.
        weight: Sum of the weights.
        first: Cells of the first row, and its weight.
        units: Unit → sum of the noise std of its rows, and of the squares, ``[2, C]``.
        events: Probability of each row's event under each draw, ``[rows, S, C]``; None where counts are not exact.
    """

    drawn: Doubles
    sums: Doubles
    rows: int
    unlike: int
    weight: float
    first: tuple[Columns, float]
    units: dict[Any, Doubles]
    events: Floats | None


class Totals:
    """Totals of groups of rows, added up block by block.

    Attributes:
        options: What is asked.
        groups: Label → its sums, in the order of first rows.
    """

    def __init__(self, options: TotalsOptions, classes: int = 1) -> None:
        """Begin without rows.

        Args:
            options: Checked by `TotalsOptions.check`.
            classes: C; 1 for a number.
        """
        self.options = options
        self.groups: dict[Label, _Group] = {}
        self._values = max(1, options.of.samples) * classes
        self._facts: tuple[int, int, bool] = (options.of.samples, options.of.seed or 0, False)
        self._listed = len(options.of.percentiles) + len(options.of.thresholds)
        self._whole = options.statistic in ("count", "count_above")

    @classmethod
    def of(cls, options: TotalsOptions, schema: Schema) -> Self:
        """Totals of a target, still without rows; raises what `TotalsOptions.check` does."""
        options.check(schema)
        return cls(options, len(schema.target.classes or (None,)))

    @property
    def rows(self) -> int:
        """Number of rows so far."""
        return sum(group.rows for group in self.groups.values())

    @property
    def asked(self) -> PredictOptions:
        """What each row is asked, to add it up."""
        of, threshold = self.options.of, self.options.threshold
        return replace(
            of,
            percentiles=(),
            thresholds=() if threshold is None else (threshold,),
            draws=of.samples > 0,
            noise_moments=of.samples > 0,
            mc_error=False,
        )

    @property
    def rows_at_a_time(self) -> int:
        """Rows of a block: `BLOCK_VALUES` under all draws."""
        return max(1, BLOCK_VALUES // self._values)

    def memory(self, groups: int, rows: int, units: int = 0) -> int:
        """Return about how many bytes so many groups, rows and units take with their answer, and not less."""
        numbers = groups * (self._values // max(1, self.options.of.samples)) * (8 + self._listed)
        exact = groups * self._values <= EXACT_VALUES and self.options.statistic in ("count", "count_above")
        of_draw = GROUP_BYTES * groups + ROW_BYTES * min(rows, self.rows_at_a_time)
        of_draw += EVENT_BYTES * min(rows, groups * EXACT_ROWS) * exact
        return self._values * of_draw + NUMBER_BYTES * numbers + UNIT_BYTES * units

    def group_cost(self, groups: int) -> float:
        """Return the work of an answer for so many groups, but for exact counts, in row-draws."""
        return float(groups * self._values * self._listed)

    @property
    def count_cost(self) -> float:
        """The work of exact counts, in row-draws."""
        exact = (group.events for group in self.groups.values() if self._whole)
        return sum(EXACT_COST * len(events) * events.size for events in exact if events is not None)

    def add(
        self,
        answer: AnyPrediction,
        columns: Columns,
        labels: Sequence[Label],
        weights: Doubles | None = None,
        units: Sequence[Any] | None = None,
    ) -> None:
        """Add rows.

        Args:
            answer: The answer for the rows to `asked`.
            columns: Their canonical columns, ``[B]`` each.
            labels: Group of each row.
            weights: Weight of each row, ``[B]``, finite and not negative; None: all are 1.
            units: Unit of each row, whose noise is correlated; None: that of every row is independent.

        Raises:
            OptionError: There are more than `MOST_GROUPS` groups.
        """
        of_rows = RowMoments.of(answer, self.options.threshold)
        self._facts = answer.samples, answer.seed, answer.calibrated
        self._whole &= weights is None
        numbers: dict[Label, int] = {}
        index = np.array([numbers.setdefault(label, len(numbers)) for label in labels], dtype=np.int64)
        weight = np.ones(len(index)) if weights is None else weights
        drawn, sums = of_rows.add_up(index, weight, len(numbers))
        rows, unlike, amount = (np.bincount(index, each, len(numbers)) for each in (None, of_rows.unlike, weight))
        exact = self._exact and answer.samples > 0
        in_order = np.split(np.argsort(index, kind="stable"), np.cumsum(rows.astype(np.int64))[:-1])
        for (label, number), own in zip(numbers.items(), in_order, strict=True):
            first = int(own[0])
            part = _Group(  # with copies: a view would keep all of the block in memory
                drawn[:, :, number].copy(),
                sums[:, number],
                int(rows[number]),
                int(unlike[number]),
                float(amount[number]),
                ({name: column[first : first + 1].copy() for name, column in columns.items()}, float(weight[first])),
                {} if units is None else _of_units(of_rows.aleatoric[own] * weight[own, None], units, own),
                of_rows.values[own].astype(np.float32) if exact and len(own) <= EXACT_ROWS else None,
            )
            self._merge(label, part)
        self._limit()

    def _merge(self, label: Label, part: _Group) -> None:
        group = self.groups.get(label)
        if group is None:
            self.groups[label] = part
            return
        if group.events is not None and part.events is not None and group.rows + part.rows <= EXACT_ROWS:
            group.events = np.concatenate([group.events, part.events])
        else:
            group.events = None
        group.drawn, group.sums = group.drawn + part.drawn, group.sums + part.sums
        group.rows, group.unlike = group.rows + part.rows, group.unlike + part.unlike
        group.weight += part.weight
        for unit, sums in part.units.items():
            group.units[unit] = group.units[unit] + sums if unit in group.units else sums

    def merge(self, other: Totals) -> None:
        """Add the sums of other rows; groups that are new come after those known.

        Raises:
            OptionError: There are more than `MOST_GROUPS` groups.
        """
        for label, part in other.groups.items():
            self._merge(label, part)
        self._facts, self._whole = other._facts, self._whole and other._whole
        self._limit()

    @property
    def _exact(self) -> bool:
        """Whether counts are kept exactly; with more groups they never are again, in whatever order these come."""
        return self._whole and len(self.groups) * self._values <= EXACT_VALUES

    def check_groups(self, count: int) -> None:
        """Check a number of groups.

        Raises:
            OptionError: There are more than `MOST_GROUPS`, or too many for so many draws, levels and thresholds.
        """
        each = 2 + self._listed
        if count > MOST_GROUPS or count * self._values * each > MOST_VALUES:
            most = min(MOST_GROUPS, MOST_VALUES // (self._values * each))
            raise OptionError(
                f"--by: there are more than {most:,} groups, the most with so many samples, classes and percentiles; "
                "group by something coarser, or ask for fewer of these"
            )

    def _limit(self) -> None:
        self.check_groups(len(self.groups))
        if sum(len(group.units) for group in self.groups.values()) > MOST_UNITS:
            raise OptionError(f"--units: there are more than {MOST_UNITS:,} units; add up parts of the rows")
        if not self._exact:
            for group in self.groups.values():
                group.events = None

    @property
    def alone(self) -> tuple[Columns, PredictOptions] | None:
        """The rows that are alone in their groups, and what `answer` needs to know of them; None: there are none."""
        firsts = [group.first[0] for group in self.groups.values() if group.rows == 1]
        if not firsts or self.options.threshold is not None or self._facts[0] == 0 or self._of_classes:
            return None
        asked = replace(self.options.of, draws=False, mc_error=False)
        return {name: np.concatenate([columns[name] for columns in firsts]) for name in firsts[0]}, asked

    @property
    def _of_classes(self) -> bool:
        return self.options.statistic == "count"

    def answer(self, alone: AnyPrediction | None = None, calibration: TotalsCalibration | None = None) -> TotalsAnswer:
        """Return the answer for all rows so far; see `answer_in_parts`."""
        parts = self.answer_in_parts(alone, calibration)
        while True:
            try:
                next(parts)
            except StopIteration as end:
                answer: TotalsAnswer = end.value
                return answer

    def answer_in_parts(
        self, alone: AnyPrediction | None = None, calibration: TotalsCalibration | None = None
    ) -> Generator[None, None, TotalsAnswer]:
        """Compute the answer for all rows so far; yields between parts of the work, each a fraction of a second.

        Args:
            alone: The answer to `alone`.
            calibration: Calibrates the spread of totals, if answers are calibrated; None: it stays that of the rows.

        Raises:
            OptionError: There are no rows.
        """
        groups, options, asked = list(self.groups.values()), self.options, self.options.of
        if not groups:
            raise OptionError("there are no rows to add up")
        weightless = [label for label, group in self.groups.items() if not group.weight]
        if options.statistic == "mean" and weightless:
            whose = f"all of group {list(weightless[0])!s:.80}" if weightless[0] else "all"
            raise OptionError(f"--weights: {whose} are 0, so there is no mean")
        rows = np.array([group.rows for group in groups])
        scale = np.array([1.0 / max(group.weight, LEAST) if options.statistic == "mean" else 1.0 for group in groups])
        scale = scale[:, None]
        sums = np.stack([group.sums for group in groups], axis=1)
        mean = sums[0] * scale
        samples, seed, calibrated = self._facts
        answer = TotalsAnswer(
            list(self.groups),
            rows,
            np.array([group.unlike for group in groups]),
            samples,
            seed,
            calibrated,
            np.ascontiguousarray(mean if self._of_classes else mean[:, 0]),
        )
        if samples == 0:
            return answer
        learned = calibration if calibrated and calibration is not None else TotalsCalibration()
        if options.statistic == "count_above":  # sums told of the target's noise, not of that of an indicator
            learned = TotalsCalibration(shared=learned.shared)
        drawn = np.stack([group.drawn for group in groups], axis=2)  # [2, S, G, C]
        _, own, noise, third, noise_sum, imputed = sums
        same_unit = np.array([_pairs(group.units, own[0]) for group in groups])
        together = drawn[0].var(axis=0) + imputed
        parts = learned.variances(rows[:, None], own, noise, noise_sum, same_unit, together)
        epistemic, aleatoric = map(np.sqrt, parts)
        std = np.hypot(epistemic, aleatoric)
        levels, thresholds = np.array(asked.percentiles) / 100.0, np.array(asked.thresholds) / scale
        at = np.floor(thresholds) + 0.5 if self._whole else thresholds
        found, size = [], max(1, VALUES_AT_A_TIME // self._values)
        for start in range(0, len(groups), size):
            some = slice(start, start + size)
            moments = sums[0, some], (noise + imputed)[some], third[some], std[some]
            found.append(describe_totals(drawn[:, :, some], *moments, levels, at[some]))
            yield
        percentiles, exceedance = map(np.concatenate, zip(*found, strict=True))
        if self._whole:
            percentiles = np.clip(np.ceil(percentiles - 0.5), 0.0, rows[:, None, None])
        ratio = np.maximum(std, LEAST) / np.sqrt(np.maximum(together + noise, LEAST))
        for number, group in enumerate(groups):
            if group.events is None or not self._whole:
                continue
            distribution = yield from count_distribution(group.events)
            for place, shares in enumerate(distribution):
                centre, counts = sums[0, number, place], np.arange(group.rows + 1)
                counts = np.clip(np.rint(centre + ratio[number, place] * (counts - centre)), 0, group.rows)
                wanted = np.maximum(levels - COUNT_ROUNDING, 0.0)
                percentiles[number, place] = np.quantile(counts, wanted, weights=shares, method="inverted_cdf")
                exceedance[number, place] = shares @ (counts[:, None] > thresholds[number])
        if isinstance(alone, Prediction):
            for place, number in enumerate(np.flatnonzero(rows == 1).tolist()):
                weight = groups[number].first[1]
                if alone.percentiles is not None:
                    percentiles[number, 0] = alone.percentiles[place] * weight
                if alone.exceedance is not None and weight * scale[number, 0] == 1.0:
                    exceedance[number, 0] = alone.exceedance[place]

        def kept(part: Doubles) -> Doubles:
            return np.ascontiguousarray(part if self._of_classes else part[:, 0])

        return replace(
            answer,
            std=kept(std * scale),
            epistemic_std=kept(epistemic * scale),
            aleatoric_std=kept(aleatoric * scale),
            percentiles=kept(percentiles * scale[..., None]),
            exceedance=kept(exceedance) if asked.thresholds else None,
        )


def _of_units(noise: Doubles, units: Sequence[Any], rows: Places) -> dict[Any, Doubles]:
    """Return the unit → sum of the weighted noise std ``[C]`` of some of the rows, and of the squares, ``[2, C]``."""
    found: dict[Any, Doubles] = {}
    for row, of_row in zip(rows.tolist(), noise, strict=True):
        found[units[row]] = found.get(units[row], 0.0) + np.stack([of_row, of_row**2])
    return found


def _pairs(units: dict[Any, Doubles], like: Doubles) -> Doubles:
    """Return the sum over pairs of rows of one unit of the products of their noise std, ``[C]``."""
    total = np.zeros_like(like)
    for amount, squares in units.values():
        total += amount**2 - squares
    return total
