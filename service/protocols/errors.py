"""Errors as the protocol has them: `{"error": "what is wrong"}`, with a status that isn't 200."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

import orjson
from starlette.responses import Response

if TYPE_CHECKING:
    from murho.service.errors import ProblemDetails

__all__ = ["error_response", "error_text", "is_inference_path"]

MOST_SAID = 10
"""Problems of one request that are told; its clients show a line, not a list."""


def is_inference_path(path: str) -> bool:
    """Returns whether a path is one of the protocol, whether or not there is anything at it."""
    return path == "/v2" or path.startswith("/v2/")


def error_response(problem: ProblemDetails) -> Response:
    """Returns the answer to an error. Bad input is 400 here, as in the protocol's own description."""
    bad_input = problem.status == HTTPStatus.UNPROCESSABLE_ENTITY
    return Response(
        orjson.dumps({"error": error_text(problem)}),
        status_code=HTTPStatus.BAD_REQUEST if bad_input else problem.status,
        headers=dict(problem.headers),
        media_type="application/json",
    )


def error_text(problem: ProblemDetails) -> str:
    """Returns one text for a problem: what is wrong, and where."""
    if len(problem.errors) < 2:
        return problem.detail
    said = [f"{item.pointer}: {item.message}" if item.pointer else item.message for item in problem.errors[:MOST_SAID]]
    more = len(problem.errors) - len(said)
    return " ".join([*said, f"And {more} more."] if more else said)
