"""A cheap screen before permutation importance: the features whose shuffle moves the mu-only networks most."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from murho.model.engines.prediction import PredictOptions
from murho.model.fitting.training_data import select_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from murho.model.data.schema import Columns
    from murho.model.posterior.posterior import Posterior

__all__ = ["screened_features"]

CELLS = 2_000_000
"""Cells of the shuffled rows of all features: they decide how many rows a screen takes. About a second."""
FEWEST_ROWS, MOST_ROWS = 10, 200
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
    rows = min(count, MOST_ROWS, max(FEWEST_ROWS, CELLS // len(names) ** 2))
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
