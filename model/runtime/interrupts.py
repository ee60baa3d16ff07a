"""Ctrl-C while something is saved or scored: the first one waits until the end, a second one interrupts at once."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

__all__ = ["HeldBack", "interrupts_held_back"]


@dataclass
class HeldBack:
    """What was held back.

    Attributes:
        came: Whether a SIGINT came.
    """

    came: bool = False


@contextmanager
def interrupts_held_back() -> Iterator[HeldBack]:
    """Note the first SIGINT during the block; a second one raises a KeyboardInterrupt.

    What the first one would have ended is finished by the end of the block. Outside of the main thread, which alone
    may handle signals, the block runs as it would without this. The same where SIGINT is ignored already.
    """
    held_back = HeldBack()
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:
        yield held_back
        return

    def receive(_number: int, _frame: FrameType | None) -> None:
        if held_back.came:
            raise KeyboardInterrupt
        held_back.came = True

    try:
        signal.signal(signal.SIGINT, receive)
    except ValueError:  # not the main thread
        yield held_back
        return
    try:
        yield held_back
    finally:
        signal.signal(signal.SIGINT, before)
