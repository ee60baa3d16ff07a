"""What would help: the missing cells worth asking for, and the rows worth labelling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.encoding.imputation import IMPUTATIONS, imputed_columns
from murho.model.evaluation.why import ROWS_AT_ONCE, answered, plain, rows_to_ask, why
from murho.model.progress import ignore_rows
from murho.model.tables.columns import is_missing, select_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from murho.model.checkpoint.posterior import Posterior
    from murho.model.encoding.feature_distribution import FeatureDistribution
    from murho.model.evaluation.why import Asking, Why
    from murho.model.predictive.prediction import AnyPrediction, PredictOptions
    from murho.model.progress import Advance
    from murho.model.tables.schema import Columns, Schema

    Cell = tuple[int, str]

__all__ = ["Explained", "explain", "missing_cells", "rows_to_label", "worth_asking"]


def missing_cells(distribution: FeatureDistribution | None, schema: Schema, columns: Columns) -> list[Cell]:
    """Row and feature of each missing cell of which it is known what it may have been; R rows are asked for each."""
    if distribution is None:
        return []
    names = [each.name for each in schema.features if each.name in {*distribution.numbers, *distribution.levels}]
    gone = np.stack([is_missing(columns[name]) for name in names], axis=1) if names else np.zeros((0, 0))
    return [(int(row), names[place]) for row, place in np.argwhere(gone)]


def worth_asking(
    distribution: FeatureDistribution | None, schema: Schema, columns: Columns, prediction: AnyPrediction
) -> Asking[list[list[dict[str, Any]]]]:
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

    Returns:
        For each row its missing cells, the most helpful one first: ``feature`` and ``fall``, of the variance in the
        squared unit of the target, or of the entropy in nats.
    """
    cells = missing_cells(distribution, schema, columns)
    now, found = _doubt(prediction), list[list[dict[str, Any]]]([[] for _ in range(len(prediction))])
    at_once = ROWS_AT_ONCE // IMPUTATIONS
    for start in range(0, len(cells), at_once):
        some = cells[start : start + at_once]
        rows = np.array([row for row, _ in some])
        those = select_rows(columns, rows)
        assert distribution is not None  # noqa: S101 - without one there are no cells
        tried = {name: np.tile(column, IMPUTATIONS) for name, column in those.items()}
        filled = imputed_columns(distribution, schema, those, sorted({name for _, name in some}))
        for place, (_, name) in enumerate(some):
            tried[name][place :: len(some)] = filled[name][place :: len(some)]
        then = _doubt((yield tried)).reshape(IMPUTATIONS, -1).mean(axis=0)
        for (row, name), fall in zip(some, now[rows] - then, strict=True):
            found[row].append({"feature": name, "fall": float(fall)})
    return [sorted(of_row, key=lambda cell: -cell["fall"]) for of_row in found]


def _doubt(prediction: AnyPrediction) -> Any:
    """The variance of each row, or the entropy of its class, ``[B]``."""
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
    schema, further = posterior.schema, plain(options)
    rows_to_ask(schema, 1)
    answer: AnyPrediction = posterior.predict(columns, options)
    shares = answered(why(schema, columns, answer, advance), posterior, further)
    if not options.samples:
        return Explained(answer, shares, [[] for _ in range(len(answer))])
    cells = worth_asking(posterior.encoder.distribution, schema, columns, answer)
    return Explained(answer, shares, answered(cells, posterior, further))


def rows_to_label(draws: NDArray[np.float64], noise: NDArray[np.float64], count: int) -> tuple[list[int], list[float]]:
    """Choose the rows whose labels would teach most about all rows.

    Under q the function values of all rows are jointly distributed as the draws are. If they were Gaussian, a label of
    row i, with noise of variance ``n_i``, would lower the epistemic variance of row j by
    ``Cov(f_i, f_j)^2 / (Var f_i + n_i)``: what is chosen has the largest sum over j (Cohn, Ghahramani and Jordan 1996,
    "Active learning with statistical models"). Of classes, each class's probability counts as a number. After each
    choice the draws are moved so that they have the variance that is left, and the next one is chosen.

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
    whole = np.square(parts).sum()
    chosen, left = list[int](), list[float]()
    for _ in range(count):
        scatter = parts @ parts.transpose(0, 2, 1)  # [C, S, S]
        squares = ((scatter @ parts) * parts).sum(axis=1)  # sum over j of (a_i a_j)^2, [C, B]
        own = np.square(parts).sum(axis=1)
        falls = (squares / np.maximum(own + samples * of_noise, 1e-300)).sum(axis=0)
        falls[chosen] = -np.inf
        best = int(falls.argmax())
        chosen.append(best)
        for part, of_class in zip(parts, of_noise, strict=True):
            vector = part[:, best].copy()
            square = float(vector @ vector)
            if square > 0.0:
                kept = np.sqrt(samples * of_class[best] / (square + samples * of_class[best]))
                part -= np.outer(vector, (1.0 - kept) / square * (vector @ part))
        left.append(float(np.square(parts).sum() / whole) if whole else 0.0)
    return chosen, left
