"""Threads for an answer: one for a little work, and afterwards as many as before."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from murho.model.checkpoint.row_answers import NetworkOutputs
from murho.model.encoding.encoder import Encoded
from murho.model.predictive.prediction import PredictOptions
from murho.model.runtime import FEW_PRODUCTS, in_parts, threads_for, use_threads

if TYPE_CHECKING:
    from murho.model.checkpoint.posterior import Posterior


pytestmark = pytest.mark.usefixtures("two_threads")


def test_a_little_work_has_one_thread_and_more_has_all() -> None:
    with threads_for(FEW_PRODUCTS):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2
    with threads_for(FEW_PRODUCTS + 1):
        assert torch.get_num_threads() == 2


def test_a_failure_leaves_as_many_as_before() -> None:
    with pytest.raises(ZeroDivisionError), threads_for(1):
        raise ZeroDivisionError
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize(
    ("count", "least", "parts"), [(0, 1, 1), (1, 1, 1), (2, 1, 2), (9, 4, 2), (9, 5, 1), (30, 10, 3), (100, 1, 8)]
)
def test_work_is_split_evenly_where_a_part_is_worth_a_thread(count: int, least: int, parts: int) -> None:
    done: list[slice] = []
    in_parts(count, least, done.append)
    assert len(done) == parts
    assert sorted(row for rows in done for row in range(rows.start, rows.stop)) == list(range(count))
    assert max(rows.stop - rows.start for rows in done) <= -(-count // parts)


def test_a_thread_that_is_held_up_leaves_the_other_parts_to_the_rest() -> None:
    done: dict[str, int] = {}
    others_are_done = threading.Event()

    def work(_: slice) -> None:
        name = threading.current_thread().name
        done[name] = done.get(name, 0) + 1
        if sum(done.values()) == 8:
            others_are_done.set()
        elif name.startswith("murho-helper"):
            assert others_are_done.wait(60.0)

    in_parts(100, 1, work)
    assert max(done.values()) >= 7


def test_what_fails_in_another_thread_fails_here() -> None:
    failed = threading.Event()

    def work(_: slice) -> None:
        if threading.current_thread().name.startswith("murho-helper"):
            failed.set()
            raise ZeroDivisionError
        assert failed.wait(60.0)

    with pytest.raises(ZeroDivisionError):
        in_parts(10, 1, work)


def test_an_answer_for_one_row_wakes_no_other_thread_and_one_for_many_does(
    rent: Posterior, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    real = NetworkOutputs.drawn

    def outputs(*arguments: Any, **options: Any) -> Any:
        seen.append(torch.get_num_threads())
        return real(*arguments, **options)

    monkeypatch.setattr(NetworkOutputs, "drawn", outputs)
    encoded = Encoded.like(np.zeros((2000, rent.encoder.width), dtype=np.float32))
    for rows in (1, 2000):
        rent.predict_encoded(encoded[slice(rows)], PredictOptions(samples=256))
    assert (seen[0], seen[-1]) == (1, 2)
    assert torch.get_num_threads() == 2


def test_a_number_of_threads_is_that_of_one_thread_alone() -> None:
    turns, found = [threading.Event() for _ in range(2)], []

    def first() -> None:
        use_threads(3)
        turns[0].set()
        turns[1].wait(10)
        found.append(torch.get_num_threads())

    def second() -> None:
        turns[0].wait(10)
        use_threads(1)
        turns[1].set()
        found.append(torch.get_num_threads())

    threads = [threading.Thread(target=each) for each in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sorted(found) == [1, 3]
    assert torch.get_num_threads() == 2
