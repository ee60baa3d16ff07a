"""Ctrl-C is held back while something is saved, once."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

import pytest

from murho.model.runtime.interrupts import interrupts_held_back

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def heed_interrupts() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_the_first_one_is_held_back_and_later_ones_count_again() -> None:
    with interrupts_held_back():
        signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


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
