"""Repeated attempts: which failures are tried again, how long to wait, and when to give up.

A prediction changes nothing in the service, so each request can be sent again. The waits grow exponentially and are
random, so that clients that failed together don't return together. A `Retry-After` of the service comes before them.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import httpx

from murho_client._errors import DeadlineExceeded, MurhoClientError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from threading import Event

__all__ = ["Attempts", "Deadline", "Transient"]

FIRST_WAIT = 0.1
LONGEST_WAIT = 5.0
CONNECT_SECONDS = 10.0


class Transient(Exception):  # noqa: N818 - never seen by users
    """A failure that another attempt may mend.

    Attributes:
        error: What the user sees if no attempt mends it.
        retry_after: Seconds to wait, as the service asks; None if it doesn't.
    """

    def __init__(self, error: MurhoClientError, retry_after: float | None = None) -> None:
        super().__init__(error)
        self.error = error
        self.retry_after = retry_after


class Deadline:
    """A point in time by which an answer must be there.

    Args:
        seconds: From now on.
        within: Another deadline, which counts too.
    """

    def __init__(self, seconds: float, within: Deadline | None = None) -> None:
        if not seconds > 0:
            raise ValueError(f"timeout is {seconds!r}; it is a number of seconds above 0.")
        self.seconds = seconds
        self._end = time.monotonic() + seconds
        if within is not None and within._end < self._end:
            self.seconds, self._end = within.seconds, within._end

    def remaining(self) -> float:
        """Seconds until the deadline; negative after it."""
        return self._end - time.monotonic()

    def timeouts(self) -> httpx.Timeout:
        """Timeouts for one attempt.

        Raises:
            DeadlineExceeded: The deadline is over.
        """
        remaining = self.remaining()
        if remaining <= 0:
            raise self.exceeded()
        return httpx.Timeout(remaining, connect=min(remaining, CONNECT_SECONDS))

    def watch(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """The chunks, as long as there is time: a body may come a byte at a time, each within its timeout.

        Raises:
            DeadlineExceeded: The deadline is over.
        """
        for chunk in chunks:
            if self.remaining() <= 0:
                raise self.exceeded()
            yield chunk

    def exceeded(self) -> DeadlineExceeded:
        """The error to raise when there was no answer in time."""
        return DeadlineExceeded(f"There was no answer within {self.seconds:g} seconds. A longer timeout may help.")


class Attempts:
    """Counts and paces the attempts of one request.

    Args:
        retries: The most attempts after the first.
        deadline: No attempt begins after it.
        stop: Set once the answer is no longer wanted, which ends a wait early. With it, waits block the thread.

    Attributes:
        most: The most attempts.
    """

    def __init__(self, retries: int, deadline: Deadline, stop: Event | None = None) -> None:
        self.most = retries + 1
        self._deadline = deadline
        self._stop = stop
        self._failed = 0
        self._begin = time.monotonic()

    def last(self, error: MurhoClientError) -> MurhoClientError:
        """The error of the last attempt, which now says how often and how long it was tried."""
        times = "once" if self._failed <= 1 else f"{self._failed} times in {time.monotonic() - self._begin:.1f} seconds"
        error.args = (f"{error.args[0]} (Tried {times}.)", *error.args[1:])
        return error

    def wait(self, failure: Transient) -> float | None:
        """Seconds to wait before the next attempt; None if there is none."""
        self._failed += 1
        if self._failed >= self.most:
            return None
        backoff = min(LONGEST_WAIT, FIRST_WAIT * 2 ** (self._failed - 1))
        wait = random.uniform(backoff / 2, backoff)  # noqa: S311 - no secret
        if failure.retry_after is not None:
            wait = failure.retry_after + random.uniform(0, FIRST_WAIT)  # noqa: S311 - no secret
        if wait >= self._deadline.remaining():
            return None
        if self._stop is None:
            return wait
        return None if self._stop.wait(wait) else 0.0
