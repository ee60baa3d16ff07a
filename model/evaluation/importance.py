"""Permutation importance of features, and a cheap screen before it.

A cheap screen before permutation importance: the features whose shuffle moves the mu-only networks most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from murho.model.bbb.rows import select_rows
from murho.model.errors import OptionError
from murho.model.evaluation.class_metrics import row_log_loss
from murho.model.evaluation.row_scores import score_columns
from murho.model.predictive.prediction import DEFAULT_SAMPLES, PredictOptions
from murho.model.progress import ignore_rows

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

    from murho.model.checkpoint.posterior import Posterior
    from murho.model.progress import Advance
    from murho.model.tables.schema import Columns

__all__ = [
    "DEFAULT_REPEATS",
    "MOST_ROWS",
    "SCORES",
    "choose_rows",
    "permutation_importance",
    "screened_features",
]


DEFAULT_REPEATS = 5
MOST_ROWS = 1_000
"""Most rows that are shuffled; of more, some are taken by chance."""
SCORES = ("crps", "log_loss")
"""Measures that need targets: the score of numbers, and that of classes."""

Measured: TypeAlias = "dict[str, NDArray[np.float64]]"
"""Measure → a value of each row, ``[N]`` or ``[N, C]``."""


def choose_rows(count: int, most: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Indices of the rows that are shuffled: all, or so many of ``count`` by chance; ascending."""
    if count <= most:
        return np.arange(count)
    return np.sort(generator.choice(count, most, replace=False))


def permutation_importance(
    posterior: Posterior,
    columns: Columns,
    targets: NDArray[np.float64] | None = None,
    *,
    repeats: int = DEFAULT_REPEATS,
    most_rows: int = MOST_ROWS,
    seed: int | np.random.Generator = 0,
    samples: int = DEFAULT_SAMPLES,
    features: Collection[str] | None = None,
    advance: Advance = ignore_rows,
) -> dict[str, Any]:
    """Shuffle each feature among the rows, and compare the answers with those for the rows as they are.

    Of the answers, the importance is the root mean square of the change, over rows i and repeats r:
    ``sqrt(mean (a'_ir - a_i)^2)``. Of a score, it is the mean increase, ``mean (s'_ir - s_i)`` (Breiman 2001, "Random
    forests", section 10; Fisher, Rudin & Dominici 2019). The draws are the same, so nothing but the cells differs. The
    standard error is that of a mean over rows; for a root mean square it is carried over by the delta method. It is of
    the choice of rows and shuffles, not of the training.

    A shuffled feature no longer fits the others in its row. Features that say the same share their importance, and
    rows that cannot exist make doubt larger.

    Args:
        posterior: The posterior, as it is served.
        columns: Canonical columns of the rows, ``[n]`` each; ``most_rows`` of them are used.
        targets: The target's unit, or indices of classes, ``[n]``; None: the score is left out.
        repeats: Shuffles of each feature, at least 1.
        most_rows: At least 2.
        seed: Seed of the rows and of the shuffles; or their source, from which `choose_rows` has drawn the rows.
        samples: S, the draws behind each answer, at least 1.
        features: Names of the features to shuffle; None: all.
        advance: Called with the number of rows of each finished shuffle.

    Returns:
        ``rows`` used, ``repeats``, ``measures`` in order, and ``features``: for each ``name``, ``kind`` and, of every
        measure, ``value`` and ``standard_error``. The measures are ``mean``, ``crps`` and ``epistemic_std``, in the
        target's unit, or of a classifier ``probabilities``, ``log_loss`` and ``epistemic_entropy``, in nats but for
        the first.

    Raises:
        OptionError: There are fewer than 2 rows, or ``repeats`` is below 1.
    """
    count = len(next(iter(columns.values())))
    if count < 2:
        raise OptionError(f"importance needs at least 2 rows to shuffle among, not {count}")
    if repeats < 1:
        raise OptionError(f"--repeats must be at least 1, not {repeats}")
    generator = np.random.default_rng(seed)
    if count > most_rows:
        chosen = choose_rows(count, most_rows, generator)
        columns, count = select_rows(columns, chosen), most_rows
        targets = None if targets is None else targets[chosen]
    plain = _measure(posterior, columns, targets, samples)
    found = []
    for feature in posterior.schema.features:
        if features is not None and feature.name not in features:
            continue
        moved: dict[str, NDArray[np.float64]] = {name: np.zeros(count) for name in plain}
        for _ in range(repeats):
            shuffled = {**columns, feature.name: columns[feature.name][generator.permutation(count)]}
            for name, values in _measure(posterior, shuffled, targets, samples).items():
                moved[name] += _moved(name, values, plain[name]) / repeats
            advance(count)
        entries = {name: _estimate(name, values) for name, values in moved.items()}
        found.append({"name": feature.name, "kind": str(feature.kind), **entries})
    return {"rows": count, "repeats": repeats, "measures": list(plain), "features": found}


def _measure(posterior: Posterior, columns: Columns, targets: NDArray[np.float64] | None, samples: int) -> Measured:
    """The measures of all rows, in the order in which they are shown."""
    options = PredictOptions(samples=samples, percentiles=())
    if posterior.schema.target.classes is not None:
        named = posterior.predict(columns, options)
        if named.epistemic_entropy is None:
            raise ValueError("an answer with draws has an epistemic entropy")
        losses = {} if targets is None else {"log_loss": row_log_loss(named.probabilities, targets.astype(np.int64))}
        return {"probabilities": named.probabilities, **losses, "epistemic_entropy": named.epistemic_entropy}
    answer = posterior.predict(columns, options)
    if answer.epistemic_std is None:
        raise ValueError("an answer with draws has an epistemic standard deviation")
    scores = {} if targets is None else {"crps": score_columns(posterior, columns, targets, samples).crps}
    return {"mean": answer.mean, **scores, "epistemic_std": answer.epistemic_std}


def _moved(name: str, values: NDArray[np.float64], plain: NDArray[np.float64]) -> NDArray[np.float64]:
    """What a shuffle adds to the average of a row, ``[N]``: the increase of a score, or the square of a change."""
    change = values - plain
    if name in SCORES:
        return change
    squares: NDArray[np.float64] = np.square(change).reshape(len(change), -1).sum(axis=1)
    return squares


def _estimate(name: str, moved: NDArray[np.float64]) -> dict[str, float]:
    mean, error = float(moved.mean()), float(moved.std(ddof=1)) / len(moved) ** 0.5
    if name in SCORES:
        return {"value": mean, "standard_error": error}
    root = mean**0.5
    return {"value": root, "standard_error": error / (2.0 * root) if root > 0.0 else 0.0}


CELLS = 2_000_000
"""Cells of the shuffled rows of all features: they decide how many rows a screen takes. About a second."""
FEWEST_ROWS, MOST_SCREENED_ROWS = 10, 200
CELLS_OF_A_PASS = 500_000
"""Cells of the rows that go through the networks together: some megabytes, however many features there are."""


def screened_features(posterior: Posterior, columns: Columns, most: int, *, seed: int = 0) -> list[str]:
    """The features worth judging by draws: those that move the mu-only networks' answers most.

    Each feature is shuffled once among a few rows. The screen costs no draws, and the rows of many features go through
    the networks in one pass: for 500 features it takes as long as judging a few of them by draws.

    Args:
        posterior: The posterior, as it is served.
        columns: Canonical columns of the rows, ``[n]`` each, n at least 2; of 200 or fewer of them, the fewer the more
            features there are.
        most: Features to return at most.
        seed: Seed of the rows and of the shuffles.

    Returns:
        Names in the order of the schema; all of them, without a screen, where there are no more than ``most``.
    """
    names = [feature.name for feature in posterior.schema.features]
    if len(names) <= most:
        return names
    generator = np.random.default_rng(seed)
    count = len(columns[names[0]])
    rows = min(count, MOST_SCREENED_ROWS, max(FEWEST_ROWS, CELLS // len(names) ** 2))
    few = select_rows({name: columns[name] for name in names}, np.sort(generator.choice(count, rows, replace=False)))
    plain = _answers(posterior, few)
    moved: dict[str, float] = {}
    in_a_pass = max(1, CELLS_OF_A_PASS // (rows * len(names)))
    for start in range(0, len(names), in_a_pass):
        of_pass = names[start : start + in_a_pass]
        stacked = {name: np.tile(column, len(of_pass)) for name, column in few.items()}
        for place, name in enumerate(of_pass):
            stacked[name][place * rows : (place + 1) * rows] = few[name][generator.permutation(rows)]
        changes = _answers(posterior, stacked).reshape(len(of_pass), *plain.shape) - plain
        moved |= dict(zip(of_pass, np.square(changes).reshape(len(of_pass), -1).sum(axis=1).tolist(), strict=True))
    kept = set(sorted(names, key=lambda name: -moved[name])[:most])
    return [name for name in names if name in kept]


def _answers(posterior: Posterior, columns: Columns) -> NDArray[np.float64]:
    """The mu-only mean of each row, ``[B]``, or its probabilities, ``[B, C]``."""
    answer = posterior.predict(columns, PredictOptions(samples=0, percentiles=()))
    found: NDArray[np.float64] = answer.mean if posterior.schema.target.classes is None else answer.probabilities
    return found
