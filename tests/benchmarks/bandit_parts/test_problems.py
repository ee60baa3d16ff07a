"""The bandit problems: rewards, regrets and what the oracle gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.bandit_parts.problems import mushrooms, read_mushrooms, wheel
from murho.model.errors import OptionError, TableError

if TYPE_CHECKING:
    from pathlib import Path


def test_mushrooms_are_read_one_hot(tmp_path: Path) -> None:
    path = tmp_path / "agaricus-lepiota.data"
    path.write_text(f"e,{','.join('a' * 22)}\np,{','.join('b' * 22)}\np,{','.join('a' * 21)},?\n", encoding="utf-8")
    features, poisonous = read_mushrooms(path)
    assert poisonous.tolist() == [False, True, True]
    assert features.shape == (3, 2 * 21 + 3)
    assert features.sum(axis=1).tolist() == [22.0] * 3


def test_a_missing_or_broken_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"archive\.ics\.uci\.edu"):
        read_mushrooms(tmp_path / "none.data")
    path = tmp_path / "some.data"
    path.write_text("x,a\n", encoding="utf-8")
    with pytest.raises(TableError, match="line 1"):
        read_mushrooms(path)


def test_the_oracle_eats_the_edible_and_regrets_nothing() -> None:
    poisonous = np.array([False, True])
    problem = mushrooms(np.eye(2, dtype=np.float32), poisonous, 4000, seed=0)
    bad = problem.contexts[:, 1] == 1.0
    oracle = (~bad).astype(np.int64)
    assert problem.regret(oracle).sum() == 0.0
    assert set(problem.regret(1 - oracle)[bad]) == {15.0}
    assert set(problem.regret(1 - oracle)[~bad]) == {5.0}
    assert problem.rewards[bad, 1].mean() == pytest.approx(-15.0, abs=1.5)
    assert set(problem.rewards[~bad, 1]) == {5.0}
    assert problem.uniform_regret == pytest.approx(0.5 * (15.0 * bad.sum() + 5.0 * (~bad).sum()))


@pytest.mark.parametrize("delta", [0.5, 0.95])
def test_the_wheel_has_prizes_beyond_delta_one_in_each_quadrant(delta: float) -> None:
    problem = wheel(delta, 5000, seed=1)
    radius = np.linalg.norm(problem.contexts, axis=1)
    best = problem.expected.argmax(axis=1)
    assert radius.max() <= 1.0 + 1e-6
    assert set(best[radius < delta - 1e-6]) == {0}
    outer = radius > delta + 1e-6
    quadrants = [set(best[outer & (np.sign(problem.contexts) == signs).all(axis=1)]) for signs in ([1, 1], [1, -1])]
    assert quadrants == [{1}, {2}]
    assert outer.mean() == pytest.approx(1.0 - delta**2, abs=0.03)
    low, high = problem.reward_range
    assert low < problem.rewards.min() < problem.rewards.max() < high


def test_the_seed_decides_the_problem() -> None:
    one, same, other = (wheel(0.5, 10, seed) for seed in (1, 1, 2))
    assert np.array_equal(one.rewards, same.rewards)
    assert not np.array_equal(one.rewards, other.rewards)
