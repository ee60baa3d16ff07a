"""The errors of the service, and the one table that turns any error into an RFC 9457 problem.

    MurhoError
    └── ServiceError
        ├── NotReadyError              still loading, draining, or no model to serve
        ├── UnauthorizedError          no API key, or an unknown one
        ├── ForbiddenError             the API key may not do this
        ├── RateLimitError             the caller has taken what it may take
        ├── QueueFullError             the queue is full
        ├── DeadlineError              no answer in time
        ├── SlowRequestError           the headers or the body did not arrive in time
        ├── UnknownModelError          no such model or version
        ├── CheckpointRefusedError     a checkpoint that was asked for can't be loaded
        ├── TooLargeError              body, rows or work above a limit
        ├── MediaTypeError             a body in a form that the service doesn't read
        ├── NotAcceptableError         an answer in a form that the service doesn't write
        ├── MalformedRequestError      bytes that are no HTTP request
        ├── TargetTooLongError         a path and query above the limit
        ├── HeadersTooLargeError       headers above the limits
        ├── TransferCodingError        a body in a transfer coding other than chunked
        ├── MisdirectedError           a request to a host that isn't this service
        ├── ForeignPageError           a page of another site wants to change something
        ├── TooManyConnectionsError    no room for another connection
        ├── EngineSilentError          the engine has work and shows no sign of life
        ├── ClientGoneError            the client closed the connection
        └── ComputationError           the model gave no finite answer: a bug, never the client's fault

Bad input is `model.errors.InputError`. A message tells a person what is wrong, where, and what to do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException

from murho.model.errors import InputError, MurhoError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "BadInputError",
    "CheckpointRefusedError",
    "ClientGoneError",
    "ComputationError",
    "DeadlineError",
    "EngineSilentError",
    "ForbiddenError",
    "ForeignPageError",
    "HeadersTooLargeError",
    "MalformedRequestError",
    "MediaTypeError",
    "MisdirectedError",
    "NotAcceptableError",
    "NotReadyError",
    "ProblemDetails",
    "QueueFullError",
    "RateLimitError",
    "ServiceError",
    "SlowRequestError",
    "TargetTooLongError",
    "TooLargeError",
    "TooManyConnectionsError",
    "TransferCodingError",
    "UnauthorizedError",
    "UnknownModelError",
    "problem_details",
]


class ServiceError(MurhoError):
    """The root of the service's own errors.

    Attributes:
        retry_after: Seconds until another attempt makes sense; None if it never does.
    """

    def __init__(self, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class NotReadyError(ServiceError):
    """The service is still loading, is draining, or has no model to serve."""


class UnauthorizedError(ServiceError):
    """The request has no API key, or none that the service knows."""


class ForbiddenError(ServiceError):
    """The caller's API key may not do this."""


class RateLimitError(ServiceError):
    """The caller has taken all that it may take for now."""


class QueueFullError(ServiceError):
    """The queue is full."""


class DeadlineError(ServiceError):
    """There was no answer in time."""


class SlowRequestError(ServiceError):
    """The request's headers or its body did not arrive in time."""


class UnknownModelError(ServiceError):
    """There is no such model or version."""


class CheckpointRefusedError(ServiceError):
    """A checkpoint that was asked for can't be loaded."""


class TooLargeError(ServiceError):
    """The body, the rows or the work of one request are above a limit."""


class MediaTypeError(ServiceError):
    """The body is in a form that the service doesn't read."""


class NotAcceptableError(ServiceError):
    """The answer is wanted in a form that the service doesn't write."""


class MalformedRequestError(ServiceError):
    """What a client sent is no HTTP request."""


class TargetTooLongError(ServiceError):
    """The target of a request, its path and query, is above the limit."""


class HeadersTooLargeError(ServiceError):
    """The headers of a request are above the limits."""


class TransferCodingError(ServiceError):
    """The body is in a transfer coding other than chunked."""


class MisdirectedError(ServiceError):
    """The request is to a host that isn't this service."""


class ForeignPageError(ServiceError):
    """A page of another site, open in a browser, wants to change something."""


class TooManyConnectionsError(ServiceError):
    """There is no room for another connection."""


class EngineSilentError(ServiceError):
    """The engine has work and shows no sign of life."""


class ClientGoneError(ServiceError):
    """The client closed the connection before the answer."""


class ComputationError(ServiceError):
    """The model gave no finite answer for input within the training range."""


class BadInputError(InputError):
    """Rows or options of a request that can't be used, with the count of all problems.

    Attributes:
        problems: The first problems, in the order of the request.
        total: Number of problems found, listed or not.
        more: Whether the rest of the request wasn't looked at, so that there may be more.
    """

    def __init__(self, problems: Iterable[Problem], total: int | None = None, *, more: bool = False) -> None:
        super().__init__(problems)
        self.total = len(self.problems) if total is None else total
        self.more = more


@dataclass(frozen=True, slots=True)
class ProblemDetails:
    """One RFC 9457 problem.

    Attributes:
        status: The HTTP status.
        type: A URI that names the kind of problem.
        title: The kind of problem in words, the same for every problem of this type.
        detail: What went wrong this time and what to do.
        errors: For bad input, what is wrong where.
        headers: Headers of the answer, such as Retry-After and Allow.
    """

    status: int
    type: str
    title: str
    detail: str
    errors: tuple[Problem, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """Returns the members of the problem document; `errors` only if there are any."""
        document: dict[str, Any] = {
            "type": self.type,
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
        }
        if self.errors:
            document["errors"] = [{"pointer": problem.pointer, "message": problem.message} for problem in self.errors]
        return document


# The whole mapping from errors to answers; the first class that fits is taken.
TABLE: tuple[tuple[type[Exception], int, str, str], ...] = (
    (InputError, 422, "bad-input", "The input can't be used"),
    (UnauthorizedError, 401, "unauthorized", "An API key is needed"),
    (ForbiddenError, 403, "forbidden", "This API key may not do this"),
    (UnknownModelError, 404, "unknown-model", "There is no such model"),
    (CheckpointRefusedError, 422, "checkpoint-refused", "The checkpoint can't be loaded"),
    (TooLargeError, 413, "too-large", "The request is too large"),
    (MediaTypeError, 415, "unsupported-media-type", "The media type isn't supported"),
    (NotAcceptableError, 406, "not-acceptable", "The answer can't have this media type"),
    (MalformedRequestError, 400, "malformed-request", "This is no HTTP request"),
    (TargetTooLongError, 414, "target-too-long", "The request's target is too long"),
    (HeadersTooLargeError, 431, "headers-too-large", "The request's headers are too large"),
    (TransferCodingError, 501, "transfer-coding", "The transfer coding isn't supported"),
    (MisdirectedError, 421, "misdirected", "The request is to another host"),
    (ForeignPageError, 403, "foreign-page", "A page of another site may not do this"),
    (TooManyConnectionsError, 503, "too-many-connections", "The service has too many connections"),
    (EngineSilentError, 503, "engine-silent", "The engine shows no sign of life"),
    (SlowRequestError, 408, "slow-request", "The request didn't arrive in time"),
    (RateLimitError, 429, "rate-limited", "The caller asks too much"),
    (QueueFullError, 429, "queue-full", "The service is busy"),
    (NotReadyError, 503, "not-ready", "The service isn't ready"),
    (DeadlineError, 504, "deadline-passed", "There was no answer in time"),
    (ClientGoneError, 499, "client-gone", "The client closed the connection"),
)

HINTS = {
    404: "There is nothing at this path; GET / says what there is.",
    405: "This path doesn't take this method; the Allow header says which it takes.",
}


def problem_details(error: Exception, request_id: str) -> ProblemDetails:
    """Returns the problem that answers an error.

    Args:
        error: Any exception.
        request_id: Shown for errors that aren't the client's, so that the log line can be found.
    """
    if isinstance(error, HTTPException):
        return _http_problem(error)
    if isinstance(error, MemoryError):
        error = NotReadyError("The memory is full. Try again later, or send fewer rows.", retry_after=5)
    for kind, status, name, title in TABLE:
        if isinstance(error, kind):
            retry_after = getattr(error, "retry_after", None)
            headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
            if isinstance(error, UnauthorizedError):
                headers["WWW-Authenticate"] = "Bearer"
            return ProblemDetails(
                status=status,
                type=f"urn:murho:problem:{name}",
                title=title,
                detail=_bad_input_detail(error) if isinstance(error, InputError) else str(error),
                errors=error.problems if isinstance(error, InputError) else (),
                headers=headers,
            )
    return ProblemDetails(
        status=500,
        type="urn:murho:problem:internal",
        title="The service failed",
        detail=f"This is an error of the service, not of the request. Its log says more under {request_id}.",
    )


def _http_problem(error: HTTPException) -> ProblemDetails:
    """Returns the problem of an error that the web framework raised, such as an unknown path."""
    phrase = HTTPStatus(error.status_code).phrase
    return ProblemDetails(
        status=error.status_code,
        type="about:blank",
        title=phrase,
        detail=HINTS.get(error.status_code, str(error.detail)),
        headers=dict(error.headers or {}),
    )


def _bad_input_detail(error: InputError) -> str:
    """Returns one sentence: the problem, or the number of problems if there are several."""
    total = error.total if isinstance(error, BadInputError) else len(error.problems)
    least = "At least " if isinstance(error, BadInputError) and error.more else ""
    first = error.problems[0]
    if total == 1:
        return f"{first.pointer}: {first.message}" if first.pointer else first.message
    listed = "all are" if total == len(error.problems) else f"the first {len(error.problems)} are"
    return f"{least}{total} things are wrong with the input; {listed} listed in errors."
