"""Bandits: problems with known rewards, agents that learn them, and what is printed and kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import orjson
import pytest

from benchmarks import mushroom
from benchmarks.mushroom import AGENTS, Problem, linear_thompson, mushrooms

if TYPE_CHECKING:
    from pathlib import Path


def small(decisions: int) -> Problem:
    """Two kinds of mushroom, which their first input tells apart."""
    return mushrooms(np.eye(2, dtype=np.float32), np.array([False, True]), decisions, seed=3)


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_decides_for_every_context_and_its_seed_decides_for_it(name: str) -> None:
    play, problem = AGENTS[name][1], small(12)
    arms = play(problem, 1)
    assert arms.shape == (12,)
    assert set(arms) <= {0, 1}
    assert np.array_equal(arms, play(problem, 1))


def test_linear_thompson_sampling_learns_what_is_linear_and_leaves_an_arm_that_never_pays() -> None:
    problem = small(400)
    regret = problem.regret(linear_thompson(problem, 0))
    assert regret[:100].mean() > 4.0 * regret[-100:].mean()
    generator = np.random.default_rng(0)
    contexts = generator.normal(size=(500, 1)).astype(np.float32)
    rewards = np.stack((np.full(500, -100.0), 2.0 + contexts[:, 0] + generator.normal(size=500)), axis=1)
    assert (linear_thompson(Problem(contexts, rewards, rewards, 1.0, (-101.0, 10.0)), 0, sigma=1.0)[50:] == 1).all()


def test_the_command_keeps_its_runs_and_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--problems", "wheel-0.5", "--seeds", "2", "--decisions", "50", "--data", str(tmp_path)]
    words += ["--output", str(tmp_path)]
    assert mushroom.main([*words, "--agents", "uniform,linear"]) == 0
    assert "linear Thompson sampling" in capsys.readouterr().out
    assert mushroom.main([*words, "--agents", "uniform"]) == 0
    first, second = (orjson.loads(line)["problems"] for line in (tmp_path / "results.jsonl").read_bytes().splitlines())
    assert first["wheel-0.5"]["uniform"] == second["wheel-0.5"]["uniform"]
    assert len(first["wheel-0.5"]["linear"]) == 2
