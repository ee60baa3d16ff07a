"""Answers of the same networks in every system, and what they are held against."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
import pytest

from benchmarks import engine, training
from benchmarks.engine import deviations, disagreement, exact_answers
from benchmarks.peers.murho_predictions import prepare
from benchmarks.peers.networks import EngineTask

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("noise", ["fixed", "heteroscedastic", "mixture"])
def test_murhos_answers_are_those_of_double_precision_and_of_other_draws(noise: str) -> None:
    task = EngineTask((16, 16), noise=noise)
    rows = task.rows_of(20)
    answer = prepare(task)["call"](rows, 512)
    found = deviations(answer, exact_answers(task, rows, 512))
    assert set(found) == {"mean", "std", "percentiles"}
    assert max(found.values()) < 1e-5
    assert max(disagreement([answer], 512, exact_answers(task, rows, engine.REFERENCE_DRAWS, seed=1))) < 3.0


@pytest.mark.slow
def test_the_command_runs_without_any_peer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--systems", "", "--rounds", "1", "--output", str(tmp_path)]
    assert engine.main([*words, "--nets", "1x4", "--batches", "1,2", "--samples", "8"]) == 0
    assert "Murho, mixture" in capsys.readouterr().out
    first = orjson.loads((tmp_path / "results.jsonl").read_bytes())
    assert [cell["systems"][engine.REFERENCE]["agrees"] for cell in first["cells"]] == [True, True]


@pytest.mark.slow
def test_the_real_command_is_run() -> None:
    report = training.measure(60, 2, budget=0.1)
    assert report["peak"][0] > 50 << 20  # PyTorch alone takes more
    assert report["processor"][0] > 0.0
    assert 0.9 * report["noise"] < report["rmse"] < 5.0 * report["noise"]
