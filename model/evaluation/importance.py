"""Which features matter, over rows: permutation importance, and a cheap screen before it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from murho.model.arrays import Doubles, Ints
from murho.model.checkpoint.posterior import Posterior
from murho.model.evaluation.class_scores import row_log_loss
from murho.model.evaluation.judging import judge_columns
from murho.model.predictive.prediction import DEFAULT_SAMPLES, PredictOptions
from murho.model.progress import Advance, ignore_rows
from murho.model.tables.schema import Columns, count_rows, select_rows

DEFAULT_REPEATS = 5
MOST_ROWS = 1_000
"""Most rows that are shuffled; of more, some are taken by chance."""
SCORES = ("crps", "log_loss")
"""Measures that need targets: the score of numbers, and that of classes."""
CELLS_OF_A_PASS = 500_000
"""Cells of the shuffled rows that go through the networks together: some megabytes, however many features there are."""


def choose_rows(count: int, most: int, generator: np.random.Generator) -> Ints:
    """Return indices of the rows that are shuffled: all, or so many of ``count`` by chance; ascending."""
    if count <= most:
        return np.arange(count)
    return np.sort(generator.choice(count, most, replace=False))


def permutation_importance(
    posterior: Posterior,
    columns: Columns,
    targets: Doubles | None = None,
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
        columns: Canonical columns of the rows, ``[n]`` each, n at least 2; ``most_rows`` of them are used.
        targets: The target's unit, or indices of classes, ``[n]``; None: the score is left out.
        repeats: Shuffles of each feature, at least 1.
        most_rows: At least 2.
        seed: Seed of the rows and of the shuffles; or their source, from which `choose_rows` has drawn the rows.
        samples: S, the draws behind each answer; 0: of the mu-only networks the answers alone are measured.
        features: Names of the features to shuffle; None: all.
        advance: Called with the number of rows of finished shuffles.

    Returns:
        ``rows`` used, ``repeats``, ``measures`` in order, and ``features``: for each ``name``, ``kind`` and, of every
        measure, ``value`` and ``standard_error``. The measures are ``mean``, ``crps`` and ``epistemic_std``, in the
        target's unit, or of a classifier ``probabilities``, ``log_loss`` and ``epistemic_entropy``, in nats but for
        the first.
    """
    count = count_rows(columns)
    generator = np.random.default_rng(seed)
    chosen = choose_rows(count, most_rows, generator)
    columns, count = select_rows(columns, chosen), len(chosen)
    truth = None if targets is None else targets[chosen]
    plain = _measure(posterior, columns, truth, samples)
    judged = [feature for feature in posterior.schema.features if features is None or feature.name in features]
    shuffles = [feature.name for feature in judged for _ in range(repeats)]
    moved: dict[str, list[Doubles]] = {name: [] for name in plain}
    # Answers of draws depend on their batch in the last digits: without a change of a cell they must not change either.
    in_a_pass = 1 if samples else max(1, CELLS_OF_A_PASS // (count * len(columns)))
    for start in range(0, len(shuffles), in_a_pass):
        of_pass = shuffles[start : start + in_a_pass]
        stacked = {name: np.tile(column, len(of_pass)) for name, column in columns.items()}
        for place, name in enumerate(of_pass):
            stacked[name][place * count : (place + 1) * count] = columns[name][generator.permutation(count)]
        of_shuffles = None if truth is None else np.tile(truth, len(of_pass))
        for name, values in _measure(posterior, stacked, of_shuffles, samples).items():
            change = (values.reshape(len(of_pass), *plain[name].shape) - plain[name]).reshape(len(of_pass), count, -1)
            moved[name].append((change if name in SCORES else np.square(change)).sum(axis=2))
        advance(count * len(of_pass))
    means = {name: np.concatenate(of).reshape(-1, repeats, count).mean(axis=1) for name, of in moved.items()}
    found = [
        {"name": of.name, "kind": str(of.kind), **{name: _estimate(name, means[name][place]) for name in means}}
        for place, of in enumerate(judged)
    ]
    return {"rows": count, "repeats": repeats, "measures": list(plain), "features": found}


def _measure(posterior: Posterior, columns: Columns, targets: Doubles | None, samples: int) -> dict[str, Doubles]:
    """Measure → a value of each row, ``[N]`` or ``[N, C]``, in the order in which they are shown."""
    answer: Any = posterior.predict(columns, PredictOptions(samples=samples, percentiles=()))
    if posterior.schema.target.classes is not None:
        measured = {"probabilities": answer.probabilities}
        if targets is not None:
            measured["log_loss"] = row_log_loss(answer.probabilities, targets.astype(np.int64))
        doubt = {"epistemic_entropy": answer.epistemic_entropy}
    else:
        measured = {"mean": answer.mean}
        if targets is not None:
            judged: Any = judge_columns(posterior, columns, targets, samples)
            measured["crps"] = judged.values["crps"]
        doubt = {"epistemic_std": answer.epistemic_std}
    return measured | (doubt if samples else {})


def _estimate(name: str, moved: Doubles) -> dict[str, float]:
    """Return the importance by a measure, and its standard error, from what shuffles add to the average of each row."""
    mean, error = float(moved.mean()), float(moved.std(ddof=1)) / len(moved) ** 0.5
    if name not in SCORES:
        mean, error = mean**0.5, error / max(2.0 * mean**0.5, 1e-300)
    return {"value": mean, "standard_error": error}


CELLS = 2_000_000
"""Cells of the shuffled rows of all features: they decide how many rows a screen takes. About a second."""
FEWEST_ROWS, MOST_SCREENED_ROWS = 10, 200


def screen_features(posterior: Posterior, columns: Columns, most: int) -> list[str]:
    """Return the features worth judging by draws: those whose shuffle among a few rows moves the mu-only networks most.

    Args:
        posterior: The posterior, as it is served.
        columns: Canonical columns of the rows, ``[n]`` each, n at least 2; of 200 or fewer of them, the fewer the more
            features there are.
        most: Features to return at most.

    Returns:
        Names, those that move them most first; all of them, without a screen, where there are no more than ``most``.
    """
    names = [feature.name for feature in posterior.schema.features]
    if len(names) <= most:
        return names
    rows = min(MOST_SCREENED_ROWS, max(FEWEST_ROWS, CELLS // len(names) ** 2))
    found = permutation_importance(posterior, columns, repeats=1, most_rows=rows, samples=0)
    moved = {feature["name"]: feature[found["measures"][0]]["value"] for feature in found["features"]}
    return sorted(names, key=lambda name: -moved[name])[:most]
