"""The stages of shutting down: when the service is no longer ready, and when it takes no more predictions."""

from __future__ import annotations

from murho.service.errors import NotReadyError

__all__ = ["Lifecycle"]


class Lifecycle:
    """Counts the predictions in flight and refuses new ones at the end.

    Stopping has two steps. While the service *drains*, it reports that it isn't ready but still takes predictions, so
    that none is lost before the load balancer sends its requests elsewhere. Once it is *closing*, it takes no new
    predictions and waits for those in flight.

    Attributes:
        draining: Whether the service is about to stop, so that it is no longer ready.
        closing: Whether it refuses new predictions.
        in_flight: Number of predictions without an answer so far.
        unfinished: Whether an abandoned computation still runs after the service has stopped.
    """

    def __init__(self) -> None:
        self.draining = False
        self.closing = False
        self.in_flight = 0
        self.unfinished = False

    def require_not_draining(self) -> None:
        """Checks that the service isn't about to stop.

        Raises:
            NotReadyError: The service is about to stop.
        """
        if self.draining:
            raise NotReadyError("The service is shutting down.", retry_after=5)

    def enter(self) -> None:
        """Counts one prediction as in flight, until `leave`.

        Raises:
            NotReadyError: The service takes no new predictions.
        """
        if self.closing:
            raise NotReadyError("The service is shutting down.", retry_after=5)
        self.in_flight += 1

    def leave(self) -> None:
        """Counts one prediction as answered."""
        self.in_flight -= 1
