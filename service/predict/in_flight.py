"""One request for predictions, from its arrival to its answer: what every protocol does alike.

A protocol reads the body and writes the answer. The model, the limits, the queue, the metrics and the log are here.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import TYPE_CHECKING

from murho.model.errors import MurhoError, Problem
from murho.service.engine.jobs import Job, RowsNotFiniteError
from murho.service.engine.scheduler import PASS_SECONDS
from murho.service.errors import BadInputError, ClientGoneError, SlowRequestError, TooLargeError
from murho.service.predict.answers import MAX_WARNINGS, Answered, answer_values, warnings_of
from murho.service.predict.memory import SMALL_BYTES, Share
from murho.service.predict.spool import WRITTEN_BYTES

if TYPE_CHECKING:
    from typing import Self

    from starlette.types import Receive, Scope

    from murho.model.predictive.prediction import PredictOptions
    from murho.service.engine.jobs import Answer, ModelLike, Timing
    from murho.service.engine.queue import Admitted
    from murho.service.parts import Parts
    from murho.service.predict.answers import Asked
    from murho.service.predict.rows import Inputs
    from murho.service.predict.spool import Spool
    from murho.service.security import Caller

__all__ = ["BYTES_PER_ROW_DRAW", "InFlight", "bad_rows", "headers_of", "read_body", "spool_body", "wanted_within"]

BYTES_PER_ROW_DRAW = 16
"""Reading a body, which may be refused then, counts as so much work at least."""
VALUE_BYTES = 32
"""Of an answer, while its passes are put together and encoded."""


class InFlight:
    """One request for predictions; while it is entered, it is in flight.

    Args:
        parts: The parts of the service.
        scope: The request.
        receive: Its messages.

    Attributes:
        headers: Its headers by name in lower case.

    Raises:
        NotReadyError: On entering it: the service takes no new predictions.
    """

    def __init__(self, parts: Parts, scope: Scope, receive: Receive) -> None:
        self.parts = parts
        self.headers = headers_of(scope)
        self._scope, self._receive = scope, receive
        self._caller: Caller = scope["state"]["caller"]
        self._begin = parts.scheduler.clock()
        self._model: ModelLike | None = None
        self._admitted: Admitted | None = None
        self._charged = 0.0
        self._share, self._answer_bytes = Share(parts.request_room), 0

    def __enter__(self) -> Self:
        self.parts.lifecycle.enter()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self.parts.lifecycle.leave()
        if self._admitted is not None:
            self.parts.scheduler.end(self._admitted)
        if self._share.size:
            self._share.resize(0)
        self.parts.answer_room.taken -= self._answer_bytes
        if isinstance(error, MurhoError) and self._model is not None:
            self.parts.statistics.failed(self._model, self.parts.scheduler.clock() - self._begin)

    def find(self, name: str | None = None, version: str | None = None) -> ModelLike:
        """Returns the model that is to answer, before the body is read.

        Args:
            name: Its name; None for the default model.
            version: Its version; None for the latest.

        Raises:
            NotReadyError: No model is loaded.
            UnknownModelError: There is no such model or version.
        """
        snapshot, default = self.parts.registry.snapshot, self.parts.settings.default_model
        self._model = model = snapshot.find_default(default) if name is None else snapshot.find(name, version)
        return model

    async def body(self) -> bytes:
        """Returns the body as it was sent.

        Raises:
            QueueFullError: Too much is pending, so that the body isn't read; or there is no memory for it.
            TooLargeError, SlowRequestError, ClientGoneError: The body doesn't come, or is too large.
            RateLimitError: The caller can't have such a body read now.
        """
        self.parts.scheduler.admission.require_room()  # what is refused costs next to nothing: it is not even read
        settings = self.parts.settings
        arrived = self._scope["state"].get("arrived", False)  # `http.connection` says so
        body = await read_body(
            self._receive,
            self.headers,
            settings.request_timeout,
            settings.max_body_bytes,
            self._share,
            arrived=arrived,
        )
        if len(body) > SMALL_BYTES:
            self.charge(len(body) / BYTES_PER_ROW_DRAW)
        return body

    async def spool(self, spool: Spool) -> None:
        """Collects the body in a spool; see `body`."""
        self.parts.scheduler.admission.require_room()
        settings = self.parts.settings
        await spool_body(
            self._receive, self.headers, settings.request_timeout, settings.max_body_bytes, self._share, spool
        )

    async def until_gone(self) -> None:
        """Waits until the client has closed the connection; once the body is read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def predict(self, model: ModelLike, asked: Asked) -> Answered:
        """Returns the answer.

        Raises:
            MurhoError: There is none; `errors.problem_details` has the HTTP status.
        """
        inputs, options = asked.inputs, asked.options
        cost = self.admit(model, inputs.count, options)
        deadline = self.deadline(asked.timeout)
        await self._take_memory(
            inputs, VALUE_BYTES * answer_values(inputs.count, options, model.schema.target.classes), deadline
        )
        try:
            answer = await self.compute(model, inputs, options, cost, deadline, MAX_WARNINGS + 1)
        except RowsNotFiniteError as error:
            raise bad_rows(error, inputs) from None
        self.parts.telemetry.record(model.name, model.version, inputs.count, answer, noise=options.noise)
        self.answered(model, inputs.count, options, answer.timing)
        warnings = warnings_of(answer.outside, inputs, options)
        return Answered((model.name, model.version), model.schema.target.name, options, answer.prediction, warnings)

    def admit(self, model: ModelLike, rows: int, options: PredictOptions) -> float:
        """Admits the work of all rows until the request is over, and charges it; returns its cost, in row-draws.

        Raises:
            TooLargeError, QueueFullError, NotReadyError: There is no room for it (`Admission.require_room`).
            RateLimitError: It is too much for its caller now.
        """
        cost = model.cost(rows, options)
        self._admitted = self.parts.scheduler.admission.admit(model, cost, rows)
        self.charge(cost)
        return cost

    def charge(self, cost: float) -> None:
        """Takes what the request costs, in row-draws, off what its caller may take, but for what was taken before.

        Raises:
            RateLimitError: It is too much for now.
        """
        self.parts.security.admit(self._caller, cost - self._charged, requests=0)
        self._charged = max(cost, self._charged)

    def deadline(self, timeout: float | None) -> float:
        """Returns the time on the scheduler's clock after which the answer is no longer wanted.

        Args:
            timeout: Seconds that the options of the request give; None: none.

        Raises:
            BadInputError: The header that gives seconds is wrong.
        """
        return self._begin + wanted_within(timeout, self.headers, self.parts.settings.request_timeout)

    async def _take_memory(self, inputs: Inputs, answer: int, deadline: float) -> None:
        """Takes memory for rows, in place of the body that they were in, and bytes for their answer.

        Raises:
            QueueFullError: There is none for the rows.
            DeadlineError: There was none for the answer in time.
        """
        rows = 8 * inputs.count * len(inputs.columns)
        if rows > SMALL_BYTES or self._share.size:
            self._share.resize(rows if rows > SMALL_BYTES else 0)
        if answer > SMALL_BYTES:
            await self.parts.answer_room.take(answer, deadline - self.parts.scheduler.clock())
            self._answer_bytes = answer

    async def compute(
        self, model: ModelLike, inputs: Inputs, options: PredictOptions, cost: float, deadline: float, most_outside: int
    ) -> Answer:
        """Returns the prediction for some rows of the request, whose work is admitted; see `Scheduler.answer`."""
        job = Job(
            model,
            inputs.columns,
            options,
            inputs.count,
            cost,
            self._caller.name,
            deadline,
            most_outside,
            asyncio.get_running_loop().create_future(),
            model.rows_without_draws(inputs.columns, PASS_SECONDS) if options.samples == 0 else None,
        )
        return await self.parts.scheduler.answer(job, self._receive)

    def done(self, cost: float) -> None:
        """Counts a part of the admitted work as done."""
        if self._admitted is not None:
            self.parts.scheduler.admission.done(self._admitted, cost)

    def answered(self, model: ModelLike, rows: int, options: PredictOptions, timing: Timing) -> None:
        """Counts the request as answered, and leaves what the access log says of it."""
        self.parts.statistics.answered(model, rows, timing, self.parts.scheduler.clock() - self._begin)
        self._scope["state"]["facts"] = {
            "caller": self._caller.name,
            "model": model.name,
            "version": model.version,
            "rows": rows,
            "samples": options.samples,
            "queue_ms": round(1000 * timing.queue, 2),
            "compute_ms": round(1000 * timing.compute, 2),
        }


def bad_rows(error: RowsNotFiniteError, inputs: Inputs, first: int = 0) -> BadInputError:
    """Returns the error of rows without a finite answer; `first` rows of the request come before them."""
    message = "The value is so far outside the training range that the prediction isn't finite."
    return BadInputError(Problem(inputs.pointer(first + row, feature), message) for row, feature in error.cells)


def headers_of(scope: Scope) -> dict[str, str]:
    """Returns the headers by name in lower case; of several with one name, the last."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


async def read_body(
    receive: Receive, headers: dict[str, str], seconds: float, most: int, share: Share, *, arrived: bool = False
) -> bytes:
    """Returns the whole body.

    Args:
        receive: The next message of the client.
        headers: The request's headers.
        seconds: The most seconds that the body may take.
        most: The most bytes.
        share: Takes memory for it as it arrives; a small one that is there already needs none.
        arrived: Whether all of it is there already, so that no timer is needed.

    Raises:
        TooLargeError: The body is larger, as announced before it is read, or as found.
        SlowRequestError: The body takes longer.
        ClientGoneError: The client closed the connection before the end.
        QueueFullError: There is no memory for it.
    """
    _require_announced(headers, most)
    try:
        async with nullcontext() if arrived else asyncio.timeout(seconds):
            body, last = await _next_part(receive)
            if not last or len(body) > SMALL_BYTES:
                share.resize(len(body))
            if not last:
                parts = bytearray(body)
                while not last and len(parts) <= most:
                    part, last = await _next_part(receive)
                    share.resize(share.size + len(part))
                    parts += part
                if len(parts) > most:
                    raise _too_large(most)
                body = bytes(parts)
    except TimeoutError:
        raise SlowRequestError(f"The body didn't arrive within {seconds:.3g} seconds.") from None
    if len(body) > most:
        raise _too_large(most)
    return body


async def spool_body(
    receive: Receive, headers: dict[str, str], seconds: float, most: int, share: Share, spool: Spool
) -> None:
    """Collects the whole body in a spool; takes the other arguments of `read_body`, and raises what it raises."""
    _require_announced(headers, most)
    waiting, last = bytearray(), False
    try:
        async with asyncio.timeout(seconds):
            while not last:
                part, last = await _next_part(receive)
                share.resize(len(waiting) + len(part))
                waiting += part
                if spool.size + len(waiting) > most:
                    raise _too_large(most)
                if last or len(waiting) >= WRITTEN_BYTES:
                    await asyncio.to_thread(spool.write, bytes(waiting))
                    waiting.clear()
                    share.resize(0)
    except TimeoutError:
        raise SlowRequestError(f"The body didn't arrive within {seconds:.3g} seconds.") from None


def _require_announced(headers: dict[str, str], most: int) -> None:
    """Checks the size that a request announces.

    Raises:
        TooLargeError: It is above the limit.
    """
    announced = headers.get("content-length", "")
    if announced.isdecimal() and (len(announced) > 18 or int(announced) > most):
        raise _too_large(most)


async def _next_part(receive: Receive) -> tuple[bytes, bool]:
    """Returns the next part of the body, and whether it is the last."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientGoneError("The client closed the connection before the end of its request.")
    return message.get("body", b""), not message.get("more_body", False)


def _too_large(most: int) -> TooLargeError:
    return TooLargeError(f"The body is larger than {most} bytes, the most that this service takes. Send parts.")


def wanted_within(option: float | None, headers: dict[str, str], most: float) -> float:
    """Returns the seconds in which an answer is wanted: the least of the option, the header and the service's limit.

    Raises:
        BadInputError: The header is no positive number.
    """
    wanted = most if option is None else min(most, option)
    said = headers.get("x-request-timeout")
    if said is None:
        return wanted
    try:
        seconds = float(said)
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < float("inf"):
        message = f"The header X-Request-Timeout is {said[:80]!r}; it should be a positive number of seconds."
        raise BadInputError([Problem("", message)])
    return min(wanted, seconds)
