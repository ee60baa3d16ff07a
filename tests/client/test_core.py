"""Deadlines, waits, the progress bar: what both clients share."""

from __future__ import annotations

import io
import threading
import time
from typing import TYPE_CHECKING

import pytest
from murho_client import DeadlineExceeded, Unreachable
from murho_client._progress import ProgressBar
from murho_client._retry import Attempts, Deadline, Transient

if TYPE_CHECKING:
    from collections.abc import Iterator


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_nearer_of_two_deadlines_counts() -> None:
    whole = Deadline(1.0)
    assert Deadline(60.0, whole).remaining() <= 1.0
    assert Deadline(0.5, whole).remaining() <= 0.5
    with pytest.raises(DeadlineExceeded, match="within 1e-09 seconds"):
        Deadline(1e-9).timeouts()
    assert Deadline(60.0).timeouts().connect == 10.0


def test_a_body_that_trickles_is_read_until_the_deadline() -> None:
    deadline = Deadline(0.05)

    def chunks() -> Iterator[bytes]:
        while True:
            time.sleep(0.02)
            yield b"{"

    with pytest.raises(DeadlineExceeded):
        list(deadline.watch(chunks()))


def test_waits_grow_and_are_random() -> None:
    attempts = Attempts(20, Deadline(1000))
    waits = [attempts.wait(Transient(Unreachable("no"))) for _ in range(12)]
    for number, wait in enumerate(waits):
        assert wait is not None
        assert min(5.0, 0.1 * 2**number) / 2 <= wait <= min(5.0, 0.1 * 2**number)
    assert len(set(waits)) == len(waits)


def test_nobody_waits_for_what_will_not_come() -> None:
    failure = Transient(Unreachable("no"), retry_after=30.0)
    patient = Attempts(3, Deadline(60)).wait(failure)
    assert patient is not None
    assert 30 <= patient <= 30.1
    assert Attempts(3, Deadline(20)).wait(failure) is None
    stop = threading.Event()
    assert Attempts(3, Deadline(60), stop).wait(Transient(Unreachable("no"))) == 0.0  # it has waited
    stop.set()
    assert Attempts(3, Deadline(60), stop).wait(failure) is None
    once = Attempts(1, Deadline(60))
    assert once.wait(Transient(Unreachable("no"))) is not None
    assert once.wait(Transient(Unreachable("no"))) is None


def test_the_bar_counts_rows_on_a_terminal_after_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    stream = Terminal()
    with ProgressBar(2000, None, stream) as bar:
        bar.advance(500)
        assert stream.getvalue() == ""
        now[0] += 2
        bar.advance(500)
    assert stream.getvalue() == "\r[###############...............]  50%  1,000 of 2,000 rows, 2 s left\n"


def test_the_bar_is_shown_when_asked_for_and_hidden_elsewhere() -> None:
    for progress, stream, shown in [
        (True, io.StringIO(), True),
        (False, Terminal(), False),
        (None, io.StringIO(), False),
    ]:
        with ProgressBar(None, progress, stream) as bar:
            bar.advance(1)
        assert bool(stream.getvalue()) is shown
