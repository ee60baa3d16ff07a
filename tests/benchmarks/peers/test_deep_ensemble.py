"""A real peer, in a process of its own: the one that needs PyTorch alone."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.peers import peers_of
from benchmarks.peers.table_task import Answer, Features, TableTask
from benchmarks.processes import SystemProcess
from benchmarks.systems import System


@pytest.mark.slow
def test_it_learns_a_line_and_answers_in_rising_quantiles() -> None:
    numbers = np.random.default_rng(0).normal(size=(60, 1))
    features, target = Features(numbers, np.zeros((60, 1), dtype=np.int64)), 3.0 * numbers[:, 0] + 10.0
    training, test = (features.take(np.arange(60) // 40 == part) for part in (0, 1))
    task = TableTask(training, target[:40], np.arange(40) < 10, test, np.array([0.05, 0.5, 0.95]), seed=0)
    command = System(peers_of("table")["deep-ensemble"]).command("{}")
    with SystemProcess("deep-ensemble", command) as process:
        said = process.ask({"task": task.packed()})
    answer = Answer.unpacked(said["answer"])
    assert said["seconds"] > 0.0
    assert answer.raw is not None
    assert answer.raw.quantiles is not None
    assert answer.raw.quantiles.shape == (20, 3)
    assert (np.diff(answer.raw.quantiles, axis=1) > 0.0).all()
    assert np.sqrt(np.mean((answer.raw.mean - target[40:]) ** 2)) < 0.5 * target.std()
    assert len(answer.inner.mean) == 10
