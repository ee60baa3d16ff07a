"""SIGHUP: look for new versions at once. A terminal that is closed sends it too, and then the service ends."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["on_hangup"]

CLOSING_SECONDS = 0.1
"""So long a terminal may still open after the signal that says that it was closed."""


@contextmanager
def on_hangup(act: Callable[[], object]) -> Iterator[None]:
    """Calls a function at every SIGHUP during the block, in the event loop; on other threads and systems does nothing.

    A service that was started in a terminal, without nohup, ends when that is closed, as if by SIGTERM.
    """
    number = getattr(signal, "SIGHUP", None)
    if number is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    in_terminal = signal.getsignal(number) is not signal.SIG_IGN and _has_terminal()

    loop = asyncio.get_running_loop()

    def decide() -> None:
        if in_terminal and not _has_terminal():
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            act()

    def receive() -> None:
        loop.call_later(CLOSING_SECONDS if in_terminal else 0, decide)

    loop.add_signal_handler(number, receive)
    try:
        yield
    finally:
        loop.remove_signal_handler(number)


def _has_terminal() -> bool:
    """Whether the process has a terminal that is open."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
