"""Why an answer is what it is: Shapley shares of the mean and of both variances, one for each known cell of a row.

A set A of a row's known cells is worth ``v(A)``: what is answered if only these cells are known, and all others are
missing. So anybody can ask for ``v(A)``: it is the prediction for the row with null in the other cells. All sets are
answered under the same draws and imputations, so that what differs between them is the cells alone.

The share of cell i is its Shapley value: the mean, over all orders in which the cells could become known, of the
change of v when i does (Shapley 1953, "A value for n-person games"; for predictions Lundberg and Lee 2017). Shares and
baseline, ``v`` of no cell at all, add up to the answer.

The values are the solution of a weighted least-squares problem: of all functions ``v(none) + sum of shares in A`` with
the right ``v(all)``, the one nearest to v where a set of s of K cells has the weight
``(K - 1) / (C(K, s) s (K - s))`` (Charnes et al. 1988; the same paper of Lundberg and Lee). Up to ten known cells all
sets are there, and the solution is exact. Of more cells, sets are sampled in pairs of a set and its complement: the
smallest and largest ones all, the others without replacement within each size. The standard error is a jackknife over
groups of sampled pairs.

What is asked here is asked by generators: they yield rows, and are sent the prediction for them. So a posterior can
answer (`answered`), and a service too, some rows at a time among other requests.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from murho.model.errors import OptionError
from murho.model.progress import ignore_rows
from murho.model.tables.columns import is_missing

if TYPE_CHECKING:
    from collections.abc import Generator

    from numpy.typing import NDArray

    from murho.model.checkpoint.posterior import Posterior
    from murho.model.predictive.prediction import AnyPrediction, PredictOptions
    from murho.model.progress import Advance
    from murho.model.tables.schema import Columns, Schema

__all__ = [
    "CLASS_MEASURES",
    "NUMBER_MEASURES",
    "ROWS_AT_ONCE",
    "Asking",
    "Why",
    "answered",
    "measures_of",
    "plain",
    "rows_to_ask",
    "why",
]

Result = TypeVar("Result")
Asking: TypeAlias = "Generator[Columns, AnyPrediction, Result]"
"""Yields canonical columns ``[B]``, is sent the prediction for them, and returns the result."""

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
    baseline: dict[str, NDArray[np.float64]]
    shares: dict[str, NDArray[np.float64]]
    errors: dict[str, NDArray[np.float64]] | None

    def document(self) -> dict[str, Any]:
        """The shares as JSON data with arrays, in the form of the HTTP contract."""
        errors = {} if self.errors is None else {"mc_error": self.errors}
        return {"features": list(self.features), "baseline": self.baseline, **self.shares, **errors}


def answered(asking: Asking[Result], posterior: Posterior, options: PredictOptions) -> Result:
    """Let a posterior answer what is asked, and return the result."""
    try:
        columns = next(asking)
        while True:
            columns = asking.send(posterior.predict(columns, options))
    except StopIteration as end:
        result: Result = end.value
        return result


def plain(options: PredictOptions) -> PredictOptions:
    """The options under which sets of cells are answered: those of the answer, without all that costs time."""
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


def measures_of(prediction: AnyPrediction, classes: NDArray[np.int64] | None = None) -> dict[str, NDArray[np.float64]]:
    """What is shared out, by name, ``[B]`` each; without draws the first alone.

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
    return rows * (1 + len(_sets(len(schema.features)).masks))


def why(schema: Schema, columns: Columns, prediction: AnyPrediction, advance: Advance = ignore_rows) -> Asking[Why]:
    """Share out answers among the known cells of rows.

    Args:
        schema: The features.
        columns: Canonical columns of the rows, ``[B]`` each.
        prediction: The answer for them; what is yielded has to be answered under the same draws (`plain`).
        advance: Called with the number of rows that are done.

    Raises:
        OptionError: The model can't be asked why.
    """
    rows_to_ask(schema, 1)
    names = tuple(feature.name for feature in schema.features)
    answer_of: Any = prediction
    known = np.stack([~is_missing(columns[name]) for name in names], axis=1)
    whole = measures_of(prediction)
    baseline = {name: np.empty(len(known)) for name in whole}
    shares = {name: np.zeros(known.shape) for name in whole}
    errors = {name: np.zeros(known.shape) for name in whole}
    sampled = False
    patterns, of_row = np.unique(known, axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        rows, cells = np.flatnonzero(of_row.reshape(-1) == number), np.flatnonzero(pattern)
        sets = _sets(len(cells))
        sampled |= sets.leaving_out is not None
        absent = np.ones((1 + len(sets.masks), len(names)), dtype=np.bool_)
        absent[1:, cells] = ~sets.masks
        at_once = max(1, ROWS_AT_ONCE // len(absent))
        for start in range(0, len(rows), at_once):
            some = rows[start : start + at_once]
            answer = yield _without(columns, some, absent)
            of_class = None if answer_of.classes is None else answer_of.prediction[some].repeat(len(absent))
            for name, values in measures_of(answer, of_class).items():
                of_sets = values.reshape(len(some), -1)
                baseline[name][some] = of_sets[:, 0]
                changes, total = of_sets[:, 1:] - of_sets[:, :1], whole[name][some] - of_sets[:, 0]
                where = np.ix_(some, cells)
                shares[name][where] = sets.shares(changes, total)
                errors[name][where] = sets.errors(changes, total)
            advance(len(some))
    return Why(names, baseline, shares, errors if sampled else None)


def _without(columns: Columns, rows: NDArray[np.intp], absent: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
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
        weights: Of each set's worth in each share, ``[K, P]``, and of the worth of all cells, ``[K]``.
        leaving_out: The same without one group of sampled pairs each; None: all sets are there.
    """

    masks: NDArray[np.bool_]
    weights: tuple[NDArray[np.float64], NDArray[np.float64]]
    leaving_out: tuple[tuple[NDArray[np.float64], NDArray[np.float64]], ...] | None

    def shares(self, changes: NDArray[np.float64], total: NDArray[np.float64]) -> NDArray[np.float64]:
        """Shares ``[B, K]`` of what each set ``[B, P]``, and all cells together ``[B]``, add to the baseline."""
        return _applied(self.weights, changes, total)

    def errors(self, changes: NDArray[np.float64], total: NDArray[np.float64]) -> NDArray[np.float64]:
        """Their standard errors, ``[B, K]``."""
        if self.leaving_out is None:
            return np.zeros((len(total), self.masks.shape[1]))
        estimates = np.stack([_applied(weights, changes, total) for weights in self.leaving_out])
        return np.asarray(estimates.std(axis=0) * (len(estimates) - 1) ** 0.5)


def _applied(
    weights: tuple[NDArray[np.float64], NDArray[np.float64]],
    changes: NDArray[np.float64],
    total: NDArray[np.float64],
) -> NDArray[np.float64]:
    return np.asarray(changes @ weights[0].T + total[:, None] * weights[1])


@lru_cache(8)
def _sets(cells: int) -> _Sets:
    """The sets of so many cells that are asked for."""
    if cells < 2:
        return _Sets(np.empty((0, cells), dtype=np.bool_), (np.empty((cells, 0)), np.ones(cells)), None)
    generator = np.random.default_rng(cells)
    sizes = range(1, cells // 2 + 1)
    # Pairs of sets of s and of K - s cells, and their weight: there are half as many where both sizes are the same.
    count = {size: comb(cells, size) // (1 + (2 * size == cells)) for size in sizes}
    weight = {size: (cells - 1) / (size * (cells - size)) / (1 + (2 * size == cells)) for size in sizes}
    room, left = max(PAIRS, 2 * cells), sum(weight.values())
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
            _solved(sets, np.concatenate(list(map(_without_group, of_pair, groups, [left_out] * len(groups)))))
            for left_out in range(GROUPS)
        )
    return _Sets(np.concatenate([sets, ~sets]), _solved(sets, weights), leaving_out)


def _subsets(cells: int, size: int, wanted: int, generator: np.random.Generator) -> NDArray[np.bool_]:
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


def _without_group(weights: NDArray[np.float64], groups: NDArray[np.int64], group: int) -> NDArray[np.float64]:
    """Weights of the pairs of one size without those of a group; the others have the whole weight of the size."""
    left = weights * (groups != group)
    return np.asarray(left * (weights.sum() / left.sum()) if left.any() else left)


def _solved(sets: NDArray[np.bool_], weights: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weights of the worth of sets and their complements in the shares, and of the worth of all cells.

    With Z the masks and W the weights, least squares with the sum of the shares held is
    ``A^-1 Z'W y + u (total - 1'A^-1 Z'W y)`` with ``A = Z'WZ`` and ``u = A^-1 1 / 1'A^-1 1``.
    """
    both = np.concatenate([sets, ~sets]).astype(np.float64)
    weighted = both.T * np.concatenate([weights, weights])
    inverse = np.linalg.inv(weighted @ both)
    total = inverse.sum(axis=1) / inverse.sum()
    free = inverse @ weighted
    return free - np.outer(total, free.sum(axis=0)), total
