"""What all connections of a server share: their limits, the count of the refused ones, and how refusals are told."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from murho.service.errors import problem_details
from murho.service.telemetry.log_limit import LogLimit

if TYPE_CHECKING:
    from murho.service.errors import ProblemDetails, ServiceError
    from murho.service.http.limits import ConnectionLimits
    from murho.service.telemetry.metrics import Telemetry

__all__ = ["Gate"]

# So many refused connections get time to read why; the others are closed as soon as it is sent.
LINGERING_REFUSED = 256


@dataclass(slots=True)
class Gate:
    """What all connections of a server share.

    Attributes:
        limits: Of each connection, and of their number.
        refused: Connections that are open only to be told that there are too many.
        log: Bounds the lines about clients' errors.
    """

    limits: ConnectionLimits
    refused: int = 0
    log: LogLimit = field(default_factory=lambda: LogLimit(20, 1.0))

    def is_full(self, connections: int) -> bool:
        """Returns whether the newest of so many connections, the refused ones included, is one too many."""
        return connections - self.refused > self.limits.connections

    @property
    def lingers(self) -> bool:
        """Whether a refused connection gets time to read why."""
        return self.refused <= LINGERING_REFUSED

    def report(
        self, error: ServiceError, client: tuple[str, int] | None, telemetry: Telemetry
    ) -> tuple[ProblemDetails, str]:
        """Counts and logs an error of a client.

        Returns:
            The problem that answers it, and the id of the answer, which is in the log line too.
        """
        request_id = uuid.uuid4().hex
        problem = problem_details(error, request_id)
        kind = problem.type.rpartition(":")[2]
        telemetry.protocol_errors.labels(kind).inc()
        held_back = self.log.held_back()
        if held_back is not None:
            facts: dict[str, object] = {} if error.__cause__ is None else {"cause": repr(error.__cause__)}
            if held_back:
                facts["lines_held_back"] = held_back
            structlog.get_logger("murho.connection").warning(
                "connection refused",
                client="{}:{}".format(*client) if client else "unknown",
                kind=kind,
                status=problem.status,
                detail=problem.detail,
                request_id=request_id,
                **facts,
            )
        return problem, request_id
