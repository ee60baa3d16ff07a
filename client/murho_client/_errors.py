"""The errors of the client. Every one is a `MurhoClientError`, and its message says what to do.

    MurhoClientError
    ├── InvalidInput             the rows or options can't be used; names row and feature of the data as given
    ├── Unreachable              no connection to the service
    ├── DeadlineExceeded         no answer in time
    ├── UnexpectedAnswer         what answered is no Murho, or one of another version
    └── ServiceError             the service answered with a problem
        ├── AuthenticationError  no key or a wrong one
        ├── UnknownModel         no such model or version
        ├── TooLarge             the request is above a limit of the service
        ├── Busy                 the service has too much to do
        ├── NotReady             the service is still loading, or about to stop
        └── InternalError        the service failed

No error holds a request, so none can show an API key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "AuthenticationError",
    "Busy",
    "DeadlineExceeded",
    "InternalError",
    "InvalidInput",
    "MurhoClientError",
    "NotReady",
    "Problem",
    "ServiceError",
    "TooLarge",
    "Transient",
    "UnexpectedAnswer",
    "UnknownModel",
    "Unreachable",
]


SHOWN_PROBLEMS = 10


class MurhoClientError(Exception):
    """The root of all errors of this package.

    Attributes:
        request_id: The id of the request in the log of the service; None if nothing was answered.
    """

    request_id: str | None = None


class Transient(Exception):
    """A failure that another attempt may mend.

    Attributes:
        error: What the user sees if no attempt mends it.
        retry_after: Seconds to wait, as the service asks; None if it doesn't.
    """

    def __init__(self, error: MurhoClientError, retry_after: float | None = None) -> None:
        self.error = error
        self.retry_after = retry_after


class Unreachable(MurhoClientError):
    """There was no connection: refused, reset, or the name of the host is unknown. The message says what was tried."""


class DeadlineExceeded(MurhoClientError):
    """There was no answer within the timeout of the call, or within the service's own."""


class UnexpectedAnswer(MurhoClientError):
    """The answer isn't one of a Murho service: a web page, a redirect, a cut body, missing keys."""


class ServiceError(MurhoClientError):
    """The service answered with an error.

    Attributes:
        status: The HTTP status.
        problem: The problem document of RFC 9457: `type`, `title`, `status`, `detail`.
        retry_after: Seconds that the service asks to wait before another attempt; None if it names none.
    """

    def __init__(
        self,
        message: str,
        status: int = 500,
        problem: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.problem: Mapping[str, Any] = {} if problem is None else problem
        self.retry_after = retry_after


class AuthenticationError(ServiceError):
    """The service wants an API key, or refuses the one that was sent (401, 403)."""


class UnknownModel(ServiceError):
    """The service has no such model or version (404)."""


class TooLarge(ServiceError):
    """The request is above a limit of the service (413)."""


class Busy(ServiceError):
    """The queue of the service stayed full (429)."""


class NotReady(ServiceError):
    """The service is still loading or about to stop (503)."""


class InternalError(ServiceError):
    """The service failed (500)."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with the input, or that is unusual in it.

    Attributes:
        message: What is wrong and what to do.
        row: The row's number in the data as given, from 0; None if no single row is wrong.
        label: The row's label in the data as given: its index value in pandas, else its number.
        feature: The feature or column.
        pointer: The place in the request as JSON pointer, where the service found the problem.
    """

    message: str
    row: int | None = None
    label: Any = None
    feature: str | None = None
    pointer: str | None = None

    def __str__(self) -> str:
        """Return the message after its place, such as ``row 3 (index 'b'), Horsepower: …``."""
        place = []
        if self.row is not None:
            labelled = self.label is not None and self.label != self.row
            place.append(f"row {self.row} (index {self.label!r})" if labelled else f"row {self.row}")
        if self.feature is not None:
            place.append(self.feature)
        return f"{', '.join(place)}: {self.message}" if place else self.message


class InvalidInput(MurhoClientError):
    """The rows or options can't be used.

    Args:
        problems: What is wrong where; at least one.
        total: Number of problems in all; by default those in `problems`.
        status: HTTP status, if the service found the problems; None if they were found before anything was sent.
        problem: The problem document of the service, or None.

    Attributes:
        problems: The first problems.
        total: Number of problems in all, listed or not.
        status: See above.
        problem: See above.
    """

    def __init__(
        self,
        problems: Iterable[Problem],
        total: int | None = None,
        status: int | None = None,
        problem: Mapping[str, Any] | None = None,
    ) -> None:
        self.problems = tuple(problems)
        super().__init__(self.problems)
        self.total = len(self.problems) if total is None else total
        self.status = status
        self.problem = problem

    def __str__(self) -> str:
        """Return the problem, or a list of the first ones, one a line."""
        if self.total == 1 and len(self.problems) == 1:
            return str(self.problems[0])
        shown = self.problems[:SHOWN_PROBLEMS]
        lines = [f"{self.total} validation errors:", *(f"  {problem}" for problem in shown)]
        if self.total > len(shown):
            lines.append(f"  … and {self.total - len(shown)} more")
        return "\n".join(lines)
