"""Whether the engine still shows life: the compute thread beats, `/healthz` listens."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from murho.service.errors import EngineSilentError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Heartbeat"]


class Heartbeat:
    """The time since the last sign of life of a thread that has work.

    The compute thread says `busy` when it takes work, `beat` at each tile, and `idle` when it has none left. A thread
    that waits for work is never silent, and neither is one that loads or compiles, because it says `busy` only for
    work. Any thread may ask. All state is one attribute, which is replaced as a whole, so no lock is needed.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: float | None = None

    def busy(self) -> None:
        """Begins work."""
        self._last = self._clock()

    def beat(self) -> None:
        """Shows life; without work it changes nothing."""
        if self._last is not None:
            self._last = self._clock()

    def idle(self) -> None:
        """Ends work."""
        self._last = None

    def seconds_silent(self) -> float:
        """Returns the seconds since the last sign of life, 0 without work."""
        last = self._last
        return 0.0 if last is None else max(0.0, self._clock() - last)

    def require_alive(self, most: float) -> None:
        """Checks that the engine isn't silent for too long.

        Raises:
            EngineSilentError: It has work, and showed no life for more than `most` seconds.
        """
        silent = self.seconds_silent()
        if silent > most:
            raise EngineSilentError(
                f"The engine has work and has shown no sign of life for {silent:.0f} seconds; {most:.0f} are the most. "
                "Restart the process."
            )
