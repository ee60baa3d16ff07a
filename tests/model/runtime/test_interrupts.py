"""Ctrl-C is held back while something is saved or scored, once."""

from __future__ import annotations

import signal
import threading

import pytest

from murho.model.runtime import interrupts_held_back

pytestmark = pytest.mark.usefixtures("heed_interrupts")


def test_the_first_one_is_held_back_and_later_ones_count_again() -> None:
    with interrupts_held_back() as held_back:
        assert not held_back.came
        signal.raise_signal(signal.SIGINT)
    assert held_back.came
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
