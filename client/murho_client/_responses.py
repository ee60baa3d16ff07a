"""What a response means: the JSON of a Murho service, one of its errors, or something else that answered."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NoReturn

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
    Transient,
    UnexpectedAnswer,
    UnknownModel,
    Unreachable,
)

if TYPE_CHECKING:
    from murho_client._data import Batch

__all__ = ["Response", "read_answer", "read_ready"]


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
class Response:
    """A response of the service, as it came.

    Attributes:
        address: The address that was asked, without a password.
        status: The HTTP status.
        headers: The headers; names are found in upper and in lower case.
        body: The whole body.
    """

    address: str
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def request_id(self) -> str | None:
        """The id of the request in the log of the service."""
        return self.headers.get("x-request-id")

    @property
    def media_type(self) -> str:
        """What the response says that its body is, in lower case and without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def json(self) -> dict[str, Any]:
        """Return the JSON object in the body.

        Raises:
            UnexpectedAnswer: There is none.
        """
        document = self._document()
        if document is None:
            raise UnexpectedAnswer(f"{self._describe()}. That is no Murho service; check the address.")
        return document

    def _document(self) -> dict[str, Any] | None:
        """Return the JSON object in the body; None if there is none."""
        if not self.media_type.endswith(("/json", "+json")):
            return None
        with suppress(ValueError, RecursionError):
            document = json.loads(self.body, parse_constant=_refuse)
            if isinstance(document, dict):
                return document
        if self.status == 200:
            # Without its text: that may be a prediction, which belongs into no log.
            fault = f"{self.address} answered with {len(self.body)} bytes that are no JSON object; they may be cut."
            raise Transient(UnexpectedAnswer(fault))
        return None

    def _describe(self) -> str:
        """Return the response for people: address, status, kind and beginning."""
        kind = self.headers.get("content-type") or "no Content-Type"
        begin = " ".join(self.body[: 2 * SHOWN].decode("utf-8", "replace").split())[:SHOWN]
        return f"{self.address} answered {self.status} ({kind[:SHOWN]}): {begin or 'nothing'}"

    def check(self, batch: Batch | None = None, start: int = 0) -> Response:
        """Return the response itself, if it is no error.

        Args:
            batch: The rows that were sent, if there were any.
            start: The number of the first one in the data as given.

        Raises:
            ServiceError: The service answered with an error; there is a subclass for each kind.
            InvalidInput: The service can't use the request; row and feature are those of the data as given.
            UnexpectedAnswer: What answered is no Murho service.
            DeadlineExceeded: The service had no answer in time.
            Transient: Another attempt may succeed.
        """
        status = self.status
        if status < 300:
            return self
        if status < 400:
            to = self.headers.get("location", "nowhere").partition("?")[0][:SHOWN]
            raise UnexpectedAnswer(f"{self.address} redirects ({status}) to {to}. Use the address of the service.")
        problem = self._document() or {}
        detail = problem.get("detail") or problem.get("title")
        message = f"{self.address}: {detail}" if isinstance(detail, str) else self._describe()
        if status in (404, 405) and not str(problem.get("type", "")).startswith("urn:murho:"):
            raise UnexpectedAnswer(f"{message} That is no Murho service, or one of another version; check the address.")
        if status == 422:
            raise _invalid(problem or {"detail": message}, batch, start)
        if status in (408, 504):
            raise DeadlineExceeded(message)
        retry_after = _seconds(self.headers.get("retry-after", ""))
        if status == 502:  # a gateway that can't reach the service
            raise Transient(Unreachable(message), retry_after)
        error = KINDS.get(status, ServiceError)(message, status, problem, retry_after)
        if status in (429, 503):
            raise Transient(error, retry_after)
        raise error


def read_ready(response: Response) -> bool:
    """Whether the service is ready, from its response to `GET /readyz`."""
    return response.status != 503 and response.check().json().get("status") == "ready"


def read_answer(response: Response, batch: Batch, start: int) -> tuple[dict[str, Any], str | None]:
    """Return the answer for the rows of one request, its warnings as `Problem`s, and the id of the request.

    Args:
        response: The response.
        batch: See `Response.check`.
        start: See `Response.check`.

    Raises:
        UnexpectedAnswer: The answer isn't one for these rows.
        MurhoClientError: See `Response.check`.
    """
    answer = response.check(batch, start).json()
    rows = answer.get("mean", answer.get("prediction"))
    if not isinstance(rows, list) or len(rows) != batch.rows:
        count = len(rows) if isinstance(rows, list) else "no"
        raise UnexpectedAnswer(f"{response.address} answered for {count} rows; {batch.rows} were sent.")
    warnings = [_locate(item, batch, start) for item in answer.get("warnings") or ()]
    return {**answer, "warnings": warnings}, response.request_id


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _seconds(retry_after: str) -> float | None:
    """Return the seconds of a Retry-After, which is a number or a date (RFC 9110, 10.2.3); None for any other text."""
    try:
        if retry_after.isdecimal():
            return float(retry_after)
        return max(parsedate_to_datetime(retry_after).timestamp() - time.time(), 0.0)
    except (ValueError, OverflowError):
        return None


def _invalid(problem: Mapping[str, Any], batch: Batch | None, start: int) -> InvalidInput:
    """Return the problems that the service found, in the terms of the data as given."""
    listed = problem.get("errors") or ()
    found = [_locate(item, batch, start) for item in listed if isinstance(item, Mapping)]
    detail = problem.get("detail") or problem.get("title") or "The service can't use the input."
    # The service lists the first problems alone, and says how many there are.
    counted = re.match(r"(\d+) validation errors", str(detail))
    total = max(int(counted[1]), len(found)) if counted and found else None
    return InvalidInput(found or [Problem(str(detail))], total, 422, problem)


def _locate(item: Mapping[str, Any], batch: Batch | None, start: int) -> Problem:
    """Return a problem or a warning of the service, with row and feature from its JSON pointer (RFC 6901)."""
    pointer, message = str(item.get("pointer", "")), str(item.get("message", ""))
    place = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
    if batch is None or place[:1] != ["inputs"]:
        return Problem(
            message, feature="/".join(place).removeprefix("inputs").removeprefix("/") or None, pointer=pointer
        )
    # Columns go as /inputs/FEATURE/ROW, an unnamed matrix as /inputs/ROW/COLUMN.
    first, second = (*place[1:], "", "")[:2]
    number, feature = (first, second) if batch.names is None else (second, first)
    if not number.isdecimal() or int(number) >= batch.rows:
        return Problem(message, feature=feature or None, pointer=pointer)
    # A warning begins with the feature.
    return batch.problem(message.removeprefix(f"{feature}: "), int(number), feature or None, start, pointer)
