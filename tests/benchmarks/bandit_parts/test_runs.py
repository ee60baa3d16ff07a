"""Runs of agents: kept on disk, summed up, drawn, and the command as a whole."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import orjson
import pytest

from benchmarks import mushroom
from benchmarks.bandit_parts.problems import Problem, wheel
from benchmarks.bandit_parts.report import figure, render, summary
from benchmarks.bandit_parts.runs import curve_of, run
from benchmarks.environments import PeerEnvironmentError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


def test_a_finished_run_is_taken_from_disk_unless_the_problem_changed(tmp_path: Path) -> None:
    calls = []

    def first_arm(problem: Problem, seed: int) -> NDArray[np.int64]:
        calls.append(seed)
        return np.zeros(len(problem.contexts), dtype=np.int64)

    for decisions, fresh in ((30, False), (30, False), (40, False), (40, True)):
        done = run("first", partial(wheel, 0.5, decisions), 7, folder=tmp_path, fresh=fresh, agent=first_arm)
    assert calls == [7, 7, 7]
    problem = wheel(0.5, 40, 7)
    assert done["regret"] == pytest.approx(problem.regret(np.zeros(40, dtype=np.int64)).sum())
    assert done["curve"][-1] == pytest.approx(done["regret"])


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
