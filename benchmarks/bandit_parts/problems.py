"""Two contextual bandits with known expected rewards: mushrooms to eat or to leave, and a wheel with hidden prizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from murho.model.errors import OptionError, TableError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["FILE", "Problem", "mushrooms", "read_mushrooms", "wheel"]

FILE = "mushroom/agaricus-lepiota.data"
SOURCE = "the file agaricus-lepiota.data of https://archive.ics.uci.edu/dataset/73/mushroom, as it is"
CELLS = 23
"""Cells of a line: the class (``e`` or ``p``), then 22 letters."""
EDIBLE, POISONED = 5.0, -35.0
SAFE, FAIR, PRIZE, NOISE = 1.2, 1.0, 50.0, 0.01


@dataclass(frozen=True, slots=True)
class Problem:
    """T decisions between A arms.

    Attributes:
        name: Name in the tables and files.
        contexts: What an agent knows before a decision, ``[T, D]``.
        rewards: What it gets for each arm, if it chooses it, ``[T, A]``.
        expected: Expectation of these rewards, ``[T, A]``.
        context_length: Typical length of a context.
        reward_range: Limits of all rewards, which agents may know.
    """

    name: str
    contexts: NDArray[np.float32]
    rewards: NDArray[np.float64]
    expected: NDArray[np.float64]
    context_length: float
    reward_range: tuple[float, float]

    def regret(self, arms: NDArray[np.int64]) -> NDArray[np.float64]:
        """Expected reward of the best arm minus that of the chosen one, for each decision, ``[T]``."""
        chosen = np.take_along_axis(self.expected, arms[:, None], axis=1)[:, 0]
        return np.asarray(self.expected.max(axis=1) - chosen)

    @property
    def uniform_regret(self) -> float:
        """Expected cumulative regret of choosing at random."""
        return float((self.expected.max(axis=1) - self.expected.mean(axis=1)).sum())


def read_mushrooms(path: Path) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """The UCI mushrooms, one-hot: a column for each letter of each of the 22 attributes.

    Args:
        path: The file.

    Returns:
        Features ``[8124, 117]`` and whether each mushroom is poisonous, ``[8124]``.

    Raises:
        OptionError: There is no such file; the message names its source.
        TableError: A line has another number of cells, or another class than ``e`` and ``p``.
    """
    if not path.exists():
        raise OptionError(f"{path} does not exist; it is {SOURCE}")
    lines = [line.split(",") for line in path.read_text(encoding="utf-8").split()]
    for number, line in enumerate(lines, start=1):
        if len(line) != CELLS or line[0] not in ("e", "p"):
            raise TableError(f"{path}, line {number}: expected e or p and 22 letters, separated by commas", row=number)
    cells = np.array(lines)
    columns = [cells[:, place] == letter for place in range(1, CELLS) for letter in np.unique(cells[:, place])]
    return np.array(columns, dtype=np.float32).T, np.asarray(cells[:, 0] == "p")


def mushrooms(features: NDArray[np.float32], poisonous: NDArray[np.bool_], decisions: int, seed: int) -> Problem:
    """Leave (arm 0) or eat (arm 1) mushrooms drawn with replacement (Blundell et al. 2015, section 5.3).

    Eating an edible one gives 5, eating a poisonous one -35 or 5, each with probability one half, and leaving 0.
    """
    generator = np.random.default_rng(seed)
    rows = generator.integers(len(features), size=decisions)
    lucky = generator.random(decisions) < 0.5
    bad = poisonous[rows]
    eaten = np.where(bad & ~lucky, POISONED, EDIBLE)
    nothing = np.zeros(decisions)
    return Problem(
        "mushroom",
        features[rows],
        np.stack((nothing, eaten), axis=1),
        np.stack((nothing, np.where(bad, 0.5 * (EDIBLE + POISONED), EDIBLE)), axis=1),
        context_length=float(CELLS - 1) ** 0.5,
        reward_range=(POISONED, EDIBLE),
    )


def wheel(delta: float, decisions: int, seed: int) -> Problem:
    """Five arms, and contexts uniform in the unit disc (Riquelme et al. 2018, section 5.4).

    Within radius delta the first arm is the best: it gives 1.2 everywhere, the others 1. Beyond it one of the others
    gives 50, another one in each quadrant. All have noise of standard deviation 0.01.
    """
    generator = np.random.default_rng([seed, round(1000 * delta)])
    radius, angle = np.sqrt(generator.random(decisions)), 2.0 * np.pi * generator.random(decisions)
    contexts = np.stack((radius * np.cos(angle), radius * np.sin(angle)), axis=1)
    expected = np.full((decisions, 5), FAIR)
    expected[:, 0] = SAFE
    outer = np.flatnonzero(radius > delta)
    quadrant = 1 + 2 * (contexts[outer, 0] <= 0.0) + (contexts[outer, 1] <= 0.0)
    expected[outer, quadrant] = PRIZE
    rewards = expected + generator.normal(scale=NOISE, size=expected.shape)
    return Problem(
        f"wheel-{delta:g}",
        contexts.astype(np.float32),
        rewards,
        expected,
        context_length=0.5**0.5,
        reward_range=(0.0, 52.0),
    )
