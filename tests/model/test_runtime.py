"""Devices, processors, threads and interrupts of a process."""

import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from murho.model.checkpoint.posterior import Posterior
from murho.model.encoding.encoder import Encoded
from murho.model.errors import OptionError
from murho.model.predictive.forward import NetworkOutputs
from murho.model.predictive.prediction import PredictOptions
from murho.model.runtime import (
    FEW_PRODUCTS,
    at_most_threads,
    available_processors,
    in_parts,
    interrupts_held_back,
    let_threads_sleep,
    resolve_device,
    threads_for,
)


@pytest.mark.usefixtures("two_threads")
def test_a_little_work_has_one_thread_and_more_has_all() -> None:
    with threads_for(FEW_PRODUCTS):
        assert torch.get_num_threads() == 1
    with threads_for(FEW_PRODUCTS + 1):
        assert torch.get_num_threads() == 2
    with pytest.raises(ZeroDivisionError), threads_for(1):
        raise ZeroDivisionError
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize(
    ("count", "least", "parts"), [(0, 1, 1), (1, 1, 1), (2, 1, 2), (9, 4, 2), (9, 5, 1), (30, 10, 3), (100, 1, 10)]
)
def test_work_is_split_evenly_where_a_part_is_worth_a_thread(count: int, least: int, parts: int) -> None:
    done: list[slice] = []
    in_parts(count, least, done.append)
    assert len(done) == parts
    assert sorted(row for rows in done for row in range(rows.start, rows.stop)) == list(range(count))
    assert max(rows.stop - rows.start for rows in done) <= -(-count // parts)


@pytest.mark.usefixtures("two_threads")
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


@pytest.mark.usefixtures("two_threads")
def test_what_fails_in_another_thread_fails_here() -> None:
    failed = threading.Event()

    def work(_: slice) -> None:
        if threading.current_thread().name.startswith("murho-helper"):
            failed.set()
            raise ZeroDivisionError
        assert failed.wait(60.0)

    with pytest.raises(ZeroDivisionError):
        in_parts(10, 1, work)


@pytest.mark.usefixtures("two_threads")
def test_an_answer_for_one_row_wakes_no_other_thread_and_one_for_many_does(
    rent: Posterior, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    real = NetworkOutputs.draw_rows

    def outputs(*arguments: Any, **options: Any) -> Any:
        seen.append(torch.get_num_threads())
        return real(*arguments, **options)

    monkeypatch.setattr(NetworkOutputs, "draw_rows", outputs)
    encoded = Encoded.like(np.zeros((2000, rent.encoder.width), dtype=np.float32))
    for rows in (1, 2000):
        rent.predict_encoded(encoded[slice(rows)], PredictOptions(samples=256))
    assert (seen[0], seen[-1]) == (1, 2)
    assert torch.get_num_threads() == 2


def test_auto_takes_what_there_is() -> None:
    assert resolve_device("auto") == ("cuda" if torch.cuda.is_available() else "cpu")
    assert resolve_device("cpu") == "cpu"


@pytest.mark.parametrize("wanted", ["tpu", "cuda:", "cuda:x", ""])
def test_unknown_devices_are_refused(wanted: str) -> None:
    with pytest.raises(OptionError, match="must be auto, cpu or cuda"):
        resolve_device(wanted)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
@pytest.mark.parametrize("wanted", ["cuda", "cuda:1"])
def test_cuda_that_is_not_there_says_what_to_do(wanted: str) -> None:
    with pytest.raises(OptionError, match="Use --device cpu"):
        resolve_device(wanted)


@pytest.mark.usefixtures("two_threads")
def test_threads_are_given_back_after_a_fit() -> None:
    with at_most_threads(1):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("heed_interrupts")
def test_the_first_one_is_held_back_and_later_ones_count_again() -> None:
    with interrupts_held_back() as held_back:
        assert not held_back.came
        signal.raise_signal(signal.SIGINT)
    assert held_back.came
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.usefixtures("heed_interrupts")
def test_the_second_one_interrupts() -> None:
    with interrupts_held_back():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_threads_run_as_before() -> None:
    done = []

    def save() -> None:
        with interrupts_held_back():
            done.append(True)

    thread = threading.Thread(target=save)
    thread.start()
    thread.join()
    assert done == [True]


@pytest.fixture
def eight_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)


@pytest.mark.usefixtures("eight_processors")
@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 8),
        *(
            ({"cpu.max": quota}, expected)
            for quota, expected in (
                ("200000 100000", 2), ("150000 100000", 2), ("50000 100000", 1), ("max 100000", 8), ("garbage", 8),
            )
        ),
        *(
            ({"cpu/cpu.cfs_quota_us": quota, "cpu/cpu.cfs_period_us": "100000"}, expected)
            for quota, expected in (("300000", 3), ("-1", 8), ("1600000", 8))
        ),
    ],
)  # fmt: skip
def test_a_quota_of_either_version_limits_the_count(tmp_path: Path, files: dict[str, str], expected: int) -> None:
    (tmp_path / "cpu").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(f"{text}\n")
    assert available_processors(tmp_path) == expected


def test_threads_sleep_while_they_wait_unless_somebody_wants_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")
    let_threads_sleep()
    assert (os.environ["OMP_WAIT_POLICY"], os.environ["OPENBLAS_NUM_THREADS"]) == ("active", "3")
    monkeypatch.delenv("OMP_WAIT_POLICY")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS")
    let_threads_sleep()
    assert os.environ["OMP_WAIT_POLICY"] == "passive"
    assert os.environ["OPENBLAS_NUM_THREADS"] == "1"
