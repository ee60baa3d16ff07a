"""The benchmark of optimiser steps: tasks, processes that take turns, what is made of their answers."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import orjson
import pytest

from benchmarks import environments
from benchmarks.step_peers import ENVIRONMENTS, STEP_PEERS, processes
from benchmarks.peers.step_task import INPUTS, NOISE, Steps, StepTask, drive
from benchmarks.peers.murho_fit import Murho
from benchmarks.processes import StepError, SystemProcess
from benchmarks.steps import CASES, Measured, System, main, measure, ratio
from tests.benchmarks.stand_ins import make_package, no_tfp, write_script

if TYPE_CHECKING:
    from numpy.typing import NDArray

TASK = StepTask((50,), 32, rows=320)


def test_a_task_survives_the_command_line() -> None:
    task = StepTask((64, 64), 128, members=5, rows=640, seed=3)
    assert StepTask.from_json(task.to_json()) == task
    assert task.layers == [(INPUTS, 64), (64, 64), (64, 1)]


def test_data_are_standardised_and_the_same_for_everybody() -> None:
    rows, targets = StepTask((50,), 32, rows=20_000).data()
    again = StepTask((256, 256), 128, members=5, rows=20_000).data()
    np.testing.assert_array_equal(rows, again[0])
    np.testing.assert_array_equal(targets, again[1])
    assert targets.mean() == pytest.approx(0.0, abs=0.02)
    assert targets.std() == pytest.approx(1.0, abs=0.02)
    clean = rows[:, 0] - 0.5 * rows[:, 1] + np.sin(2.0 * rows[:, 2])
    assert np.corrcoef(clean, targets)[0, 1] ** 2 == pytest.approx(1.0 - NOISE**2, abs=0.01)


def test_minibatches_are_full_and_share_no_row() -> None:
    minibatches = StepTask((50,), 48, rows=320).minibatches()
    assert [len(targets) for _, targets in minibatches] == [48] * 6
    assert len(np.unique(np.concatenate([rows for rows, _ in minibatches]), axis=0)) == 288


def test_steps_go_round_the_minibatches_and_are_all_counted() -> None:
    taken: list[int] = []
    finished: list[int] = []
    system = Steps(3, taken.append, lambda rows: rows[:, :1], lambda: finished.append(len(taken)))
    timing = system.take(steps=25)
    assert timing.steps == len(taken) == finished[-1] >= 25
    assert taken[:5] == [0, 1, 2, 0, 1]
    later = system.take(seconds=0.0)
    assert later.steps == len(taken) - timing.steps > 0
    assert taken[timing.steps] == timing.steps % 3


def test_murho_takes_whole_epochs_and_learns() -> None:
    task = StepTask((50,), 32, members=2, rows=640)
    rows, targets = task.data()
    system = Murho(task)
    first = system.take(steps=1)
    assert first.steps == 10  # each of two members sees half of the rows
    before = np.sqrt(np.mean((system.predict(rows) - targets) ** 2))
    assert system.take(steps=600).steps == 600
    after = np.sqrt(np.mean((system.predict(rows) - targets) ** 2))
    assert after < 0.4 < before


def test_a_script_says_how_well_it_learned_and_answers_until_its_input_ends(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare(task: StepTask) -> Steps:
        rows, targets = task.data()
        line, *_ = np.linalg.lstsq(rows, targets, rcond=None)

        def draw(some: NDArray[np.float32]) -> NDArray[np.float32]:
            return some @ line

        return Steps(1, lambda _: None, draw)

    monkeypatch.setattr(sys, "stdin", io.StringIO("0.0\n0.0\n"))
    drive(prepare, [TASK.to_json()])
    ready, *answers = (orjson.loads(line) for line in capsys.readouterr().out.splitlines())
    rows, targets = TASK.data()
    residual = targets - rows @ np.linalg.lstsq(rows, targets, rcond=None)[0]
    assert ready["rmse"] == pytest.approx(np.sqrt(np.mean(residual**2)), rel=1e-4)
    assert ready["spread"] == pytest.approx(targets.std(), rel=1e-6)
    assert len(answers) == 2
    assert all(answer["steps"] > 0 and answer["peak"] >= answer["memory"] >= 0 for answer in answers)


ANSWER = (
    '{{"steps": 10 * task["members"], "wall": {wall}, "processor": 0.5, "memory": 3 << 20, "peak": 4 << 20, '
    '"threads": os.environ["OMP_NUM_THREADS"]}}'
)


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    package = make_package(tmp_path, "step_peers")
    for name, dies, wall, rmse in (
        ("steady", None, 2.0, 0.2),
        ("slow", None, 3.0, 0.9),
        ("stillborn", "at once", 1.0, 0.2),
        ("fickle", "later", 1.0, 0.2),
    ):
        ready = f'{{"rmse": {rmse}, "spread": 1.0, "memory": 1, "peak": 2}}'
        write_script(package, name, ready=ready, answer=ANSWER.format(wall=wall), dies=dies)
    (package / "silent.py").write_text("import time\ntime.sleep(60)\n", encoding="utf-8")
    monkeypatch.setattr(processes, "ROOT", tmp_path)
    return package


def _system(script: str, members: int = 1) -> System:
    return System(script, script, Path(sys.executable), script, members)


def test_a_process_answers_each_request_and_computes_with_one_thread(scripts: Path) -> None:
    with SystemProcess("steady", Path(sys.executable), "steady", TASK) as process:
        assert process.ready["rmse"] == 0.2
        answers = [process.ask("0.1") for _ in range(3)]
    assert [answer["steps"] for answer in answers] == [10, 10, 10]
    assert {answer["threads"] for answer in answers} == {"1"}
    assert os.environ.get("XLA_FLAGS") is None


def test_what_a_process_said_last_is_in_the_error(scripts: Path) -> None:
    with pytest.raises(StepError, match=r"stillborn ended with status 1.*\nout of luck"):
        SystemProcess("stillborn", Path(sys.executable), "stillborn", TASK)


def test_a_process_that_does_not_answer_is_ended(scripts: Path) -> None:
    with pytest.raises(StepError, match="silent ended with status"):
        SystemProcess("silent", Path(sys.executable), "silent", TASK, limit=0.5)


def test_systems_that_fail_are_left_out_and_the_others_measured(scripts: Path) -> None:
    systems = [_system("stillborn"), _system("steady"), _system("fickle"), _system("slow", members=5)]
    found, failed = measure(CASES["1x50-32"], systems, rounds=3, seconds=0.0)
    assert list(found) == ["steady", "slow"]
    assert found["steady"].wall == pytest.approx([2e5] * 3)
    assert found["slow"].wall == pytest.approx([6e4] * 3)
    assert found["steady"].processor == pytest.approx([5e4] * 3)
    assert found["steady"].learns
    assert not found["slow"].learns
    assert found["steady"].memory == 3 << 20
    assert "out of luck" in failed["stillborn"]
    assert "lost patience" in failed["fickle"]


def test_ratios_are_of_times_a_member_in_the_same_round() -> None:
    murho = Measured(5, [1000.0, 3000.0, 2000.0], [1.0] * 3, 0.2, 1, 1)
    peer = Measured(1, [2000.0, 9000.0, 6000.0], [1.0] * 3, 0.2, 1, 1)
    assert ratio(peer, murho) == pytest.approx(15.0)  # of 10, 15 and 15
    assert ratio(murho, murho) == 1.0


def test_the_command_prints_a_table_a_case_and_keeps_the_numbers(
    scripts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(environments, "environment", no_tfp)
    (scripts / "murho_fit.py").write_text(
        (scripts / "steady.py").read_text(encoding="utf-8"), encoding="utf-8"
    )
    (scripts / "torchbnn_layers.py").write_text(
        (scripts / "slow.py").read_text(encoding="utf-8"), encoding="utf-8"
    )
    output = tmp_path / "results"
    command = ["--systems", "torchbnn,tfp", "--cases", "1x50-32,2x64-128", "--rounds", "2"]
    assert main([*command, "--output", str(output)]) == 0
    said = capsys.readouterr().out
    assert "tfp is left out: no network here" in said
    assert "8-64-64-1, 128 rows a step" in said
    assert "torchbnn (does not learn)" in said
    kept = orjson.loads((output / "steps.json").read_bytes())
    assert [case["case"] for case in kept["cases"]] == ["1x50-32", "2x64-128"]
    assert kept["cases"][0]["ratios"]["torchbnn"] == pytest.approx(3.0 / 10 / (2.0 / 50 / 5))
    assert kept["left_out"] == {"tfp": "no network here"}
    assert kept["requirements"] == {"torchbnn": list(ENVIRONMENTS["step-torchbnn"])}
    assert kept["rounds"] == 2


@pytest.mark.parametrize("options", [["--systems", "jags"], ["--cases", "3x3-3"], ["--rounds", "0"]])
def test_unknown_choices_are_refused(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(options)
    assert options[0].removeprefix("--").rstrip("s") in capsys.readouterr().err


def test_every_peer_has_a_script_and_a_pinned_environment() -> None:
    folder = Path(processes.__file__).parent
    for peer in STEP_PEERS.values():
        assert (folder / f"{peer.script}.py").exists()
        requirements = ENVIRONMENTS[peer.environment]
        assert all("==" in requirement for requirement in requirements)
        assert peer.pytorch == ("torch==2.13.0" in requirements)
