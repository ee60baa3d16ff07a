"""Limits of what one caller may take in a second: token buckets, for requests and for row-draws.

A bucket holds `burst` tokens at most and gains `rate` tokens a second. What is taken leaves it. A request that costs
more than a full bucket is taken once the bucket is full, and leaves it in debt, so that the caller pays for it by
waiting afterwards: on average nobody gets more than `rate`.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Buckets"]

MOST_CALLERS = 10_000
"""Buckets kept. Addresses can be many; the one that asked longest ago is forgotten, and begins with a full bucket."""


class _Bucket:
    __slots__ = ("changed", "tokens")

    def __init__(self, tokens: float, changed: float) -> None:
        self.tokens = tokens
        self.changed = changed


class Buckets:
    """One bucket for each caller.

    Args:
        clock: Monotonic seconds.
        most: The most callers remembered.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, most: int = MOST_CALLERS) -> None:
        self._clock = clock
        self._most = most
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, caller: str, amount: float, rate: float, burst: float) -> float:
        """Takes tokens from a caller's bucket, if it has them.

        Args:
            caller: Whose bucket.
            amount: Tokens to take.
            rate: Tokens a second that the bucket gains.
            burst: The most tokens it holds.

        Returns:
            0 if they were taken; otherwise nothing was, and it is the seconds until they can be.
        """
        now = self._clock()
        bucket = self._buckets.get(caller)
        if bucket is None:
            bucket = self._buckets[caller] = _Bucket(burst, now)
            if len(self._buckets) > self._most:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(caller)
            bucket.tokens = min(burst, bucket.tokens + rate * (now - bucket.changed))
            bucket.changed = now
        needed = min(amount, burst)
        # Sums of many small gains round; a token short by a billionth is a token.
        if bucket.tokens >= needed * (1 - 1e-9):
            bucket.tokens -= amount
            return 0.0
        return (needed - bucket.tokens) / rate

    def __len__(self) -> int:
        return len(self._buckets)
