"""The task of the table benchmark: tasks and answers as they go from process to process."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

import numpy as np
import orjson

from benchmarks.distributions import LEVELS, normal_quantiles
from benchmarks.peers.exchange import drive
from benchmarks.peers.table_task import Answer, Features, Predictive, TableTask, spread, table_session

if TYPE_CHECKING:
    import pytest

TASK = TableTask(
    training=Features(np.array([[1.0], [np.nan], [3.0]]), np.array([[0, 1], [1, -1], [0, 0]])),
    target=np.array([0.1, 0.2, 0.4]),
    inner=np.array([False, True, False]),
    test=Features(np.array([[2.0], [5.0]]), np.array([[0, 3], [-1, 1]])),
    levels=np.array([0.1, 0.9]),
    seed=5,
)


def test_a_task_arrives_as_it_was() -> None:
    arrived = TableTask.unpacked(TASK.packed())
    for mine, its in ((TASK.training, arrived.training), (TASK.test, arrived.test)):
        np.testing.assert_array_equal(mine.numbers, its.numbers)
        np.testing.assert_array_equal(mine.categories, its.categories)
    np.testing.assert_array_equal(arrived.inner, TASK.inner)
    assert (arrived.seed, arrived.inner.dtype.kind, arrived.target.tolist()) == (5, "b", TASK.target.tolist())


def test_a_script_is_told_its_options_and_answers_each_task(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(task: TableTask, variant: str) -> Answer:
        quantiles = Predictive(np.zeros(2), np.full((2, 2), float(task.seed)))
        normals = Predictive(np.full(1, task.target.mean()), std=np.ones(1))
        return Answer(None, quantiles, normals, rounds=len(variant))

    monkeypatch.setattr(sys, "stdin", io.StringIO(f'{{"task": "{TASK.packed()}"}}\n' * 2))
    drive(["table", '{"variant": "four"}'], table=table_session(answer))
    ready, *answers = (orjson.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (ready, len(answers)) == ({}, 2)
    assert answers[0]["seconds"] >= 0.0
    arrived = Answer.unpacked(answers[1]["answer"])
    assert arrived.raw is None
    assert arrived.rounds == 4
    assert arrived.base.std is None
    np.testing.assert_array_equal(arrived.base.quantiles, np.full((2, 2), 5.0))
    np.testing.assert_array_equal(arrived.inner.mean, [TASK.target.mean()])
    assert arrived.inner.quantiles is None


def test_codes_have_a_column_each_but_those_unseen_in_training_or_missing() -> None:
    np.testing.assert_array_equal(TASK.test.one_hot(TASK.training), [[1, 0, 0, 0], [0, 0, 0, 1]])
    none = Features(np.zeros((3, 2)), np.zeros((3, 0), dtype=np.int64))
    assert none.one_hot(none).shape == (3, 0)


def test_spread_follows_a_normal_exactly() -> None:
    few = np.array([0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99])
    many = np.array(LEVELS) / 100.0
    exact = normal_quantiles(np.array([3.0, -1.0]), np.array([2.0, 0.1]))
    places = [LEVELS.index(round(100.0 * level, 6)) for level in few]
    assert np.allclose(spread(few, exact[:, places], many), exact)
