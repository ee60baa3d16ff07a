"""Bandits: problems with known rewards, agents that learn them, and what is printed and kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pytest

from benchmarks import mushroom
from benchmarks.mushroom import Problem, linear_thompson, mushrooms, wheel
from benchmarks.processes import ProcessError

if TYPE_CHECKING:
    from pathlib import Path


def small(decisions: int) -> Problem:
    """Two kinds of mushroom, which their first input tells apart."""
    return mushrooms(np.eye(2, dtype=np.float32), np.array([False, True]), decisions, seed=3)


def test_linear_thompson_sampling_learns_what_is_linear_and_leaves_an_arm_that_never_pays() -> None:
    problem = small(400)
    regret = problem.regret(linear_thompson(problem, 0))
    assert regret[:100].mean() > 4.0 * regret[-100:].mean()
    generator = np.random.default_rng(0)
    contexts = generator.normal(size=(500, 1)).astype(np.float32)
    rewards = np.stack((np.full(500, -100.0), 2.0 + contexts[:, 0] + generator.normal(size=500)), axis=1)
    assert (linear_thompson(Problem(contexts, rewards, rewards, 1.0, (-101.0, 10.0)), 0, sigma=1.0)[50:] == 1).all()


def test_the_oracle_eats_the_edible_and_regrets_nothing() -> None:
    problem = mushrooms(np.eye(2, dtype=np.float32), np.array([False, True]), 4000, seed=0)
    bad = problem.contexts[:, 1] == 1.0
    oracle = (~bad).astype(np.int64)
    assert problem.regret(oracle).sum() == 0.0
    assert set(problem.regret(1 - oracle)[bad]) == {15.0}
    assert set(problem.regret(1 - oracle)[~bad]) == {5.0}
    assert problem.rewards[bad, 1].mean() == pytest.approx(-15.0, abs=1.5)
    assert set(problem.rewards[~bad, 1]) == {5.0}


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


def test_the_command_keeps_its_runs_prints_and_names_peers_that_it_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object, **__: object) -> Any:
        raise ProcessError("no network")

    monkeypatch.setattr(mushroom, "SystemProcess", none)
    words = ["--problems", "wheel-0.5", "--seeds", "2", "--decisions", "50", "--data", str(tmp_path)]
    words += ["--output", str(tmp_path)]
    assert mushroom.main([*words, "--agents", "uniform,linear,squarecb"]) == 0
    printed = capsys.readouterr()
    assert "without squarecb: no network" in printed.err
    assert "linear Thompson sampling" in printed.out
    assert mushroom.main([*words, "--agents", "uniform,linear-known-noise", "--only-finished"]) == 0
    assert "noise 5" not in capsys.readouterr().out
    first, second = (orjson.loads(line)["problems"] for line in (tmp_path / "results.jsonl").read_bytes().splitlines())
    assert first["wheel-0.5"]["uniform"] == second["wheel-0.5"]["uniform"]
    assert len(first["wheel-0.5"]["linear"]) == 2
