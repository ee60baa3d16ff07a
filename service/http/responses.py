"""The HTTP answers that all routes share: JSON bytes, and errors in the form of the path's protocol."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

import orjson
from starlette.responses import Response

from murho.service.errors import problem_details

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Scope

    from murho.service.errors import ProblemDetails

__all__ = ["JSONBytes", "handle_error", "handle_failure", "is_inference_path", "problem_response"]


MOST_SAID = 10
"""Problems of one request that are told to clients that show a line, not a list."""


class JSONBytes(Response):
    """A JSON answer, from bytes that are JSON already or from an object that orjson encodes."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        """Returns the bytes of the body."""
        if isinstance(content, bytes):
            return content
        return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)


def problem_response(error: Exception, scope: Scope) -> Response:
    """Returns the answer to an error: an RFC 9457 problem, or what the protocol of the path has for errors.

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


async def handle_failure(request: Request, error: Exception) -> Response:
    """Answers a failure of the service; whoever called the framework gets the error, and logs it."""
    return problem_response(error, request.scope)


async def handle_error(request: Request, error: Exception) -> Response:
    """Answers an error that was raised on purpose; raises failures of the service again, so that they are logged."""
    response = problem_response(error, request.scope)
    if response.status_code == HTTPStatus.INTERNAL_SERVER_ERROR:
        raise error
    return response


def is_inference_path(path: str) -> bool:
    """Returns whether a path is one of the Open Inference Protocol, whether or not there is anything at it."""
    return path == "/v2" or path.startswith("/v2/")


def _inference_error(problem: ProblemDetails) -> Response:
    """Returns the answer to an error at such a path. Bad input is 400 there, as in the protocol's own description."""
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
