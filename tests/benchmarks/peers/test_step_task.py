"""The task of the step benchmark: its rows, its steps, and what a script says of them."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

import numpy as np
import orjson
import pytest

from benchmarks.peers.exchange import drive
from benchmarks.peers.network_task import NOISE
from benchmarks.peers.step_task import INPUTS, Steps, StepTask, step_session

if TYPE_CHECKING:
    from numpy.typing import NDArray

TASK = StepTask((50,), 32, rows=320)


def test_a_task_survives_the_command_line() -> None:
    task = StepTask((64, 64), 128, members=5, rows=640, seed=3)
    assert StepTask.from_json(task.to_json()) == task
    assert task.sizes == [(INPUTS, 64), (64, 64), (64, 1)]


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


def test_a_script_says_how_well_it_learned_and_answers_until_its_input_ends(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare(task: StepTask) -> Steps:
        rows, targets = task.data()
        line, *_ = np.linalg.lstsq(rows, targets, rcond=None)

        def draw(some: NDArray[np.float32]) -> NDArray[np.float32]:
            return some @ line

        return Steps(1, lambda _: None, draw)

    monkeypatch.setattr(sys, "stdin", io.StringIO('{"seconds": 0.0}\n' * 2))
    drive(["step", TASK.to_json()], step=step_session(prepare))
    ready, *answers = (orjson.loads(line) for line in capsys.readouterr().out.splitlines())
    rows, targets = TASK.data()
    residual = targets - rows @ np.linalg.lstsq(rows, targets, rcond=None)[0]
    assert ready["rmse"] == pytest.approx(np.sqrt(np.mean(residual**2)), rel=1e-4)
    assert ready["spread"] == pytest.approx(targets.std(), rel=1e-6)
    assert len(answers) == 2
    assert all(answer["steps"] > 0 and answer["peak"] >= answer["memory"] >= 0 for answer in answers)
