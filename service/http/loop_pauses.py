"""Short pauses of the event loop while requests are refused, so that the compute thread gets the interpreter's lock.

Each of PyTorch's and NumPy's functions gives that lock up. With hundreds of refusals a second the event loop takes it
nearly every time, and the compute thread waits until the loop has nothing left to do. After a pause the loop finds
several requests at once, so it asks for the lock less often.
"""

from __future__ import annotations

import asyncio
import time

__all__ = ["PAUSE_SECONDS", "LoopPauses"]

PAUSE_SECONDS = 0.004
"""Several requests arrive in this time, and it is short beside that of an answer while the queue is full."""


class LoopPauses:
    """Pauses of the running event loop, at most one in each of its rounds.

    Args:
        seconds: Length of a pause.
    """

    def __init__(self, seconds: float = PAUSE_SECONDS) -> None:
        self._seconds = seconds
        self._due = False

    def refused(self) -> None:
        """Has the event loop pause once all callbacks that are ready by now have run."""
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._pause)

    def _pause(self) -> None:
        self._due = False
        time.sleep(self._seconds)
