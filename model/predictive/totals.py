"""Totals with error bars: the sum, mean or count over many rows, group by group.

A draw is a function of all rows, so under one draw the function values of a group's rows simply add up. Under draw s
the total of new observations has mean and variance

    F_s = sum_i w_i m_s(x_i),        V_s = sum_i w_i^2 var_s(y_i),

because the noise of rows is independent given the draw. The total is the mixture over draws, and its two parts follow
from the law of total variance: ``Var_s[F_s] + E_s[V_s]``. Where noise is skewed, the sum of few rows is, too: each
draw's total is a shifted lognormal distribution with the third cumulant that the rows add up to (it is Gaussian without
skewness). A count is a sum of Bernoulli variables, so under a draw it is Poisson-binomial: exact for up to 200 rows,
and beyond them by the same three moments with a correction for whole numbers (Volkova 1996, "A refinement of the
central limit theorem for sums of independent random indicators").

All that is kept of rows are sums, so memory does not grow with rows, and partial totals of blocks add up in any order
(`Totals.merge`). A group of one row has the answer for that row.

Held-out rows tell how wrong totals are, which the calibration of single rows can't (`TotalsCalibration`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
import torch

from murho.model.calibration.totals import TotalsCalibration
from murho.model.distributions.mixtures import normal_cdf
from murho.model.errors import OptionError
from murho.model.predictive.prediction import AnyPrediction, Prediction, PredictOptions
from murho.model.tables.cells import format_date
from murho.model.tables.columns import is_missing
from murho.model.tables.schema import FeatureKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from murho.model.tables.schema import Columns, Schema

    Doubles: TypeAlias = NDArray[np.float64]
    Label: TypeAlias = tuple[str | float | bool | None, ...]

__all__ = [
    "MOST_GROUPS",
    "STATISTICS",
    "Totals",
    "TotalsAnswer",
    "TotalsOptions",
    "check_weights",
    "default_statistic",
    "labels_of",
]

STATISTICS = ("sum", "mean", "count_above", "count")
MOST_GROUPS = 10_000
"""Groups of one answer: each keeps two sums for every draw."""
EXACT_ROWS, EXACT_GROUPS = 200, 500
"""Rows of a group, and groups of an answer, up to which counts are exact: 200 kB a group at 256 draws."""
VALUES_AT_A_TIME = 2**20
"""Rows times draws times classes of a block: 8 MiB in each of a few arrays."""
LEAST = 1e-300


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
                f"--statistic: {self.statistic!r} is not known for {schema.target.name!r}; use {' or '.join(fitting)}"
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
    rows: NDArray[np.int64]
    unlike: NDArray[np.int64]
    samples: int
    seed: int
    calibrated: bool
    mean: Doubles
    std: Doubles | None = None
    epistemic_std: Doubles | None = None
    aleatoric_std: Doubles | None = None
    percentiles: Doubles | None = None
    exceedance: Doubles | None = None


def default_statistic(schema: Schema) -> str:
    """The statistic of a request that names none."""
    return "sum" if schema.target.classes is None else "count"


def check_weights(weights: Doubles) -> None:
    """Check the weights of rows.

    Raises:
        OptionError: One is not finite, or negative; the message names its row, from 1.
    """
    usable = np.isfinite(weights) & (weights >= 0.0)
    if not usable.all():
        raise OptionError(f"--weights: row {int(usable.argmin()) + 1}: expected a finite number that is not negative")


def labels_of(schema: Schema, columns: Columns, names: Sequence[str]) -> list[Label]:
    """The label of each row: its cells in some features, as people write them; a missing cell is None.

    Args:
        schema: The features.
        columns: Their canonical columns, ``[B]`` each.
        names: Names of features.

    Raises:
        OptionError: There is no such feature.
    """
    kinds = {feature.name: feature.kind for feature in schema.features}
    cells = []
    for name in names:
        if name not in kinds:
            raise OptionError(f"--by: {name!r} is no feature; there are {', '.join(map(repr, kinds))}")
        known: list[Any] = columns[name].tolist()
        if kinds[name] is FeatureKind.DATE:
            known = [None if cell != cell else format_date(cell) for cell in known]
        elif kinds[name] is FeatureKind.BOOLEAN:
            known = [bool(cell) for cell in known]
        missing = is_missing(columns[name])
        cells.append([None if lacks else cell for cell, lacks in zip(known, missing, strict=True)])
    return list(zip(*cells, strict=True)) if names else [()] * len(next(iter(columns.values())))


@dataclass(slots=True)
class _Group:
    """The sums of one group, each with a last axis of C classes; C is 1 for a number.

    Attributes:
        drawn: ``F_s`` and ``sum_s V_s`` of each draw, ``[2, S, C]``.
        sums: Of mean, own epistemic variance, noise variance, third central moment and noise std, weighted, ``[5, C]``.
        rows: Number of rows.
        unlike: How many of them are unlike the training rows.
        weight: Sum of the weights.
        first: Cells of the first row, and its weight.
        units: Unit → sum of the noise std of its rows, and of the squares, ``[2, C]``.
        counts: Probability of each count under each draw, ``[S, C, rows + 1]``; None where it is not kept.
    """

    drawn: Doubles
    sums: Doubles
    rows: int
    unlike: int
    weight: float
    first: tuple[Columns, float]
    units: dict[Any, Doubles]
    counts: NDArray[np.float32] | None


class Totals:
    """Totals of groups of rows, added up block by block.

    Attributes:
        options: What is asked.
        groups: Label → its sums, in the order of first rows.
    """

    def __init__(self, options: TotalsOptions) -> None:
        """Begin without rows; `TotalsOptions.check` has been called."""
        self.options = options
        self.groups: dict[Label, _Group] = {}
        self._facts: tuple[int, int, bool] = (options.of.samples, options.of.seed or 0, False)
        self._unweighted = True

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
        """Rows whose answers take about 16 MiB."""
        return max(16, VALUES_AT_A_TIME // max(1, self.options.of.samples))

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
        of_rows = _RowMoments.of(answer, self.options)
        self._facts, self._unweighted = (answer.samples, answer.seed, answer.calibrated), weights is None
        self._add(of_rows, columns, labels, weights, units)

    def _add(
        self,
        of_rows: _RowMoments,
        cells: Columns,
        labels: Sequence[Label],
        weights: Doubles | None,
        units: Sequence[Any] | None,
    ) -> None:
        numbers: dict[Label, int] = {}
        index = np.array([numbers.setdefault(label, len(numbers)) for label in labels], dtype=np.int64)
        weight = np.ones(len(index)) if weights is None else weights
        drawn, sums = of_rows.added(index, weight, len(numbers))
        firsts = np.unique(index, return_index=True)[1]
        totals = [np.bincount(index, each, len(numbers)) for each in (None, of_rows.unlike, weight)]
        exact = weights is None and self._counts and of_rows.samples > 0
        for label, number in numbers.items():
            rows, unlike, total = (float(part[number]) for part in totals)
            first = int(firsts[number])
            own = np.flatnonzero(index == number) if exact or units is not None else firsts[:0]
            part = _Group(
                drawn[:, :, number],
                sums[:, number],
                int(rows),
                int(unlike),
                total,
                ({name: column[first : first + 1] for name, column in cells.items()}, float(weight[first])),
                {}
                if units is None
                else _of_units(of_rows.aleatoric[own] * weight[own, None], [units[at] for at in own]),
                _poisson_binomial(of_rows.values[own]) if exact and len(own) <= EXACT_ROWS else None,
            )
            self._merge(label, part)
        self._limit()

    def _merge(self, label: Label, part: _Group) -> None:
        group = self.groups.get(label)
        if group is None:
            self.groups[label] = part
            return
        if group.counts is not None and part.counts is not None and group.rows + part.rows <= EXACT_ROWS:
            group.counts = _convolved(group.counts, part.counts)
        else:
            group.counts = None
        group.drawn, group.sums = group.drawn + part.drawn, group.sums + part.sums
        group.rows, group.unlike, group.weight = (
            group.rows + part.rows,
            group.unlike + part.unlike,
            group.weight + part.weight,
        )
        for unit, sums in part.units.items():
            group.units[unit] = group.units[unit] + sums if unit in group.units else sums

    def merge(self, other: Totals) -> None:
        """Add the sums of other rows; groups that are new come after those known.

        Raises:
            OptionError: There are more than `MOST_GROUPS` groups.
        """
        for label, part in other.groups.items():
            self._merge(label, part)
        self._facts, self._unweighted = other._facts, self._unweighted and other._unweighted
        self._limit()

    def _limit(self) -> None:
        if len(self.groups) > MOST_GROUPS:
            raise OptionError(f"--by: there are more than {MOST_GROUPS:,} groups; group by something coarser")
        if len(self.groups) > EXACT_GROUPS:
            for group in self.groups.values():
                group.counts = None

    @property
    def alone(self) -> tuple[Columns, PredictOptions] | None:
        """The rows that are alone in their groups, and what `answer` needs to know of them; None: there are none."""
        firsts = [group.first[0] for group in self.groups.values() if group.rows == 1]
        if not firsts or self._counts or not self.options.of.samples:
            return None
        asked = replace(self.options.of, draws=False, mc_error=False)
        return {name: np.concatenate([columns[name] for columns in firsts]) for name in firsts[0]}, asked

    @property
    def _counts(self) -> bool:
        return self.options.statistic in ("count", "count_above")

    def answer(self, alone: AnyPrediction | None = None, calibration: TotalsCalibration | None = None) -> TotalsAnswer:
        """The answer for all rows so far.

        Args:
            alone: The answer to `alone`.
            calibration: Calibrates the spread of totals, if answers are calibrated; None: it stays that of the rows.

        Raises:
            OptionError: There are no rows.
        """
        groups, options, asked = list(self.groups.values()), self.options, self.options.of
        if not groups:
            raise OptionError("there are no rows to add up")
        rows = np.array([group.rows for group in groups])
        scale = np.array([1.0 / max(group.weight, LEAST) if options.statistic == "mean" else 1.0 for group in groups])
        scale = scale[:, None]
        sums = np.stack([group.sums for group in groups], axis=1)
        mean = sums[0] * scale
        samples, seed, calibrated = self._facts
        flat = options.statistic != "count"
        answer = TotalsAnswer(
            list(self.groups),
            rows,
            np.array([group.unlike for group in groups]),
            samples,
            seed,
            calibrated,
            mean[:, 0] if flat else mean,
        )
        if samples == 0:
            return answer
        learned = calibration if calibrated and calibration is not None else TotalsCalibration()
        if self._counts:  # the noise of an indicator follows from its probability
            learned = TotalsCalibration(shared=learned.shared)
        drawn = np.stack([group.drawn for group in groups], axis=2)  # [2, S, G, C]
        _, own, noise, third, noise_sum = sums
        same_unit = np.array([_pairs(group.units, own[0]) for group in groups])
        spread = drawn[0].var(axis=0)
        of_rows = rows[:, None] * np.ones_like(own)
        epistemic, aleatoric = learned.variances(of_rows, own, noise, noise_sum, same_unit, spread)
        std = np.sqrt(epistemic + aleatoric)
        ratio = np.maximum(std, LEAST) / np.sqrt(np.maximum(spread + noise, LEAST))
        mixture = _Mixture.of(drawn, sums[0], noise, third, ratio)
        whole = rows if self._counts and self._unweighted else None
        percentiles = mixture.quantiles(np.array(asked.percentiles) / 100.0, whole)
        exceedance = mixture.exceedance(np.array(asked.thresholds) / scale, whole)
        for number, group in enumerate(groups):
            if group.counts is not None and whole is not None:
                found = _of_counts(group.counts.mean(axis=0), sums[0, number], ratio[number], asked)
                percentiles[number], exceedance[number] = found
        if isinstance(alone, Prediction):
            for place, number in enumerate(np.flatnonzero(rows == 1).tolist()):
                weight = groups[number].first[1]
                if alone.percentiles is not None:
                    percentiles[number, 0] = alone.percentiles[place] * weight
                if alone.exceedance is not None and weight * scale[number, 0] == 1.0:
                    exceedance[number, 0] = alone.exceedance[place]
        percentiles *= scale[..., None]
        parts = {
            "std": std * scale,
            "epistemic_std": np.sqrt(epistemic) * scale,
            "aleatoric_std": np.sqrt(aleatoric) * scale,
            "percentiles": percentiles,
            "exceedance": exceedance,
        }
        if flat:
            parts = {name: part[:, 0] for name, part in parts.items()}
        if not asked.thresholds:
            del parts["exceedance"]
        return replace(answer, **parts)


@dataclass(frozen=True, slots=True)
class _RowMoments:
    """What B rows add to totals, each with C classes; C is 1 for a number.

    Attributes:
        mean: Of the answers, ``[B, C]``, as the next two.
        epistemic: Epistemic standard deviation.
        aleatoric: Standard deviation of the noise.
        third: Third central moment of the noise, ``[B, C]``.
        values: Means under each draw, ``[B, S, C]``, up to a constant of the row.
        variances: Variances of the noise under each draw, likewise.
        stretch: Factors of values and variances that make them those of the answer, ``[2, B]``.
        unlike: Whether each row is unlike the training rows, ``[B]``.
        samples: S.
        seed: Seed of the draws.
        calibrated: Whether the answers are calibrated.
    """

    mean: Doubles
    epistemic: Doubles
    aleatoric: Doubles
    third: Doubles
    values: Doubles
    variances: Doubles
    stretch: Doubles
    unlike: Doubles
    samples: int
    seed: int
    calibrated: bool

    @classmethod
    def of(cls, answer: AnyPrediction, options: TotalsOptions) -> Self:
        """From the answers for rows: of a number, of whether it exceeds a threshold, or of classes."""
        rows = len(answer)
        unlike = np.zeros(rows) if answer.unlike is None else answer.unlike.astype(np.float64)
        facts: tuple[Any, ...] = (unlike, answer.samples, answer.seed, answer.calibrated)
        number = answer if isinstance(answer, Prediction) else None
        mean = number.mean[:, None] if number is not None else answer.probabilities  # type: ignore[union-attr]
        if answer.samples == 0:
            if number is not None and options.threshold is not None:
                raise OptionError("--samples: count_above needs draws; use 1 or more")
            none = np.zeros((rows, 0, mean.shape[1]))
            return cls(mean, 0.0 * mean, 0.0 * mean, 0.0 * mean, none, none, np.ones((2, rows)), *facts)
        draws = answer.draws
        assert draws is not None  # noqa: S101 - asked for
        if number is None or options.threshold is not None:
            if number is not None:
                assert number.exceedance is not None  # noqa: S101 - asked for
                mean, draws = number.exceedance, _exceeding(number, float(options.threshold or 0.0))[..., None]
            variances = draws * (1.0 - draws)
            third = (variances * (1.0 - 2.0 * draws)).mean(axis=1)
            epistemic = draws.std(axis=1)
            aleatoric = np.sqrt(np.maximum(mean * (1.0 - mean) - epistemic**2, 0.0))
            return cls(mean, epistemic, aleatoric, third, draws, variances, np.ones((2, rows)), *facts)
        variances, third = np.asarray(number.variances), np.asarray(number.third)
        epistemic, aleatoric = np.asarray(number.epistemic_std), np.asarray(number.aleatoric_std)
        raw = np.maximum(variances.mean(axis=1), LEAST)
        stretch = np.array([epistemic / np.maximum(draws.std(axis=1), LEAST), aleatoric**2 / raw])
        third = third * stretch[1] ** 1.5
        return cls(
            mean,
            epistemic[:, None],
            aleatoric[:, None],
            third[:, None],
            draws[..., None],
            variances[..., None],
            stretch,
            *facts,
        )

    def added(self, index: NDArray[np.int64], weight: Doubles, groups: int) -> tuple[Doubles, Doubles]:
        """The sums of G groups: ``[2, S, G, C]`` of draws, and ``[5, G, C]`` of `_Group.sums`.

        Args:
            index: Number of each row's group, ``[B]``.
            weight: ``[B]``.
            groups: G.
        """
        rows, (samples, classes) = len(index), self.values.shape[1:]
        places = np.stack([index, np.arange(rows)])
        sums = []
        for factors, values in zip((weight, weight**2) * self.stretch, (self.values, self.variances), strict=True):
            matrix = torch.sparse_coo_tensor(
                torch.from_numpy(places), torch.from_numpy(factors), (groups, rows), check_invariants=False
            )
            product = torch.sparse.mm(matrix, torch.from_numpy(values.reshape(rows, samples * classes)))
            sums.append(product.numpy().reshape(groups, samples, classes).transpose(1, 0, 2))
        w = weight[:, None]
        of_rows = (w * self.mean, (w * self.epistemic) ** 2, (w * self.aleatoric) ** 2, w**3 * self.third)
        added = [
            np.stack([np.bincount(index, each, groups) for each in part.T], axis=1)
            for part in (*of_rows, w * self.aleatoric)
        ]
        return np.stack(sums), np.stack(added)


def _exceeding(answer: Prediction, threshold: float) -> Doubles:
    """Probability that each row exceeds a threshold under each draw, ``[B, S]``.

    The noise of a draw counts as a shifted lognormal with its three moments. All normal scores of a row are moved
    alike, so that the mean over draws is the row's own exceedance, which is exact and may be calibrated.
    """
    means, variances, goal = map(np.asarray, (answer.draws, answer.variances, answer.exceedance))
    deviations = np.sqrt(np.maximum(variances, LEAST))
    skewness = np.asarray(answer.third) / np.maximum(variances.mean(axis=1), LEAST) ** 1.5
    scores = -_scores((threshold - means) / deviations, skewness[:, None])
    goal = np.clip(goal, 1e-12, 1.0 - 1e-12)
    shift = np.zeros_like(goal)
    for _ in range(NEWTON_STEPS):
        moved = scores + shift
        slope = np.exp(-0.5 * np.square(np.clip(moved, -35.0, 35.0))).mean(axis=1, keepdims=True) / math.sqrt(
            2 * math.pi
        )
        missing = goal - _cdf(moved).mean(axis=1, keepdims=True)
        shift += np.clip(missing / np.maximum(slope, 1e-9), -1.0, 1.0)
    return _cdf(scores + shift)


NEWTON_STEPS = 12
BISECTIONS = 50
MOST_SKEWNESS = 30.0


def _cdf(scores: Doubles) -> Doubles:
    probabilities: Doubles = normal_cdf(torch.from_numpy(np.ascontiguousarray(scores))).numpy()
    return probabilities


def _lognormal(skewness: Doubles) -> tuple[Doubles, Doubles]:
    """Width of the logarithm of a lognormal with a skewness, and its standard deviation in units of its median.

    With ``x = exp(width^2)`` the skewness is ``(x + 2) sqrt(x - 1)``, so ``(x + 2)^2 (x - 1) = skewness^2``: a cubic.
    """
    size = np.clip(np.abs(skewness), 1e-3, MOST_SKEWNESS)
    root = np.cbrt(1.0 + 0.5 * size * (size + np.sqrt(4.0 + size**2)))
    growth = root + 1.0 / root - 1.0
    return np.sqrt(np.log(growth)), np.sqrt(growth * (growth - 1.0))


def _scores(places: Doubles, skewness: Doubles) -> Doubles:
    """Normal scores of standardised values under a shifted lognormal with mean 0, variance 1 and a skewness.

    The skewness is broadcastable to the values. Below 1e-3 the distribution is Gaussian.
    """
    width, unit = _lognormal(skewness)
    sign = np.where(skewness < 0.0, -1.0, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        inside = np.exp(0.5 * width**2) + sign * places * unit
        scores = sign * np.log(np.maximum(inside, LEAST)) / width
    found: Doubles = np.where(np.abs(skewness) < 1e-3, places, scores)
    return found


def _places(scores: Doubles, skewness: Doubles) -> Doubles:
    """The inverse of `_scores`."""
    width, unit = _lognormal(skewness)
    sign = np.where(skewness < 0.0, -1.0, 1.0)
    places = sign * (np.exp(np.minimum(width * sign * scores, 700.0)) - np.exp(0.5 * width**2)) / unit
    found: Doubles = np.where(np.abs(skewness) < 1e-3, scores, places)
    return found


@dataclass(frozen=True, slots=True)
class _Mixture:
    """The mixture over draws of the totals of G groups and C classes, with a calibrated spread.

    Attributes:
        means: ``[S, G, C]``.
        deviations: Likewise.
        skewness: Of each total under a draw, ``[G, C]``.
        mean: ``[G, C]``.
        ratio: Calibrated standard deviation to that of the mixture, ``[G, C]``: the mixture is stretched by it.
    """

    means: Doubles
    deviations: Doubles
    skewness: Doubles
    mean: Doubles
    ratio: Doubles

    @classmethod
    def of(cls, drawn: Doubles, mean: Doubles, noise: Doubles, third: Doubles, ratio: Doubles) -> Self:
        """From the sums of `_Group`."""
        means, variances = drawn
        means = means - means.mean(axis=0) + mean
        variances = variances * (noise / np.maximum(variances.mean(axis=0), LEAST))
        skewness = third / np.maximum(noise, LEAST) ** 1.5
        return cls(means, np.sqrt(np.maximum(variances, LEAST)), skewness, mean, ratio)

    def below(self, values: Doubles) -> Doubles:
        """Distribution function at values ``[G, C]`` of the mixture before it is stretched."""
        found: Doubles = _cdf(_scores((values - self.means) / self.deviations, self.skewness)).mean(axis=0)
        return found

    def quantiles(self, levels: Doubles, whole: NDArray[np.int64] | None) -> Doubles:
        """Quantiles at levels ``[K]``, ``[G, C, K]``, by bisection between those of the single draws.

        Args:
            levels: Strictly between 0 and 1.
            whole: Largest possible count of each group, ``[G]``, where totals are whole numbers; None: they aren't.
        """
        found = np.empty((*self.mean.shape, len(levels)))
        scores = torch.special.ndtri(torch.from_numpy(levels)).numpy()
        for place, (level, score) in enumerate(zip(levels, scores, strict=True)):
            of_draws = self.means + self.deviations * _places(np.full_like(self.skewness, score), self.skewness)
            lower, upper = of_draws.min(axis=0), of_draws.max(axis=0)
            for _ in range(BISECTIONS):
                middle = 0.5 * (lower + upper)
                less = self.below(middle) < level
                lower, upper = np.where(less, middle, lower), np.where(less, upper, middle)
            found[..., place] = self.mean + self.ratio * (0.5 * (lower + upper) - self.mean)
        if whole is not None:
            found = np.clip(np.ceil(found - 0.5), 0.0, whole[:, None, None])
        return found

    def exceedance(self, thresholds: Doubles, whole: NDArray[np.int64] | None) -> Doubles:
        """Probabilities of more than thresholds ``[G, T]``, ``[G, C, T]``."""
        at = thresholds if whole is None else np.floor(thresholds) + 0.5
        values = self.mean[..., None] + (at[:, None, :] - self.mean[..., None]) / self.ratio[..., None]
        found = np.empty((*self.mean.shape, at.shape[1]))
        for place in range(at.shape[1]):
            found[..., place] = 1.0 - self.below(values[..., place])
        return found


def _of_units(noise: Doubles, units: Sequence[Any]) -> dict[Any, Doubles]:
    """Unit → sum of the weighted noise std ``[C]`` of its rows, and of the squares, ``[2, C]``."""
    found: dict[Any, Doubles] = {}
    for unit, of_row in zip(units, noise, strict=True):
        found[unit] = found.get(unit, 0.0) + np.stack([of_row, of_row**2])
    return found


def _pairs(units: dict[Any, Doubles], like: Doubles) -> Doubles:
    """The sum over pairs of rows of one unit of the products of their noise std, ``[C]``."""
    total = np.zeros_like(like)
    for amount, squares in units.values():
        total += amount**2 - squares
    return total


def _poisson_binomial(probabilities: Doubles) -> NDArray[np.float32]:
    """Probability of each count of n independent events, ``[S, C, n + 1]``, from theirs, ``[n, S, C]``."""
    counts = np.zeros((*probabilities.shape[1:], len(probabilities) + 1))
    counts[..., 0] = 1.0
    for number, event in enumerate(probabilities[..., None], start=1):
        counts[..., 1 : number + 1] += event * (counts[..., :number] - counts[..., 1 : number + 1])
        counts[..., 0] *= 1.0 - event[..., 0]
    return counts.astype(np.float32)


def _convolved(some: NDArray[np.float32], others: NDArray[np.float32]) -> NDArray[np.float32]:
    """Probability of each sum of two independent counts, ``[S, C, n + m + 1]``."""
    if others.shape[-1] > some.shape[-1]:
        some, others = others, some
    size = some.shape[-1]
    joint = np.zeros((*some.shape[:-1], size + others.shape[-1] - 1))
    for count in range(others.shape[-1]):
        joint[..., count : count + size] += others[..., count, None] * some
    return joint.astype(np.float32)


def _of_counts(
    counts: NDArray[np.float32], mean: Doubles, ratio: Doubles, asked: PredictOptions
) -> tuple[Doubles, Doubles]:
    """Percentiles ``[C, K]`` and exceedance ``[C, T]`` from the probability of each count, ``[C, n + 1]``."""
    most, below = counts.shape[-1] - 1, counts.astype(np.float64).cumsum(axis=-1)
    below /= below[:, -1:]
    levels, thresholds = np.array(asked.percentiles) / 100.0, np.array(asked.thresholds)
    percentiles, exceedance = np.empty((len(below), len(levels))), np.empty((len(below), len(thresholds)))
    for at, (of_class, centre, factor) in enumerate(zip(below, mean, ratio, strict=True)):
        found = np.searchsorted(of_class, levels - COUNT_ROUNDING)
        percentiles[at] = np.clip(np.rint(centre + factor * (found - centre)), 0, most)
        places = np.floor(np.clip(centre + (thresholds - centre) / factor, -1.0, most)).astype(int)
        exceedance[at] = 1.0 - np.concatenate([[0.0], of_class])[places + 1]
    return percentiles, exceedance


COUNT_ROUNDING = 1e-6
