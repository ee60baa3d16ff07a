"""Permutation importance: how far the answers and their scores move when the cells of one feature are shuffled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from murho.model.engines.prediction import DEFAULT_SAMPLES, PredictOptions
from murho.model.errors import OptionError
from murho.model.evaluation.class_metrics import row_log_loss
from murho.model.evaluation.evaluate import score_columns
from murho.model.fitting.training_data import select_rows
from murho.model.runtime.row_progress import ignore_rows

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

    from murho.model.data.schema import Columns
    from murho.model.posterior.posterior import Posterior
    from murho.model.runtime.row_progress import Advance

__all__ = ["DEFAULT_REPEATS", "MOST_ROWS", "SCORES", "choose_rows", "permutation_importance"]

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
    scores = {} if targets is None else {"crps": score_columns(posterior, columns, targets, samples, None).crps}
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
