"""The memory of one service: bytes of requests in flight within a budget, and freed memory back to the system."""

from __future__ import annotations

import asyncio
import gc
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow

from murho.model.runtime import give_back
from murho.service.errors import DeadlineError, QueueFullError

if TYPE_CHECKING:
    from murho.model.predictive.draw_room import DrawRoom
    from murho.service.engine.scheduler import Scheduler

__all__ = ["SMALL_BYTES", "AnswerRoom", "RequestRoom", "Share", "keep_small"]

SMALL_BYTES = 2**16
"""A request that takes no more is refused only where the whole budget is taken; rows and answers aren't counted."""
LARGE_SHARE = 0.75
"""Of the budget, which the larger ones may take."""
ORDERED_SHARE = 1 / 64
POLL_SECONDS = 0.01

LOOK_SECONDS = 2.0
GROWTH_BYTES = 2**26
"""More memory than after the last time is given back; it takes about 10 ms."""
QUIET_LOOKS = 5
"""After so many looks without work, draws leave the memory."""
QUIET_SHARE = 16


@dataclass(slots=True)
class RequestRoom:
    """How many bytes the bodies of all requests, and the rows that were read from them, may take together.

    Not thread-safe: the event loop counts.

    Attributes:
        most: Bytes.
        taken: Bytes now.
    """

    most: int
    taken: int = 0


@dataclass(slots=True)
class Share:
    """What one request takes of a room.

    Attributes:
        room: The room.
        size: Bytes.
    """

    room: RequestRoom
    size: int = 0

    def resize(self, size: int) -> None:
        """Takes so many bytes from now on.

        Raises:
            QueueFullError: There is no room; it has what it had. What is alone has room.
        """
        room, more = self.room, size - self.size
        most = room.most if size <= SMALL_BYTES else LARGE_SHARE * room.most
        if more > 0 and room.taken + more > most and room.taken > self.size:
            raise QueueFullError(
                f"The requests in flight take {room.taken} bytes of memory, which is all that this service takes on. "
                "Try again later.",
                retry_after=1,
            )
        room.taken += more
        self.size = size


class AnswerRoom:
    """How many bytes of large answers are computed and encoded at a time; others wait for their turn.

    Attributes:
        taken: Bytes now; whoever has taken some gives them back there.

    Args:
        most: Bytes.
    """

    def __init__(self, most: int) -> None:
        self.taken = 0
        self._most = most
        self._turn = asyncio.Lock()

    async def take(self, count: int, seconds: float) -> None:
        """Takes room, once there is enough; what is alone has room.

        Raises:
            DeadlineError: There was none within the seconds.
        """
        try:
            # The larger ones come in order, and the others need not wait behind them.
            turn = self._turn if count > ORDERED_SHARE * self._most else nullcontext()
            async with asyncio.timeout(seconds), turn:
                while self.taken and self.taken + count > self._most:
                    await asyncio.sleep(POLL_SECONDS)
                self.taken += count
        except TimeoutError:
            raise DeadlineError(
                "There was no answer in time: the request waited for other large answers. Send fewer rows, ask for "
                "fewer samples, or try again later."
            ) from None


async def keep_small(scheduler: Scheduler, draws: DrawRoom) -> None:
    """Gives freed memory back to the system for as long as the service runs; without work, that of most draws too."""
    # Arrow's own allocator keeps what its threads have freed, and can't be asked for it from another thread.
    pyarrow.set_memory_pool(pyarrow.system_memory_pool())
    least, passes, quiet = _resident(), -1, 0
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        quiet = 0 if scheduler.admission.pending or scheduler.passes != passes else quiet + 1
        passes = scheduler.passes
        if quiet == QUIET_LOOKS:
            await asyncio.to_thread(draws.make_room, draws.most_bytes // QUIET_SHARE)
            gc.collect()  # failures of requests and their arrays hold one another
        if _resident() > least + GROWTH_BYTES or quiet == QUIET_LOOKS:
            await asyncio.to_thread(give_back)
            least = _resident()
        least = min(least, _resident())


def _resident() -> int:
    """Returns the bytes of this process in memory; 0 where that isn't known."""
    try:
        return 4096 * int(Path("/proc/self/statm").read_bytes().split()[1])
    except OSError:
        return 0
