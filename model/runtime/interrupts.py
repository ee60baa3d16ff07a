"""Ctrl-C while something is saved: the first one waits until the end, a second one interrupts at once."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

__all__ = ["interrupts_held_back"]


@contextmanager
def interrupts_held_back() -> Iterator[None]:
    """Ignore the first SIGINT during the block; a second one raises a KeyboardInterrupt.

    What the first one would have ended is finished by the end of the block. Outside of the main thread, which alone
    may handle signals, the block runs as it would without this. The same where SIGINT is ignored already.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:
        yield
        return
    received = 0

    def receive(_number: int, _frame: FrameType | None) -> None:
        nonlocal received
        received += 1
        if received > 1:
            raise KeyboardInterrupt

    try:
        signal.signal(signal.SIGINT, receive)
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
