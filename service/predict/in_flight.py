"""One request for predictions, from its arrival to its answer: what every protocol does alike.

A protocol reads the body and writes the answer. The model, the limits, the queue, the metrics and the log are here.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Self, TypeVar

from starlette.datastructures import QueryParams

from murho.model.errors import MurhoError, Problem
from murho.model.evaluation.recorded import with_grid
from murho.service.engine.jobs import Answer, Job, ModelLike, RowsNotFiniteError, Timing
from murho.service.engine.scheduler import PASS_SECONDS
from murho.service.errors import (
    BadInputError,
    ClientGoneError,
    DeadlineError,
    NotReadyError,
    TooLargeError,
    wrong,
)
from murho.service.predict.answers import MAX_WARNINGS, Body, Codec, ParsedRequest, Terms, ToRecord
from murho.service.predict.budgets import PLAIN, SMALL_BYTES, ByteBudget, LargeResponse, Lease, decompress, read_body
from murho.service.predict.json_rows import MAX_LISTED, Inputs, cells_of, pointer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from starlette.types import Receive, Scope

    from murho.model.predictive.prediction import AdaptedBands, AnyPrediction, PredictOptions
    from murho.model.tables.schema import Columns
    from murho.service.context import ServiceContext
    from murho.service.engine.admission import Admitted
    from murho.service.predict.options import RecordOptions
    from murho.service.security import Caller
    from murho.service.telemetry.metrics import OfVersion

ResultT = TypeVar("ResultT")

BYTES_PER_ROW_DRAW = 16
"""Reading a body, which may be refused then, counts as so much work at least."""
SMALL_BODY_BYTES = 2**14
"""The worst body of this size that we know, empty objects, takes 9 ms to refuse; a good one takes less than 1 ms."""
MOST_RECORDED_AT_ONCE = 64
"""Rows whose record takes the event loop less than a millisecond."""
MOST_CLASS_VALUES = 100_000_000
"""Of one answer: as many as a million rows with a hundred percentiles of a number have."""


class InFlight:
    """One request for predictions; while it is entered, it is in flight.

    Args:
        service: The parts of the service.
        scope: The request.
        receive: Its messages.
        name: The model that is to answer; None for the default model.
        version: Its version; None for the latest.

    Attributes:
        model: The model that answers.
        counted: Counts what becomes of it.
        headers: The request's headers by name in lower case; of several with one name, the last.
        query: Its query parameters; with commas between the values of several with one name.
        rows: How many rows are computed.

    Entering it raises:
        NotReadyError: No model is loaded, or the service takes no new predictions.
        UnknownModelError: There is no such model or version.
    """

    model: ModelLike
    counted: OfVersion

    def __init__(
        self,
        service: ServiceContext,
        scope: Scope,
        receive: Receive,
        name: str | None = None,
        version: str | None = None,
    ) -> None:
        self.service, self._named = service, (name, version)
        self.headers: Mapping[str, str] = scope["state"]["headers"]
        self.query = _query_of(query) if (query := scope["query_string"]) else {}
        self._scope, self._receive = scope, receive
        self._caller: Caller = scope["state"]["caller"]
        self._begin = service.engine.clock()
        self.rows, self._timing = 0, Timing()
        self._admitted: Admitted | None = None
        self._charged, self._deadline = 0.0, self._begin + service.settings.request_timeout
        self._lease, self._answer = Lease(service.request_budget), Lease(service.answer_budget)
        self._leaving: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        service, (name, version) = self.service, self._named
        if service.lifecycle.closing:
            raise NotReadyError("The service is shutting down.")
        name = service.settings.default_model if name is None else name
        self.model = service.registry.snapshot.find(name, version)
        self.counted = service.telemetry.versions[self.model.name, self.model.version]
        service.lifecycle.in_flight += 1
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self.service.lifecycle.in_flight -= 1
        if self._admitted is not None:
            self.service.engine.admission.end(self._admitted)
        for lease in (self._lease, self._answer):
            lease.resize(0)
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None  # its error has a traceback, which has this object
        if isinstance(error, MurhoError):
            seconds = self.service.engine.clock() - self._begin
            self.counted.count_failure(seconds)

    async def body(self) -> bytes:
        """Return the body as it was sent.

        Raises:
            QueueFullError: Too much is pending, so that the body isn't read; or there is no memory for it.
            TooLargeError, SlowRequestError, ClientGoneError: The body doesn't come, or is too large.
            RateLimitError: The caller can't have such a body read now.
            BadInputError: The header that gives seconds is wrong.
        """
        self._allow(None)
        self.service.engine.admission.require_room()  # what is refused costs next to nothing: it is not even read
        arrived = self._scope["state"].get("arrived", False)  # `http.connection` says so
        seconds, most = self.service.settings.request_timeout, self.service.settings.max_body_bytes
        body = await read_body(self._receive, self.headers, seconds, most, self._lease, arrived=arrived)
        if len(body) > SMALL_BYTES:
            self.charge(len(body) / BYTES_PER_ROW_DRAW, reading=True)
        return body

    async def decode(
        self, decode: Callable[[bytes, Terms], ResultT], terms: Terms, *, unpacks: bool = False
    ) -> ResultT:
        """Return the rows and the options of the request, whose body is read; a large one is decoded in a thread.

        Args:
            decode: See `Codec.decode`.
            terms: How it is read.
            unpacks: See `Codec`.

        Raises:
            BadInputError: A row or an option is wrong.
            TooLargeError: The request is above a limit.
            MediaTypeError: The body is compressed in a way that isn't read.
            MurhoError: See `body` and `in_thread`.
        """
        body, encoding = await self.body(), self.headers.get("content-encoding", "")
        if not unpacks and len(body) <= SMALL_BODY_BYTES and encoding in PLAIN:
            return decode(body, terms)
        most = terms.settings.max_body_bytes
        return await self.in_thread(lambda: decode(decompress(body, encoding, most), terms))

    async def in_thread(self, work: Callable[[], ResultT]) -> ResultT:
        """Run large work in a thread, in turn with other callers and other routes; once the body is read.

        Raises:
            DeadlineError: It wasn't done in time.
            ClientGoneError: The client has closed the connection.
        """
        if self._leaving is None:
            self._leaving = asyncio.ensure_future(self._until_gone())
        seconds = self._deadline - self.service.engine.clock()
        done = self.service.codec_threads.submit((self._caller.name, self._scope["state"].get("route")), work)
        try:
            await asyncio.wait((done, self._leaving), timeout=max(0.0, seconds), return_when=asyncio.FIRST_COMPLETED)
            if done.done():
                return done.result()
        finally:
            done.cancel()
        if self._leaving.done():
            raise ClientGoneError("The client closed the connection before the answer.")
        raise DeadlineError(
            f"There was no answer within {self._deadline - self._begin:.3g} seconds: the request waited for others, or "
            "is large itself. Send fewer rows, ask for fewer samples, or allow more time."
        )

    async def _until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def options_to_compute(self, parsed: ParsedRequest, writer: Codec) -> tuple[PredictOptions, bool]:
        """Return the options that are computed, which may be more than is asked for, and whether to record the answer.

        Raises:
            BadInputError: The format of the answer has no place for all that is asked for, or it can't be recorded.
            TooLargeError: The answer for so many rows is too large.
        """
        options, target, rows = parsed.options, self.model.schema.target, parsed.inputs.count
        if options.draws and not writer.lists:
            message = f"{writer.media_type} has no place for draws. Accept JSON, Arrow or Parquet for the answer."
            raise wrong("/include", message)
        if (options.why or options.worth_asking) and not writer.explains:
            message = "There is no place for why and worth_asking in this format. Accept application/json."
            raise wrong("/include", message)
        classes, most = len(target.classes or (None,)), self.service.settings.max_draw_values
        draws, values = rows * options.samples * classes, rows * classes * (3 + len(options.percentiles))
        if options.draws and draws > most:
            of_classes = "" if target.classes is None else f" for {classes} classes"
            raise TooLargeError(
                f"The draws of {rows} rows and {options.samples} samples{of_classes}"
                f" are {draws} numbers; this service lists at most {most}. Send fewer rows, or ask for fewer samples."
            )
        if target.classes is not None and values > MOST_CLASS_VALUES:
            raise TooLargeError(
                f"The answer for {rows} rows, {classes} classes and {len(options.percentiles)} percentile levels has "
                f"{values} numbers; {MOST_CLASS_VALUES} are the most. Send fewer rows, or ask for fewer percentiles."
            )
        record = writer.records and self.records(parsed.request, options, rows)
        options = self.with_adapted_bands(options)
        return (with_grid(options, target) if record else options), record

    def records(self, request: RecordOptions, options: PredictOptions, rows: int) -> bool:
        """Return whether the answer to a request is to be recorded.

        Args:
            request: The options as they were sent.
            options: The same, complete.
            rows: Number of rows.

        Raises:
            BadInputError: It can't be recorded, or not under these ids.
            ForbiddenError: The caller may not record.
        """
        settings, ids, judged = self.service.settings, request.ids, options.samples > 0 and options.noise
        if request.record is None and ids is None:
            return settings.record == "all" and settings.store is not None and judged
        if request.record is False:
            if ids is not None:
                raise wrong("/ids", "Ids are of recorded rows: leave them out, or record.")
            return False
        self.service.security.require_outcomes(self._caller)
        self.service.require_recorder("/record")
        if not judged:
            message = "Only an answer with draws and noise says what outcomes to expect: ask for both, or don't record."
            raise wrong("/record", message)
        if ids is not None and len(ids) != rows:
            raise wrong("/ids", f"Expected one for each of {rows} rows, not {len(ids)}.")
        if ids is not None and len(set(ids)) != rows:
            first = {key: place for place, key in reversed(list(enumerate(ids)))}
            again = [place for place, key in enumerate(ids) if first[key] != place]
            problems = [Problem(pointer("ids", place), "An earlier row has this id.") for place in again[:MAX_LISTED]]
            raise BadInputError(problems, len(again))
        return True

    def take_rows(self, inputs: Inputs) -> None:
        """Take memory for rows, in place of the body that they were in."""
        size = 8 * inputs.count * len(inputs.columns)
        self._lease.resize(size if size > SMALL_BYTES else 0)

    async def reserve(self, size: int, budget: ByteBudget | None = None) -> None:
        """Take bytes until the request is over, once it is admitted, or as many as it lacks to have so many.

        Args:
            size: Bytes.
            budget: Where, the same at every call; None: that of answers.

        Raises:
            DeadlineError: There were none in time.
            QueueFullError: There are no further bytes: it does not wait for them, as requests could for one another.
        """
        lease = self._answer
        if size <= max(SMALL_BYTES, lease.size):
            return
        if lease.size:
            lease.budget.take(size - lease.size, lease.size)
        else:
            lease.budget = budget or lease.budget
            await lease.budget.wait(size, self._deadline - self.service.engine.clock())
        lease.size = size

    def large_response(self, body: Body) -> LargeResponse:
        """Return the answer with a body; its memory counts until it is sent.

        Raises:
            QueueFullError: It takes more than the request has, and there is no memory for it.
        """
        self._answer.resize(len(body.content))
        lease, self._answer = self._answer, Lease(self.service.answer_budget)
        return LargeResponse(body.content, lease, body.headers, body.media_type)

    def with_adapted_bands(self, options: PredictOptions) -> PredictOptions:
        """Return options with the bands that follow outcomes, if there are any."""
        adapted = None if self.service.bands is None else self.service.bands.of(self.model)
        if adapted is None or not (options.calibrated and options.noise and options.samples):
            return options
        return replace(options, adapted=adapted)

    async def record(
        self,
        parsed: ParsedRequest,
        prediction: AnyPrediction,
        *,
        adapted: AdaptedBands | None = None,
        decisions: list[str] | None = None,
        shared: tuple[str, str] | None = None,
    ) -> tuple[Sequence[str | None], list[dict[str, str]]]:
        """Record an answer; return the ids of its rows, None each if they could not be, and warnings.

        Args:
            parsed: The request.
            prediction: The answer to options that `with_grid` has returned.
            adapted: How outcomes have moved its bands.
            decisions: JSON of each row, if these are decisions.
            shared: What these share: an id and JSON.
        """
        recorder, telemetry, inputs = self.service.require_recorder(), self.service.telemetry, parsed.inputs
        own = parsed.request.ids
        stored = None if own is None else [self._caller.stored_id(key) for key in own]
        state = None if adapted is None else adapted.state

        def answer() -> ToRecord:
            cells = cells_of(self.model.schema, inputs.columns) if self.service.settings.record_inputs else None
            return ToRecord(self.model, prediction, stored, cells, decisions, state, shared)

        if inputs.count > MOST_RECORDED_AT_ONCE:
            (ids,) = await self.in_thread(lambda: recorder.record([answer()])) or (None,)
        else:
            ids = await recorder.with_others(answer())
        if ids is None:
            telemetry.unrecorded.inc(inputs.count)
            message = "The store is behind: these rows aren't recorded."
            return [None] * inputs.count, [{"pointer": "/record", "message": message}]
        return own or ids, []

    def admit(
        self, rows: int, options: PredictOptions, timeout: float | None, columns: Columns | None = None, more: int = 0
    ) -> tuple[float, int]:
        """Admits the work of all rows until the request is over, and charges it.

        Args:
            rows: Their number.
            options: The options.
            timeout: Seconds that the options give for the answer; None: none.
            columns: The rows, if they are known.
            more: Further rows, with cells to impute.

        Returns:
            What it costs, and how many of the rows have cells to impute.

        Raises:
            BadInputError: The header that gives seconds is wrong.
            TooLargeError, QueueFullError, NotReadyError: There is no room for it (`Admission.require_room`).
            RateLimitError: It is too much for its caller now.
        """
        incomplete = 0 if columns is None else len(self.model.schema.incomplete(columns))
        cost = self.model.cost(rows + more, options, incomplete + more)
        self._admitted = self.service.engine.admission.admit(self.model, cost, rows)
        self.charge(cost)
        self._allow(timeout)
        return cost, incomplete

    def admit_more(self, cost: float) -> None:
        """Admits further work of a request that is admitted, and charges it; raises what `admit` does."""
        assert self._admitted is not None  # noqa: S101 - see above
        self.service.engine.admission.extend(self._admitted, cost)
        self.charge(self._admitted.cost)

    def _allow(self, timeout: float | None) -> None:
        """Set the deadline: the least of what the options, the header and the settings allow."""
        wanted = self.service.settings.request_timeout
        wanted = wanted if timeout is None else min(wanted, timeout)
        if (said := self.headers.get("x-request-timeout")) is not None:
            wanted = min(wanted, _seconds_of(said))
        self._deadline = self._begin + wanted

    def charge(self, cost: float, *, reading: bool = False) -> None:
        """Take what the request costs, in row-draws, off what its caller may take, but for what was taken before.

        Raises:
            RateLimitError: It is too much for now.
            TooLargeError: It is too much at any time.
        """
        if self.service.security.limited:
            rest, paid = cost - self._charged, self._charged
            self.service.security.admit(self._caller, rest, requests=0, paid=paid, reading=reading)
            self._charged = max(cost, self._charged)

    async def compute(
        self,
        inputs: Inputs,
        options: PredictOptions,
        *,
        incomplete: int | None = None,
        cost: float | None = None,
        most_outside: int = MAX_WARNINGS + 1,
        rows_of_pass: int | None = None,
        again: bool = False,
    ) -> Answer:
        """Return the prediction for the next rows of the request, whose work is admitted, and counts it.

        Args:
            inputs: The rows.
            options: The options.
            incomplete: How many of them have cells to impute, if that is known.
            cost: What they cost, if that is known.
            most_outside: The most values unlike the training rows to tell.
            rows_of_pass: See `Job`.
            again: Whether these are rows that were counted before.

        Raises:
            BadInputError: Rows have no finite answer.
            MurhoError: See `Engine.answer`.
        """
        model, engine = self.model, self.service.engine
        if incomplete is None:
            incomplete = len(model.schema.incomplete(inputs.columns))
        cost = model.cost(inputs.count, options, incomplete) if cost is None else cost
        if options.samples == 0:
            rows_of_pass = model.rows_without_draws(inputs.count, incomplete, PASS_SECONDS)
        job = Job(
            model,
            inputs.columns,
            options,
            inputs.count,
            cost,
            self._caller.name,
            self._deadline,
            most_outside,
            rows_of_pass,
            self._begin,
        )
        try:
            answer = await engine.answer(job, self._receive)
        except RowsNotFiniteError as error:
            message = "The value is so far outside the training range that the prediction isn't finite."
            cells = (inputs.pointer(self.rows + row, feature) for row, feature in error.cells)
            raise BadInputError(Problem(cell, message) for cell in cells) from None
        if self._admitted is not None:
            engine.admission.done(self._admitted, cost)
        self._timing.queue += job.timing.queue
        self._timing.compute += job.timing.compute
        if not again:
            self.rows += inputs.count
            self.counted.count_rows(answer.prediction, inputs.count, noise=options.noise)
        return answer

    def count_answer(self, options: PredictOptions) -> None:
        """Count the request as answered, and leave what the access log says of it."""
        name, version, timing = self.model.name, self.model.version, self._timing
        seconds = self.service.engine.clock() - self._begin
        self.counted.count_answer(self.rows, timing, seconds)
        self._scope["state"]["facts"] = {
            "caller": self._caller.name,
            "model": name,
            "version": version,
            "rows": self.rows,
            "samples": options.samples,
            "queue_ms": round(1000 * timing.queue, 2),
            "compute_ms": round(1000 * timing.compute, 2),
        }


def _query_of(text: bytes) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for name, value in QueryParams(text).multi_items():
        found.setdefault(name, []).append(value)
    return {name: ",".join(values) for name, values in found.items()}


def _seconds_of(said: str) -> float:
    """Return the seconds that the header X-Request-Timeout says.

    Raises:
        BadInputError: It is no positive number.
    """
    try:
        seconds = float(said)
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < float("inf"):
        message = f"The header X-Request-Timeout is {said[:80]!r}; it should be a positive number of seconds."
        raise wrong("", message)
    return seconds
