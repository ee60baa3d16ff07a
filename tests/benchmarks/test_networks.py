"""Steps and answers of the same networks in every system, and what they are held against."""

import numpy as np
import pytest

from benchmarks import engine
from benchmarks.engine import deviations, disagreement, exact_answers
from benchmarks.peers.murho_fit import Murho
from benchmarks.peers.murho_predictions import prepare
from benchmarks.peers.networks import EngineTask, StepTask

TASK = EngineTask((6, 5))


def test_murho_takes_whole_epochs_and_learns() -> None:
    task = StepTask((50,), members=2, rows=640)
    rows, targets = task.data()
    system = Murho(task)
    assert system.take(steps=1)["steps"] == 10  # each of two members sees half of the rows
    before = np.sqrt(np.mean((system.predict(rows) - targets) ** 2))
    assert system.take(steps=600)["steps"] == 600
    assert np.sqrt(np.mean((system.predict(rows) - targets) ** 2)) < 0.4 < before


@pytest.mark.parametrize("noise", ["fixed", "heteroscedastic", "mixture"])
def test_murhos_answers_are_those_of_double_precision_and_of_other_draws(noise: str) -> None:
    task = EngineTask((16, 16), noise=noise)
    rows = task.rows_of(20)
    answer = prepare(task)["call"](rows, 512)
    found = deviations(answer, exact_answers(task, rows, 512))
    assert set(found) == {"mean", "std", "percentiles"}
    assert max(found.values()) < 1e-5
    assert max(disagreement([answer], 512, exact_answers(task, rows, engine.REFERENCE_DRAWS, seed=1))) < 3.0
