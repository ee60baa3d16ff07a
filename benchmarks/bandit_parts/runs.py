"""Runs agents on problems. Finished runs are kept on disk, so that an interrupted command continues."""

from __future__ import annotations

import base64
import hashlib
import io
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from benchmarks.bandit_parts.agents import options_for
from benchmarks.results import write_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from benchmarks.bandit_parts.problems import Problem
    from benchmarks.processes import SystemProcess

__all__ = ["CURVE_POINTS", "curve_of", "finished_run", "peer_agent", "run"]

CURVE_POINTS = 500
"""Points of a kept curve of cumulative regret; its last one is the whole regret."""


def finished_run(name: str, problem: Problem, seed: int, folder: Path) -> dict[str, Any] | None:
    """An agent's run on a problem, if it was finished before with the same options; see `run`."""
    path = _path(name, problem, seed, folder)
    if not path.exists():
        return None
    kept: dict[str, Any] = orjson.loads(path.read_bytes())
    return kept if kept["key"] == _key(name, problem, seed) else None


def run(
    name: str, problem: Problem, seed: int, folder: Path, agent: Callable[[Problem, int], NDArray[np.int64]]
) -> dict[str, Any]:
    """Runs an agent on a problem, and keeps the run on disk.

    Args:
        name: Name of the agent.
        problem: The problem of the seed.
        seed: Seed of the agent.
        folder: Of the finished runs.
        agent: The agent.

    Returns:
        ``regret``; ``uniform``, the expected regret of choosing at random; ``curve``, from `curve_of`; ``seconds``.
    """
    began = time.perf_counter()
    arms = agent(problem, seed)
    seconds = time.perf_counter() - began
    regret = problem.regret(arms)
    done = {
        "key": _key(name, problem, seed),
        "agent": name,
        "problem": problem.name,
        "seed": seed,
        "regret": float(regret.sum()),
        "uniform": problem.uniform_regret,
        "curve": curve_of(regret).tolist(),
        "seconds": round(seconds, 1),
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_json(_path(name, problem, seed, folder), done)
    return done


def _path(name: str, problem: Problem, seed: int, folder: Path) -> Path:
    return folder / f"{problem.name}-{name}-{seed}.json"


def _key(name: str, problem: Problem, seed: int) -> str:
    """Hash of what a run depends on, but for the code."""
    about = [name, problem.name, len(problem.contexts), seed, asdict(options_for(problem, seed))]
    return hashlib.sha256(orjson.dumps(about)).hexdigest()[:16]


def curve_of(regret: NDArray[np.float64]) -> NDArray[np.float64]:
    """Cumulative regret after evenly spaced numbers of decisions, at most `CURVE_POINTS`, the last one included."""
    points = min(CURVE_POINTS, len(regret))
    ends = np.round(np.linspace(0, len(regret), points + 1)[1:]).astype(int) - 1
    return np.asarray(regret.cumsum()[ends])


def peer_agent(process: SystemProcess) -> Callable[[Problem, int], NDArray[np.int64]]:
    """A peer in a process of its own, as an agent."""

    def play(problem: Problem, seed: int) -> NDArray[np.int64]:
        file = io.BytesIO()
        np.savez(file, contexts=problem.contexts, rewards=problem.rewards)
        request = {
            "problem": base64.b64encode(file.getvalue()).decode(),
            "range": list(problem.reward_range),
            "seed": seed,
        }
        return np.array(process.ask(request)["arms"], dtype=np.int64)

    return play
