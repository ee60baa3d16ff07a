"""Runs of agents: kept on disk, summed up, drawn, and the command as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import orjson
import pytest

from benchmarks import mushroom
from benchmarks.bandit_parts.problems import Problem, wheel
from benchmarks.bandit_parts.report import figure, render, summary
from benchmarks.bandit_parts.runs import curve_of, finished_run, run
from benchmarks.environments import PeerEnvironmentError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


def first_arm(problem: Problem, seed: int) -> NDArray[np.int64]:
    """An agent that always chooses arm 0."""
    return np.zeros(len(problem.contexts), dtype=np.int64)


def test_a_finished_run_is_found_on_disk_unless_the_problem_changed(tmp_path: Path) -> None:
    problem = wheel(0.5, 30, 7)
    assert finished_run("first", problem, 7, tmp_path) is None
    done = run("first", problem, 7, tmp_path, first_arm)
    assert done["regret"] == pytest.approx(problem.regret(first_arm(problem, 7)).sum())
    assert done["curve"][-1] == pytest.approx(done["regret"])
    assert finished_run("first", problem, 7, tmp_path) == done
    assert finished_run("first", wheel(0.5, 40, 7), 7, tmp_path) is None


def test_finished_runs_are_shown_without_running_any(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("uniform", wheel(0.5, 30, 1), 1, tmp_path / "bandits", first_arm)
    words = ["--problems", "wheel-0.5", "--seeds", "3", "--decisions", "30", "--only-finished"]
    assert mushroom.main(["--data", str(tmp_path), "--output", str(tmp_path), *words]) == 0
    written = orjson.loads((tmp_path / "bandits.json").read_bytes())
    assert {name: row["seeds"] for name, row in written["problems"]["wheel-0.5"].items()} == {"uniform": 1}
    assert "linear Thompson" not in capsys.readouterr().out


def test_a_curve_ends_with_the_whole_regret() -> None:
    curve = curve_of(np.ones(1250))
    assert len(curve) == 500
    assert curve[[0, 1, -1]].tolist() == [2.0, 5.0, 1250.0]


def test_the_summary_has_mean_and_standard_error() -> None:
    runs = [{"regret": value, "uniform": 100.0, "seconds": 1.0, "curve": [value / 2, value]} for value in (10.0, 20.0)]
    found = summary(runs)
    assert (found["regret"], found["error"], found["share_of_uniform"]) == pytest.approx((15.0, 5.0, 0.15))
    text = render("title", {"linear": found, "murho": summary(runs[:1])}, {"linear": "L", "murho": "M"})
    assert "15 ± 5" in text
    assert "0.67" in text
    specification = figure("title", {"linear": runs, "murho": runs[:1]}, {"linear": "L", "murho": "M"}, 1000)
    assert specification["title"]["text"] == "title"


def test_the_command_prints_and_draws_and_names_peers_that_it_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object, **__: object) -> None:
        raise PeerEnvironmentError("no network")

    monkeypatch.setattr("benchmarks.systems.environment", none)
    words = ["--problems", "wheel-0.5", "--agents", "uniform,linear,squarecb", "--seeds", "2", "--decisions", "50"]
    assert mushroom.main(["--data", str(tmp_path), "--output", str(tmp_path), *words]) == 0
    printed = capsys.readouterr()
    assert "without squarecb: no network" in printed.err
    assert "linear Thompson sampling" in printed.out
    assert (tmp_path / "wheel-0.5.png").stat().st_size > 1000
    written = orjson.loads((tmp_path / "bandits.json").read_bytes())
    assert set(written["problems"]["wheel-0.5"]) == {"uniform", "linear"}


def test_the_command_names_the_data_that_it_lacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert mushroom.main(["--data", str(tmp_path), "--problems", "mushroom"]) == 1
    assert "agaricus-lepiota" in capsys.readouterr().err
