"""What a reply means: the JSON of a Murho service, one of its errors, or something else that answered."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from murho_client._arrow import MEDIA_TYPE, arrow_answer
from murho_client._errors import (
    AuthenticationError,
    Busy,
    DeadlineExceeded,
    InternalError,
    InvalidInput,
    NotReady,
    Problem,
    ServiceError,
    TooLarge,
    UnexpectedAnswer,
    UnknownModel,
    Unreachable,
)
from murho_client._retry import Transient

if TYPE_CHECKING:
    import httpx

    from murho_client._data import Batch

__all__ = ["Reply", "broken", "read_answer", "read_json", "read_ready"]

KINDS: dict[int, type[ServiceError]] = {
    401: AuthenticationError,
    403: AuthenticationError,
    404: UnknownModel,
    413: TooLarge,
    429: Busy,
    500: InternalError,
    503: NotReady,
}
SHOWN = 120


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply with its whole body.

    Attributes:
        address: The address that was asked, without a password.
        status: The HTTP status.
        headers: The headers.
        body: The body.
    """

    address: str
    status: int
    headers: httpx.Headers
    body: bytes

    @property
    def media_type(self) -> str:
        """What the reply says that its body is, in lower case and without parameters."""
        kind: str = self.headers.get("content-type", "")
        return kind.partition(";")[0].strip().lower()

    @property
    def is_json(self) -> bool:
        """Whether the reply says that it is JSON."""
        return self.media_type.endswith(("/json", "+json"))

    def describe(self) -> str:
        """The reply for people: address, status, kind and beginning."""
        kind = self.headers.get("content-type") or "no Content-Type"
        begin = " ".join(self.body[: 2 * SHOWN].decode("utf-8", "replace").split())[:SHOWN]
        return f"{self.address} answered {self.status} ({kind[:SHOWN]}): {begin or 'nothing'}"


def read_json(reply: Reply) -> dict[str, Any]:
    """The JSON object of a reply.

    Raises:
        ServiceError: The service answered with an error; there is a subclass for each kind.
        InvalidInput: The service can't use the request.
        UnexpectedAnswer: What answered is no Murho service.
        DeadlineExceeded: The service had no answer in time.
        Transient: Another attempt may succeed.
    """
    if 300 <= reply.status < 400:
        to = reply.headers.get("location", "nowhere").partition("?")[0][:SHOWN]
        raise UnexpectedAnswer(f"{reply.address} redirects ({reply.status}) to {to}. Use the address of the service.")
    if reply.status != 200:
        _raise_problem(reply)
    if not reply.is_json:
        raise UnexpectedAnswer(f"{reply.describe()}. That is no Murho service; check the address.")
    document = _parse(reply.body)
    if document is None:
        # Without its text: that may be a prediction, which belongs into no log.
        fault = f"{reply.address} answered with {len(reply.body)} bytes that are no JSON object; they may be cut."
        raise Transient(UnexpectedAnswer(fault))
    return document


def read_ready(reply: Reply) -> bool:
    """Whether the service is ready, from its reply to `GET /readyz`; see `read_json` for errors."""
    if reply.status == 503:
        return False
    return read_json(reply).get("status") == "ready"


def read_answer(reply: Reply, batch: Batch, start: int) -> dict[str, Any]:
    """The answer for the rows of one request.

    Args:
        reply: The reply.
        batch: The rows of the request.
        start: The number of the first one in the data as given.

    Raises:
        InvalidInput: The service can't use the rows or options; row and feature are those of the data as given.
        UnexpectedAnswer: The answer isn't one for these rows.
        MurhoClientError: See `read_json`.
    """
    if reply.status == 422 and reply.is_json and (problem := _parse(reply.body)) is not None:
        raise _invalid(problem, batch, start)
    answer = _read_arrow(reply) if reply.media_type == MEDIA_TYPE and reply.status == 200 else read_json(reply)
    missing = [key for key in ("model", "target", "samples", "seed") if key not in answer]
    rows = answer.get("mean", answer.get("prediction"))
    if missing or rows is None:
        what = ", ".join(missing or ["mean"])
        raise UnexpectedAnswer(f"{reply.address} left out {what}: the service is too old or too new for this client.")
    listed = isinstance(rows, list | np.ndarray)
    if not listed or len(rows) != batch.rows:
        count = len(rows) if listed else type(rows).__name__
        raise UnexpectedAnswer(f"{reply.address} answered for {count} rows; {batch.rows} were sent.")
    return answer


def _read_arrow(reply: Reply) -> dict[str, Any]:
    """The answer in an Arrow stream; another attempt may bring the whole of one that is cut."""
    document = arrow_answer(reply.body)
    if document is None:
        fault = f"{reply.address} answered with {len(reply.body)} bytes that are no Arrow answer; they may be cut."
        raise Transient(UnexpectedAnswer(fault))
    return document


def broken(address: str, error: httpx.RequestError, *, answering: bool) -> Transient:
    """The failure of an attempt whose connection broke.

    Args:
        address: The address that was asked, without a password.
        error: What the HTTP library says.
        answering: Whether the answer had begun.
    """
    reason = str(error).rstrip(".") or type(error).__name__
    if answering:
        return Transient(UnexpectedAnswer(f"{address} closed the connection half-way through its answer: {reason}."))
    return Transient(
        Unreachable(f"{address} can't be reached: {reason}. Is the service running, and the address right?")
    )


def _parse(body: bytes) -> dict[str, Any] | None:
    """The JSON object in a body; None if there is none."""
    try:
        document = json.loads(body, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _raise_problem(reply: Reply) -> NoReturn:
    status = reply.status
    problem = (_parse(reply.body) if reply.is_json else None) or {}
    detail = problem.get("detail") or problem.get("title")
    message = f"{reply.address}: {detail}" if isinstance(detail, str) else reply.describe()
    retry_after = _seconds(reply.headers.get("retry-after"))
    if status in (404, 405) and not str(problem.get("type", "")).startswith("urn:murho:"):
        raise UnexpectedAnswer(f"{message} That is no Murho service, or one of another version; check the address.")
    if status == 422:
        raise _invalid(problem or {"detail": message}, None, 0)
    if status in (408, 504):
        raise DeadlineExceeded(message)
    if status == 502:  # a gateway that can't reach the service
        raise Transient(Unreachable(message), retry_after)
    error = KINDS.get(status, ServiceError)(message, status, problem, retry_after)
    if status in (429, 503):
        raise Transient(error, retry_after)
    raise error


def _seconds(retry_after: str | None) -> float | None:
    """The seconds in a Retry-After; None for none and for a date, which services seldom send."""
    return float(retry_after) if retry_after is not None and retry_after.isdecimal() else None


def _invalid(problem: Mapping[str, Any], batch: Batch | None, start: int) -> InvalidInput:
    """The problems that the service found, in the terms of the data as given."""
    listed = problem.get("errors")
    found = [_locate(item, batch, start) for item in listed if isinstance(item, Mapping)] if listed else []
    detail = problem.get("detail") or problem.get("title") or "The service can't use the input."
    # The service lists the first problems alone, and says how many there are.
    counted = re.match(r"(\d+) things are wrong", str(detail))
    total = max(int(counted[1]), len(found)) if counted and found else None
    return InvalidInput(found or [Problem(str(detail))], total, 422, problem)


def _locate(item: Mapping[str, Any], batch: Batch | None, start: int) -> Problem:
    """A problem of the service, with row and feature from its JSON pointer."""
    pointer, message = str(item.get("pointer", "")), str(item.get("message", ""))
    place = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
    if batch is None or place[:1] != ["inputs"]:
        return Problem(message, feature="/".join(place) or None, pointer=pointer)
    # Columns go as /inputs/FEATURE/ROW, an unnamed matrix as /inputs/ROW/COLUMN.
    first, second = (*place[1:], "", "")[:2]
    number, feature = (first, second) if batch.names is None else (second, first)
    if not number.isdecimal() or int(number) >= batch.rows:
        return Problem(message, feature=feature or None, pointer=pointer)
    row = int(number)
    label = start + row if batch.labels is None else batch.labels[row]
    return Problem(message, start + row, label, feature or None, pointer)
