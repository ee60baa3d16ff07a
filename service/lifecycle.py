"""From starting to stopping: whether the service is ready, and which requests it still takes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from murho.service.errors import NotReadyError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Lifecycle"]


class Lifecycle:
    """Counts the predictions in flight and refuses new ones at the end.

    Stopping has two steps. While it *drains*, the service says that it isn't ready but still takes
    predictions, so that none is lost before a load balancer has turned away. Once it is *closing*, it takes
    no new ones and waits for those in flight.

    Attributes:
        draining: The service is about to stop and isn't ready any more.
        closing: It takes no new predictions.
        in_flight: Predictions that aren't answered yet.
        unfinished: It has stopped, but a computation that nobody waits for still runs.
    """

    def __init__(self) -> None:
        self.draining = False
        self.closing = False
        self.in_flight = 0
        self.unfinished = False

    def require_not_draining(self) -> None:
        """Checks that the service isn't about to stop.

        Raises:
            NotReadyError: It is.
        """
        if self.draining:
            raise NotReadyError("The service is shutting down.", retry_after=5)

    @contextmanager
    def prediction(self) -> Iterator[None]:
        """Counts one prediction as in flight.

        Raises:
            NotReadyError: The service takes no new ones.
        """
        if self.closing:
            raise NotReadyError("The service is shutting down.", retry_after=5)
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1
