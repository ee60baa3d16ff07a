"""The engine of another process, as a front end has it: its jobs, and its snapshot of what is served."""

from __future__ import annotations

import asyncio
import pickle
import socket
import time
import weakref
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from murho.model.predictive.prediction import PredictOptions, assemble
from murho.model.tables.schema import FeatureKind, UnfamiliarValue
from murho.service.engine.admission import Admission, WorkRates
from murho.service.engine.engine import Engine, OnPass
from murho.service.engine.jobs import Answer, Job
from murho.service.engine_process.channel import (
    ChangeOutcome,
    ChangeRequest,
    Channel,
    JobBlock,
    JobCancellation,
    JobHeader,
    Message,
    ModelRelease,
    OptionsDefinition,
    PassAnswers,
    SnapshotReceipt,
    SnapshotUpdate,
)
from murho.service.engine_process.mirror import RemoteModel, SharedSnapshot
from murho.service.errors import NotReadyError
from murho.service.models.loader import Change, Registry, Swap

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from murho.service.engine_process.board import Board
    from murho.service.security import Buckets
    from murho.service.settings import Settings

MOST_OPTIONS = 1024
"""Options that the engine knows by number; an older number gets another meaning."""
AGAIN_SECONDS = 0.1
"""From a lost engine to the next try to connect."""
SHOWN_SECONDS = 1.0
"""In this time an engine that has loaded says what it serves."""


class FrontEnd(NamedTuple):
    """One of the front ends of a service.

    Attributes:
        number: 1 and up.
        engine: Path of the engine's socket.
        board: Of all processes.
        buckets: What callers have taken, of all front ends.
        supervisor: A descriptor that comes to its end with the supervisor.
    """

    number: int
    engine: Path
    board: Board
    buckets: Buckets
    supervisor: int


class RemoteEngine(Engine):
    """The engine process, which this front end is connected to; if it is lost, it comes again.

    Args:
        front_end: This process.
        settings: Of the service.
        registry: Gets the snapshots.
        on_pass: Called after each pass that this front end is to count.
        changed: Called with the snapshots before and after every change.
    """

    def __init__(
        self,
        front_end: FrontEnd,
        settings: Settings,
        registry: Registry,
        on_pass: OnPass = lambda *_: None,
        changed: Callable[[Swap], None] = lambda _: None,
    ) -> None:
        board = front_end.board
        self._rates = WorkRates()
        admission = Admission(
            settings.max_pending,
            settings.max_pending_cost,
            self._rates,
            lambda: board.standing,
            settings.max_standing_wait,
            time.monotonic,
            board.pending(front_end.number),
        )
        super().__init__(admission, time.monotonic)
        self._front_end, self._registry, self._on_pass, self._changed = front_end, registry, on_pass, changed
        self._channel: Channel | None = None
        self._numbers = count(1)
        self._jobs: dict[int, Job] = {}
        self._job_numbers: dict[Job, int] = {}
        self._options: dict[PredictOptions, int] = {}
        self._named: list[PredictOptions | None] = [None] * MOST_OPTIONS
        self._next_option = 0
        self._models: weakref.WeakValueDictionary[int, RemoteModel] = weakref.WeakValueDictionary()
        self._changes: dict[int, asyncio.Future[None]] = {}
        self._empty = registry.snapshot
        self._shown, self._closing = asyncio.Event(), False

    def require_alive(self, most: float) -> None:
        """Check that the engine and every front end show life.

        Raises:
            EngineSilentError: One doesn't.
        """
        self._front_end.board.require_alive(most)

    async def start(self) -> None:
        """Connect to the engine, and wait a moment for what it serves.

        A front end that takes the place of another one begins to answer then, and refuses nothing.
        """
        self._connect()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._shown.wait(), SHOWN_SECONDS)

    def _connect(self) -> None:
        """Connect to the engine, which may not be there yet."""
        if self._closing:
            return
        wire = socket.socket(socket.AF_UNIX)
        wire.setblocking(False)
        try:
            wire.connect(str(self._front_end.engine))
        except OSError:
            wire.close()
            asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._connect)
            return
        self._channel = Channel(wire)
        asyncio.get_running_loop().add_reader(self._channel, self._read)

    def close(self, _seconds: float) -> bool:
        """End the connection; return true, as nothing goes on in this process."""
        self._closing = self.admission.closed = True
        self._lose()
        return True

    async def apply(self, change: Change) -> Swap:
        """Make a change as by `Loader.apply`, and return once all front ends serve what it has made.

        Raises:
            NotReadyError: The engine is lost before.
            ServiceError: See `Loader.apply`.
        """
        if self._channel is None:
            raise _lost_error()
        before, number = self._registry.snapshot, next(self._numbers)
        future = self._changes[number] = asyncio.get_running_loop().create_future()
        self._send(ChangeRequest(number, pickle.dumps(change)))
        await future
        return Swap(before, self._registry.snapshot)

    @property
    def _is_idle(self) -> bool:
        """Whether the engine has nothing of this front end."""
        return not self._jobs

    def _submit(self, jobs: Sequence[Job]) -> None:
        if self._channel is None:
            self._settle([(job, _lost_error()) for job in jobs])
            return
        by_model: dict[RemoteModel, list[Job]] = {}
        for job in jobs:
            assert isinstance(job.model, RemoteModel)  # noqa: S101 - of this front end's snapshot
            by_model.setdefault(job.model, []).append(job)
        for model, mine in by_model.items():
            if self._models.get(model.number) is not model:  # of an engine that was lost
                self._settle([(job, _lost_error()) for job in mine])
                continue
            listed = []
            for job in mine:
                number = next(self._numbers)
                self._jobs[number], self._job_numbers[job] = job, number
                listed.append(
                    JobHeader(
                        number,
                        self._number_of(job.options),
                        job.rows,
                        job.cost,
                        job.caller,
                        job.arrived,
                        job.submitted,
                        job.deadline,
                        job.max_outside,
                        job.rows_of_pass,
                    )
                )
            numbers, texts = _block(model, mine)
            self._send(JobBlock(model.number, listed, texts), [numbers])

    def _number_of(self, options: PredictOptions) -> int:
        """Return the number by which the engine knows options; tell it, if they are new."""
        if (number := self._options.get(options)) is None:
            number = self._next_option
            self._next_option = (number + 1) % MOST_OPTIONS
            if (old := self._named[number]) is not None:
                del self._options[old]
            self._options[options], self._named[number] = number, options
            self._send(OptionsDefinition(number, pickle.dumps(options)))
        return number

    def _abandon(self, job: Job) -> None:
        if (number := self._job_numbers.pop(job, None)) is not None:
            del self._jobs[number]
            self._send(JobCancellation(number))

    def _send(self, message: Message, arrays: Sequence[NDArray[Any]] = ()) -> None:
        channel = self._channel
        if channel is None:
            return
        was_full = channel.is_full
        channel.send(message, arrays)
        if channel.is_full and not was_full:
            asyncio.get_running_loop().add_writer(channel, self._flush)

    def _flush(self) -> None:
        channel = self._channel
        assert channel is not None  # noqa: S101 - what is lost has no writer
        channel.flush()
        if not channel.is_full:
            asyncio.get_running_loop().remove_writer(channel)

    def _read(self) -> None:
        channel = self._channel
        assert channel is not None  # noqa: S101 - what is lost has no reader
        descriptor = channel.fileno()
        for message, arrays in channel.receive():
            match message:
                case PassAnswers():
                    self._take_answers(message, arrays)
                case SnapshotUpdate(number, served):
                    self._show(pickle.loads(served))
                    self._send(SnapshotReceipt(number))
                case ChangeOutcome(number, failure):
                    future = self._changes.pop(number)
                    if future.cancelled():  # whoever asked has left
                        continue
                    if failure is None:
                        future.set_result(None)
                    else:
                        future.set_exception(pickle.loads(failure))
                case _:
                    raise TypeError(type(message))
        if channel.closed:
            self._lose(descriptor)

    def _take_answers(self, message: PassAnswers, arrays: Sequence[NDArray[Any]]) -> None:
        settled, at = list[tuple[Job, Answer | BaseException]](), 0
        for group in message.groups:
            named = dict(zip(group.fields, arrays[at:], strict=False))
            at += len(group.fields)
            block, start = assemble(group.facts, named), 0
            for each in group.jobs:
                stop = start + each.rows
                if (job := self._jobs.pop(each.number, None)) is not None:
                    del self._job_numbers[job]
                    job.timing.queue, job.timing.compute = each.queue, each.compute
                    outside = [UnfamiliarValue(*value) for value in each.outside]
                    settled.append((job, Answer(block, outside, slice(start, stop))))
                start = stop
        for number, error in message.failures:
            if (job := self._jobs.pop(number, None)) is not None:
                del self._job_numbers[job]
                settled.append((job, pickle.loads(error)))
        for number, done in message.progress:
            if (job := self._jobs.get(number)) is not None:
                job.done, job.begun = done, job.begun or self.clock()
        self._settle(settled)
        self.passes += 1
        if message.counted is not None:
            self._on_pass(*message.counted)
        if message.rate is not None and (model := self._models.get(message.rate[0])) is not None:
            self._rates.set(model, message.rate[1])

    def _show(self, served: SharedSnapshot) -> None:
        """Serve what the engine serves."""
        before, loop = self._registry.snapshot, asyncio.get_running_loop()
        known = dict(self._models)
        for described in served.described:
            model = known[described.number] = self._models[described.number] = RemoteModel(described)
            weakref.finalize(model, self._release, loop, model.number, self._channel).atexit = False
        self._registry.snapshot = served.snapshot(known)
        self._shown.set()
        self._changed(Swap(before, self._registry.snapshot))

    def _release(self, loop: asyncio.AbstractEventLoop, number: int, channel: Channel | None) -> None:
        """Say that no request has a model any more; called in any thread."""

        def send() -> None:
            if channel is self._channel:
                self._send(ModelRelease(number))

        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(send)

    def _lose(self, descriptor: int | None = None) -> None:
        """Answer those who wait for an engine that has gone, and wait for the next one."""
        channel, self._channel = self._channel, None
        if channel is None:
            return
        loop = asyncio.get_running_loop()
        descriptor = channel.fileno() if descriptor is None else descriptor
        loop.remove_reader(descriptor)
        loop.remove_writer(descriptor)
        channel.close()
        self._models = weakref.WeakValueDictionary()
        self._options.clear()
        self._named = [None] * MOST_OPTIONS
        jobs = list(self._jobs.values())
        self._jobs.clear()
        self._job_numbers.clear()
        self._settle([(job, _lost_error()) for job in jobs])
        for future in self._changes.values():
            if not future.cancelled():
                future.set_exception(_lost_error())
        self._changes.clear()
        self._registry.snapshot = self._empty
        self._connect()


def _block(model: RemoteModel, jobs: Sequence[Job]) -> tuple[NDArray[np.float64], list[list[str | None]]]:
    """Return the cells of jobs; see `channel.JobBlock`."""
    numbers, texts = list[list[NDArray[Any]]](), list[list[str | None]]()
    for feature in model.schema.features:
        cells = [job.columns[feature.name] for job in jobs]
        if feature.kind is FeatureKind.CATEGORICAL:
            texts.append([text for column in cells for text in column.tolist()])
        else:
            numbers.append(cells)
    rows = sum(job.rows for job in jobs)
    block = np.empty((len(numbers), rows))
    for row, cells in zip(block, numbers, strict=True):
        np.concatenate(cells, out=row)
    return block, texts


def _lost_error() -> NotReadyError:
    return NotReadyError("The engine has ended, and is started again. Try again in a moment.", retry_after=1)
