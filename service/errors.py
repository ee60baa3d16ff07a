"""The errors of the service, each with its RFC 9457 problem, and what turns any error into an answer.

Bad input is `model.errors.InputError`. A message tells a person what is wrong, where, and what to do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar

import orjson
from starlette.exceptions import HTTPException
from starlette.responses import Response

from murho.model.errors import InputError, MurhoError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from starlette.requests import Request
    from starlette.types import Scope


class ServiceError(MurhoError):
    """The root of the service's own errors.

    Attributes:
        problem: The status, the end of the type and the title of its answers; None: it is the service's fault.
        retry_after: Seconds until another attempt makes sense; None if it never does.
    """

    problem: ClassVar[tuple[int, str, str] | None] = None
    retry_after: int | None = None

    def __init__(self, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        if retry_after is not None:
            self.retry_after = retry_after


class NotReadyError(ServiceError):
    """The service is still loading, is draining, or has no model to serve."""

    problem = 503, "not-ready", "The service isn't ready"
    retry_after = 5


class UnauthorizedError(ServiceError):
    """The request has no API key, or none that the service knows."""

    problem = 401, "unauthorized", "An API key is needed"


class ForbiddenError(ServiceError):
    """The caller's API key may not do this."""

    problem = 403, "forbidden", "This API key may not do this"


class RateLimitError(ServiceError):
    """The caller has taken all that it may take for now."""

    problem = 429, "rate-limited", "Rate limit exceeded"


class QueueFullError(ServiceError):
    """The queue is full."""

    problem = 429, "queue-full", "The service is busy"


class DeadlineError(ServiceError):
    """There was no answer in time."""

    problem = 504, "deadline-passed", "There was no answer in time"


class SlowRequestError(ServiceError):
    """The request's headers or its body did not arrive in time."""

    problem = 408, "slow-request", "The request didn't arrive in time"


class UnknownModelError(ServiceError):
    """There is no such model or version."""

    problem = 404, "unknown-model", "There is no such model"


class CheckpointRefusedError(ServiceError):
    """A checkpoint that was asked for can't be loaded."""

    problem = 422, "checkpoint-refused", "The checkpoint can't be loaded"


class TooLargeError(ServiceError):
    """The body, the rows or the work of one request are above a limit."""

    problem = 413, "too-large", "The request is too large"


class MediaTypeError(ServiceError):
    """The body is in a form that the service doesn't read."""

    problem = 415, "unsupported-media-type", "The media type isn't supported"


class NotAcceptableError(ServiceError):
    """The answer is wanted in a form that the service doesn't write."""

    problem = 406, "not-acceptable", "The answer can't have this media type"


class MalformedRequestError(ServiceError):
    """What a client sent is no HTTP request."""

    problem = 400, "malformed-request", "Malformed HTTP request"


class TargetTooLongError(ServiceError):
    """The target of a request, its path and query, is above the limit."""

    problem = 414, "target-too-long", "The request's target is too long"


class HeadersTooLargeError(ServiceError):
    """The headers of a request are above the limits."""

    problem = 431, "headers-too-large", "The request's headers are too large"


class MisdirectedError(ServiceError):
    """The request is to a host that isn't this service."""

    problem = 421, "misdirected", "The request is to another host"


class ForeignPageError(ServiceError):
    """A page of another site, open in a browser, wants to change something."""

    problem = 403, "foreign-page", "A page of another site may not do this"


class TooManyConnectionsError(ServiceError):
    """There is no room for another connection."""

    problem = 503, "too-many-connections", "The service has too many connections"


class EngineSilentError(ServiceError):
    """The engine has work and shows no sign of life."""

    problem = 503, "engine-silent", "The engine shows no sign of life"
    retry_after = 5


class OutOfMemoryError(ServiceError):
    """There is no memory for a request now; `problem_details` takes the errors of Python, Arrow and PyTorch for it."""

    problem = 503, "out-of-memory", "The service is out of memory"
    retry_after = 5

    def __init__(self) -> None:
        super().__init__("There is no memory for this request now. Send it again later, or in parts.")


class ClientGoneError(ServiceError):
    """The client closed the connection before the answer."""

    problem = 499, "client-gone", "The client closed the connection"


class ComputationError(ServiceError):
    """The model gave no finite answer for input within the training range."""


class BadInputError(InputError):
    """Rows or options of a request that can't be used, with the count of all problems.

    Attributes:
        problems: The first problems, in the order of the request.
        total: Number of problems found, listed or not.
    """

    def __init__(self, problems: Iterable[Problem], total: int | None = None) -> None:
        super().__init__(problems)
        self.total = len(self.problems) if total is None else total


def wrong(where: str, message: str) -> BadInputError:
    """Return the error of one thing that can't be used, by the JSON pointer to it."""
    return BadInputError([Problem(where, message)])


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
        """Return the members of the problem document; `errors` only if there are any."""
        document: dict[str, Any] = {
            "type": self.type,
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
        }
        if self.errors:
            document["errors"] = [{"pointer": problem.pointer, "message": problem.message} for problem in self.errors]
        return document


KIND = "urn:murho:problem"
MOST_SAID = 10
"""Problems of one request that are told to clients that show a line, not a list."""

_NO_MEMORY = re.compile("can't allocate memory|out of memory|can't start new thread", re.IGNORECASE)


def problem_details(error: Exception, request_id: str) -> ProblemDetails:
    """Return the problem that answers an error.

    Args:
        error: Any exception.
        request_id: Shown for errors that aren't the client's, so that the log line can be found.
    """
    if isinstance(error, HTTPException):
        return _http_problem(error)
    # PyTorch has no class for it, or none that can be imported here; Python none for a thread without a stack.
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _NO_MEMORY.search(str(error))):
        error = OutOfMemoryError()
    if isinstance(error, InputError):
        detail = _bad_input_detail(error)
        return ProblemDetails(422, f"{KIND}:bad-input", "The input can't be used", detail, error.problems)
    if isinstance(error, ServiceError) and error.problem is not None:
        status, kind, title = error.problem
        headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
        if isinstance(error, UnauthorizedError):
            headers["WWW-Authenticate"] = "Bearer"
        return ProblemDetails(status, f"{KIND}:{kind}", title, str(error), headers=headers)
    return ProblemDetails(
        status=500,
        type=f"{KIND}:internal",
        title="The service failed",
        detail=f"This is an error of the service, not of the request. Its log says more under {request_id}.",
    )


def _http_problem(error: HTTPException) -> ProblemDetails:
    """Return the problem of an error that the web framework raised, such as an unknown path."""
    phrase = HTTPStatus(error.status_code).phrase
    headers = dict(error.headers or {})
    hints = {
        404: "There is nothing at this path; GET /docs lists the paths.",
        405: f"This path doesn't take this method; send {headers.get('Allow', 'another')}.",
    }
    return ProblemDetails(
        status=error.status_code,
        type="about:blank",
        title=phrase,
        detail=hints.get(error.status_code, str(error.detail)),
        headers=headers,
    )


def _bad_input_detail(error: InputError) -> str:
    """Return one sentence: the problem, or the number of problems if there are several."""
    total = error.total if isinstance(error, BadInputError) else len(error.problems)
    first = error.problems[0]
    if total == 1:
        return f"{first.pointer}: {first.message}" if first.pointer else first.message
    listed = "all are" if total == len(error.problems) else f"the first {len(error.problems)} are"
    return f"{total} validation errors; {listed} listed in errors."


def problem_response(error: Exception, scope: Scope) -> Response:
    """Return the answer to an error: an RFC 9457 problem, or what the protocol of the path has for errors.

    Args:
        error: Any exception.
        scope: The request.
    """
    problem = problem_details(error, scope["state"].get("request_id", ""))
    if is_inference_path(scope["path"]):
        return _inference_error(problem)
    return Response(
        orjson.dumps(problem.document()),
        status_code=problem.status,
        headers=dict(problem.headers),
        media_type="application/problem+json",
    )


async def handle_error(request: Request, error: Exception) -> Response:
    """Answer an error that was raised on purpose; raises failures of the service again, for whoever logs them."""
    response = problem_response(error, request.scope)
    if response.status_code == HTTPStatus.INTERNAL_SERVER_ERROR:
        raise error
    return response


def is_inference_path(path: str) -> bool:
    """Return whether a path is one of the Open Inference Protocol, whether or not there is anything at it."""
    return path == "/v2" or path.startswith("/v2/")


def _inference_error(problem: ProblemDetails) -> Response:
    """Return the answer to an error at such a path. Bad input is 400 there, as in the protocol's own description."""
    text = problem.detail
    if len(problem.errors) > 1:
        said = [f"{each.pointer}: {each.message}".removeprefix(": ") for each in problem.errors[:MOST_SAID]]
        more = len(problem.errors) - len(said)
        text = " ".join([*said, f"And {more} more."] if more else said)
    bad_input = problem.status == HTTPStatus.UNPROCESSABLE_ENTITY
    return Response(
        orjson.dumps({"error": text}),
        status_code=HTTPStatus.BAD_REQUEST if bad_input else problem.status,
        headers=dict(problem.headers),
        media_type="application/json",
    )
