"""Why an answer is what it is, and what would help: shares of its known cells, missing cells worth asking for, labels.

The shares are Shapley values of the mean and of both variances, one for each known cell of a row. A set A of a row's
known cells is worth ``v(A)``: what is answered if only these cells are known, and all others are missing. So anybody
can ask for ``v(A)``: it is the prediction for the row with null in the other cells. All sets are answered under the
same draws and imputations, so that what differs between them is the cells alone. Of numbers they are raw answers.
Calibration multiplies the variance of a row by a factor, and so all its shares and the baseline, too.

The share of cell i is its Shapley value: the mean, over all orders in which the cells could become known, of the
change of v when i does (Shapley 1953, "A value for n-person games"; for predictions Lundberg and Lee 2017). Shares and
baseline, ``v`` of no cell at all, add up to the answer.

The values are the solution of a weighted least-squares problem: of all functions ``v(none) + sum of shares in A`` with
the right ``v(all)``, the one nearest to v where a set of s of K cells has the weight
``(K - 1) / (C(K, s) s (K - s))`` (Charnes et al. 1988; the same paper of Lundberg and Lee). Up to ten known cells all
sets are there, and the solution is exact. Of more cells, sets are sampled in pairs of a set and its complement: the
smallest and largest ones all, the others without replacement within each size. The standard error is a jackknife over
groups of sampled pairs.

What is asked here is asked by generators: they yield rows with options, and are sent the prediction for them. So a
posterior can answer (`answer_requests`), and a service too, some rows at a time among other requests.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from murho.model.errors import OptionError
from murho.model.progress import Advance, ignore_rows
from murho.model.tables.schema import Columns, Schema, is_missing, select_rows

if TYPE_CHECKING:
    from collections.abc import Generator

    from murho.model.arrays import Array, Bools, Doubles, Ints, Places
    from murho.model.checkpoint.posterior import Posterior
    from murho.model.encoding.feature_distribution import FeatureDistribution
    from murho.model.predictive.prediction import AnyPrediction, PredictOptions

    Cell = tuple[int, str]

ResultT = TypeVar("ResultT")
PredictionRequests: TypeAlias = "Generator[tuple[Columns, PredictOptions], AnyPrediction, ResultT]"
"""Yields canonical columns ``[B]`` and options, is sent the prediction for them, and returns the result."""

PAIRS = 511
"""Of sets and their complements, but for none and all: with ten cells these are all that there are."""
MOST_CELLS = 256
GROUPS = 8
ROWS_AT_ONCE = 4_096
NUMBER_MEASURES = ("mean", "epistemic_variance", "aleatoric_variance")
CLASS_MEASURES = ("probability", "entropy", "epistemic_entropy")


@dataclass(frozen=True, slots=True)
class Why:
    """The shares of B rows.

    Attributes:
        features: Names of the F features.
        baseline: The answer if no cell is known, by the name of what is shared out, ``[B]`` each: ``mean`` (the
            target's unit), ``epistemic_variance`` and ``aleatoric_variance`` (its square), calibrated if the answer is;
            of classes ``probability`` (of the row's likeliest class), ``entropy`` and ``epistemic_entropy`` (nats).
        shares: The same names, ``[B, F]`` each; 0 for a cell that is missing.
        errors: Standard errors of the shares, ``[B, F]`` each; 0 where all sets are there. None: everywhere.
    """

    features: tuple[str, ...]
    baseline: dict[str, Doubles]
    shares: dict[str, Doubles]
    errors: dict[str, Doubles] | None

    def document(self) -> dict[str, Any]:
        """Return the shares as JSON data with arrays, in the form of the HTTP contract."""
        errors = {} if self.errors is None else {"mc_error": self.errors}
        return {"features": list(self.features), "baseline": self.baseline, **self.shares, **errors}


def answer_requests(asking: PredictionRequests[ResultT], posterior: Posterior) -> ResultT:
    """Let a posterior answer what is asked, and return the result."""
    try:
        columns, options = next(asking)
        while True:
            columns, options = asking.send(posterior.predict(columns, options))
    except StopIteration as end:
        result: ResultT = end.value
        return result


def plain(options: PredictOptions) -> PredictOptions:
    """Return the options of an answer, without all that costs time."""
    return replace(
        options,
        percentiles=(),
        thresholds=(),
        draws=False,
        mc_error=False,
        noise_moments=False,
        why=False,
        worth_asking=False,
    )


def measures_of(prediction: AnyPrediction, classes: Ints | None = None) -> dict[str, Doubles]:
    """Return what is shared out, by name, ``[B]`` each; without draws the first alone.

    Args:
        prediction: The answer.
        classes: The class of each row whose probability is meant; None: the likeliest one. Not for numbers.
    """
    answer: Any = prediction
    if answer.classes is None:
        squares = [None if of is None else np.square(of) for of in (answer.epistemic_std, answer.aleatoric_std)]
        found = zip(NUMBER_MEASURES, (answer.mean, *squares), strict=True)
    else:
        of_class = answer.probabilities[np.arange(len(answer)), answer.prediction if classes is None else classes]
        found = zip(CLASS_MEASURES, (of_class, answer.entropy, answer.epistemic_entropy), strict=True)
    return {name: np.asarray(values, dtype=np.float64) for name, values in found if values is not None}


def rows_to_ask(schema: Schema, rows: int) -> int:
    """How many rows `why` yields at most.

    Raises:
        OptionError: The model can't be asked why.
    """
    refusing = [feature.name for feature in schema.features if not feature.accepts_missing]
    if refusing:
        raise OptionError(
            "why asks what the answer is if a cell is missing, and this model was trained to refuse missing cells in "
            f"{refusing[0]!r}; train without --missing refuse"
        )
    if len(schema.features) > MOST_CELLS:
        raise OptionError(f"why is for at most {MOST_CELLS} features; this model has {len(schema.features)}")
    return rows * (2 + len(_sets(len(schema.features), PAIRS).masks))


def why(
    schema: Schema,
    columns: Columns,
    prediction: AnyPrediction,
    options: PredictOptions,
    *,
    pairs: int = PAIRS,
    advance: Advance = ignore_rows,
) -> PredictionRequests[Why]:
    """Share out answers among the known cells of rows.

    Args:
        schema: The features.
        columns: Canonical columns of the rows, ``[B]`` each.
        prediction: The answer for them.
        options: Its options.
        pairs: How many pairs of sets are asked for, about: more are more exact.
        advance: Called with the number of rows that are done.

    Raises:
        OptionError: The model can't be asked why.
    """
    rows_to_ask(schema, 1)
    of_classes = schema.target.classes is not None
    options = replace(plain(options), calibrated=options.calibrated and of_classes)
    names = tuple(feature.name for feature in schema.features)
    known = np.stack([~is_missing(columns[name]) for name in names], axis=1)
    whole = measures_of(prediction)
    baseline = {name: np.empty(len(known)) for name in whole}
    shares = {name: np.zeros(known.shape) for name in whole}
    errors = {name: np.zeros(known.shape) for name in whole}
    sampled = False
    patterns, of_row = np.unique(known, axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        rows, cells = np.flatnonzero(of_row.reshape(-1) == number), np.flatnonzero(pattern)
        sets = _sets(len(cells), pairs)
        sampled |= sets.leaving_out is not None
        absent = np.ones((2 + len(sets.masks), len(names)), dtype=np.bool_)  # of no cell, of each set, of all cells
        absent[1:-1, cells], absent[-1] = ~sets.masks, ~pattern
        at_once = max(1, ROWS_AT_ONCE // len(absent))
        for start in range(0, len(rows), at_once):
            some = rows[start : start + at_once]
            answer: Any = yield _without(columns, some, absent), options
            of_class = prediction.prediction[some].repeat(len(absent)) if of_classes else None  # type: ignore[union-attr]
            worth = {name: of.reshape(len(some), -1) for name, of in measures_of(answer, of_class).items()}
            factor = np.ones(len(some))
            if "epistemic_variance" in worth:
                raw, served = (of["epistemic_variance"] + of["aleatoric_variance"] for of in (worth, whole))
                factor = np.divide(served[some], raw[:, -1], out=factor, where=raw[:, -1] > 0.0)
            for name, of_sets in worth.items():
                if name != "mean":
                    of_sets = of_sets * factor[:, None]
                nothing = of_sets[:, 0] + (whole[name][some] - of_sets[:, -1])  # outcomes may have moved the mean
                added = of_sets[:, 1:] - of_sets[:, :1]
                baseline[name][some] = nothing
                where = np.ix_(some, cells)
                shares[name][where] = added @ sets.weights.T
                if sets.leaving_out is not None:
                    estimates = np.stack([added @ weights.T for weights in sets.leaving_out])
                    errors[name][where] = estimates.std(axis=0) * (len(estimates) - 1) ** 0.5
            advance(len(some))
    return Why(names, baseline, shares, errors if sampled else None)


def _without(columns: Columns, rows: Places, absent: Bools) -> dict[str, Array]:
    """Rows, each as often as there are sets, without the cells that are absent from each set, ``[sets, F]``."""
    copies = {}
    for (name, column), gone in zip(columns.items(), absent.T, strict=True):
        cells = column[rows].repeat(len(absent)).reshape(len(rows), -1)
        cells[:, gone] = None if cells.dtype == object else np.nan
        copies[name] = cells.reshape(-1)
    return copies


@dataclass(frozen=True, slots=True)
class _Sets:
    """Sets of K cells, and what makes shares of their worth.

    Attributes:
        masks: Whether each cell is in each of P sets, ``[P, K]``.
        weights: Of what each set, and all cells together, add to the baseline in each share, ``[K, P + 1]``.
        leaving_out: The same without one group of sampled pairs each; None: all sets are there.
    """

    masks: Bools
    weights: Doubles
    leaving_out: tuple[Doubles, ...] | None


@lru_cache(16)
def _sets(cells: int, pairs: int) -> _Sets:
    """Return the sets of so many cells that are asked for, in about so many pairs."""
    if cells < 2:
        return _Sets(np.empty((0, cells), dtype=np.bool_), np.ones((cells, 1)), None)
    generator = np.random.default_rng(cells)
    sizes = range(1, cells // 2 + 1)
    # Pairs of sets of s and of K - s cells, and their weight: there are half as many where both sizes are the same.
    count = {size: comb(cells, size) // (1 + (2 * size == cells)) for size in sizes}
    weight = {size: (cells - 1) / (size * (cells - size)) / (1 + (2 * size == cells)) for size in sizes}
    room, left = max(pairs, 2 * cells), sum(weight.values())
    masks, of_pair, groups = [], [], []
    for size in sizes:
        share = max(1, round(room * weight[size] / left))
        chosen = _subsets(cells, size, count[size] if size == 1 else min(count[size], share), generator)
        masks.append(chosen)
        of_pair.append(np.full(len(chosen), weight[size] / len(chosen)))
        whole = len(chosen) == count[size]
        groups.append(np.full(len(chosen), -1) if whole else generator.permutation(len(chosen)) % GROUPS)
        room, left = room - len(chosen), left - weight[size]
    sets, weights, group = np.concatenate(masks), np.concatenate(of_pair), np.concatenate(groups)
    leaving_out = None
    if (group >= 0).any():
        leaving_out = tuple(
            _solve(sets, np.concatenate(list(map(_without_group, of_pair, groups, [left_out] * len(groups)))))
            for left_out in range(GROUPS)
        )
    return _Sets(np.concatenate([sets, ~sets]), _solve(sets, weights), leaving_out)


def _subsets(cells: int, size: int, wanted: int, generator: np.random.Generator) -> Bools:
    """Different sets of so many cells, ``[wanted, cells]``; of two that are complements at most one."""
    paired = 2 * size == cells
    if comb(cells, size) <= 20 * wanted:
        every = [of for of in combinations(range(cells), size) if not paired or of[0] == 0]
        chosen = [every[place] for place in generator.permutation(len(every))[:wanted]]
    else:
        found = dict[tuple[int, ...], None]()
        while len(found) < wanted:
            drawn = np.sort(generator.permutation(cells)[:size])
            if paired and drawn[0] != 0:
                drawn = np.setdiff1d(np.arange(cells), drawn)
            found[tuple(drawn.tolist())] = None
        chosen = list(found)
    masks = np.zeros((len(chosen), cells), dtype=np.bool_)
    for mask, of in zip(masks, chosen, strict=True):
        mask[list(of)] = True
    return masks


def _without_group(weights: Doubles, groups: Ints, group: int) -> Doubles:
    """Weights of the pairs of one size without those of a group; the others have the whole weight of the size."""
    left = weights * (groups != group)
    return np.asarray(left * (weights.sum() / left.sum()) if left.any() else left)


def _solve(sets: Bools, weights: Doubles) -> Doubles:
    """Weights in the shares of what sets, their complements, and all cells add to the baseline, ``[K, P + 1]``.

    With Z the masks and W the weights, least squares with the sum of the shares held is
    ``A^-1 Z'W y + u (total - 1'A^-1 Z'W y)`` with ``A = Z'WZ`` and ``u = A^-1 1 / 1'A^-1 1``.
    """
    both = np.concatenate([sets, ~sets]).astype(np.float64)
    weighted = both.T * np.concatenate([weights, weights])
    inverse = np.linalg.inv(weighted @ both)
    total = inverse.sum(axis=1) / inverse.sum()
    free = inverse @ weighted
    return np.column_stack([free - np.outer(total, free.sum(axis=0)), total])


def missing_cells(distribution: FeatureDistribution | None, schema: Schema, columns: Columns) -> list[Cell]:
    """Row and feature of each missing cell of which it is known what it may have been; R rows are asked for each."""
    if distribution is None:
        return []
    names = [each.name for each in schema.features if each.name in {*distribution.numbers, *distribution.levels}]
    gone = np.stack([is_missing(columns[name]) for name in names], axis=1) if names else np.zeros((0, 0))
    return [(int(row), names[place]) for row, place in np.argwhere(gone)]


def worth_asking(
    distribution: FeatureDistribution | None,
    schema: Schema,
    columns: Columns,
    prediction: AnyPrediction,
    options: PredictOptions,
) -> PredictionRequests[list[list[dict[str, Any]]]]:
    """For each missing cell, how far the doubt is expected to fall once the cell is known.

    The cell may be any of R values (`model.encoding.imputation`), given the known cells of its row. Each is tried: the
    expected fall of the variance is ``Var[y | row] - mean over values of Var[y | row, value]``. Other missing cells
    stay so. Of a cell that is imputed, the raw fall is the variance over values of ``E[y | row, value]`` (law of total
    variance), and so not negative but for Monte Carlo error. Where training had missing cells, ``Var[y | row]`` is what
    the network learned of such rows, which may be less than the doubt that is left once the cell is known.

    Args:
        distribution: What missing cells may have been.
        schema: The features.
        columns: Canonical columns of the rows, ``[B]`` each.
        prediction: The answer for them, with draws.
        options: Its options.

    Returns:
        For each row its missing cells, the most helpful one first: ``feature`` and ``fall``, of the variance in the
        squared unit of the target, or of the entropy in nats.
    """
    from murho.model.encoding.imputation import IMPUTATIONS, impute_columns  # here: it imports torch

    cells = missing_cells(distribution, schema, columns)
    now, found = _doubt(prediction), list[list[dict[str, Any]]]([[] for _ in range(len(prediction))])
    at_once = ROWS_AT_ONCE // IMPUTATIONS
    for start in range(0, len(cells), at_once):
        some = cells[start : start + at_once]
        rows = np.array([row for row, _ in some])
        those = select_rows(columns, rows)
        assert distribution is not None  # noqa: S101 - without one there are no cells
        tried = {name: np.tile(column, IMPUTATIONS) for name, column in those.items()}
        filled = impute_columns(distribution, schema, those, sorted({name for _, name in some}))
        for place, (_, name) in enumerate(some):
            tried[name][place :: len(some)] = filled[name][place :: len(some)]
        then = _doubt((yield tried, plain(options))).reshape(IMPUTATIONS, -1).mean(axis=0)
        for (row, name), fall in zip(some, now[rows] - then, strict=True):
            found[row].append({"feature": name, "fall": float(fall)})
    return [sorted(of_row, key=lambda cell: -cell["fall"]) for of_row in found]


def _doubt(prediction: AnyPrediction) -> Any:
    """Return the variance of each row, or the entropy of its class, ``[B]``."""
    answer: Any = prediction
    return np.square(answer.std) if answer.classes is None else answer.entropy


@dataclass(frozen=True, slots=True)
class Explained:
    """Rows, explained.

    Attributes:
        answer: The prediction for them.
        why: Shares of it.
        worth_asking: What their missing cells are worth, see `worth_asking`; empty lists without draws.
    """

    answer: AnyPrediction
    why: Why
    worth_asking: list[list[dict[str, Any]]]


def explain(
    posterior: Posterior, columns: Columns, options: PredictOptions, advance: Advance = ignore_rows
) -> Explained:
    """Answer rows, and explain the answers.

    Args:
        posterior: The posterior.
        columns: Canonical columns of the rows, ``[B]`` each.
        options: Options of the answer.
        advance: Called with the number of rows that are done.

    Raises:
        OptionError: The model can't be asked why.
    """
    schema = posterior.schema
    rows_to_ask(schema, 1)
    answer: AnyPrediction = posterior.predict(columns, options)
    shares = answer_requests(why(schema, columns, answer, options, advance=advance), posterior)
    if not options.samples:
        return Explained(answer, shares, [[] for _ in range(len(answer))])
    cells = worth_asking(posterior.encoder.distribution, schema, columns, answer, options)
    return Explained(answer, shares, answer_requests(cells, posterior))


def draws_and_noise(answer: AnyPrediction) -> tuple[Doubles, Doubles]:
    """Return what `rows_to_label` takes, of a raw answer with draws."""
    told: Any = answer
    if told.classes is None:
        return told.draws, np.square(told.aleatoric_std)
    return told.draws, (told.draws * (1.0 - told.draws)).mean(axis=1)


def rows_to_label(draws: Doubles, noise: Doubles, count: int) -> tuple[list[int], list[float]]:
    """Choose the rows to label next: those of the largest predictive variance, given the labels of those before.

    Under q the function values of all rows are jointly distributed as the draws are. If they were Gaussian, a label of
    row i, with noise of variance ``n_i``, would lower the epistemic variance of row j by
    ``Cov(f_i, f_j)^2 / (Var f_i + n_i)``. After each choice the draws are moved so that they have the variance that is
    left. Of classes, each class's probability counts as a number, and the variances add up.

    Args:
        draws: Function values, ``[B, S]`` or of C classes ``[B, S, C]``.
        noise: Variance of the noise of each row, or of each class, ``[B]`` or ``[B, C]``.
        count: How many rows, at most B.

    Returns:
        The rows, the best one first, and after each the share of the epistemic variance over all rows that is left.
    """
    rows, samples = draws.shape[:2]
    parts = draws.reshape(rows, samples, -1).transpose(2, 1, 0).copy()  # [C, S, B]
    parts -= parts.mean(axis=1, keepdims=True)
    of_noise = noise.reshape(rows, -1).T
    chosen, left = list[int](), [float(np.square(parts).sum())]
    for _ in range(count):
        doubt = (np.square(parts).mean(axis=1) + of_noise).sum(axis=0)
        doubt[chosen] = -np.inf
        best = int(doubt.argmax())
        chosen.append(best)
        for part, of_class in zip(parts, of_noise, strict=True):
            vector = part[:, best].copy()
            square = float(vector @ vector)
            if square > 0.0:
                kept = np.sqrt(samples * of_class[best] / (square + samples * of_class[best]))
                part -= np.outer(vector, (1.0 - kept) / square * (vector @ part))
        left.append(float(np.square(parts).sum()))
    return chosen, [each / left[0] if left[0] else 0.0 for each in left[1:]]
