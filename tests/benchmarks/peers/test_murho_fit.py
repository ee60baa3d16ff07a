"""Murho's side of the step benchmark."""

from __future__ import annotations

import numpy as np

from benchmarks.peers.murho_fit import Murho
from benchmarks.peers.step_task import StepTask


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
