"""The engine process: it owns the checkpoints, their draws, the scheduler and the device, and answers front ends.

One thread reads what front ends have sent, computes the next pass, and sends the answers. Checkpoints are loaded beside
it, by the watcher's thread; another one says that the process lives.
"""

from __future__ import annotations

import gc
import os
import pickle
import select
import signal
import threading
import time
from collections import defaultdict, deque
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import structlog
from numpy.typing import NDArray

from murho.model.checkpoint.stores import store_at
from murho.model.errors import MurhoError
from murho.model.predictive.draw_cache import DrawCache
from murho.model.predictive.prediction import AnyPrediction, PredictOptions, disassemble, rows_of
from murho.model.runtime import available_processors, use_threads
from murho.model.tables.schema import Columns, FeatureKind, Schema
from murho.service.engine.freed_memory import FreedMemory
from murho.service.engine.jobs import Answer, Job, ModelLike, compute
from murho.service.engine.scheduler import Pass, Scheduler
from murho.service.engine_process.board import ENGINE, Board
from murho.service.engine_process.channel import (
    AnswerGroup,
    ChangeOutcome,
    ChangeRequest,
    Channel,
    JobAnswer,
    JobBlock,
    JobCancellation,
    Message,
    ModelRelease,
    OptionsDefinition,
    PassAnswers,
    SnapshotReceipt,
    SnapshotUpdate,
)
from murho.service.engine_process.mirror import ModelDescription, SharedSnapshot
from murho.service.models.loader import Change, Registry, Snapshot, Swap
from murho.service.models.source import CheckpointSource
from murho.service.models.watcher import Watcher

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from murho.service.models.loader import Outcome
    from murho.service.settings import Settings

BEAT_SECONDS = 1.0


class _FrontEnd:
    """The engine's side of one front end.

    Attributes:
        channel: To it.
        jobs: Its jobs that are not over, by their numbers.
        options: Options by the numbers that it gave them.
        models: Models that it may still ask, by number; each description of a model has a number of its own.
        served: The numbers of the models that it was last told to serve.
        shown: Number of the last `SnapshotUpdate` that it shows.
        waits: Whether the channel is waited for until it has room.
    """

    def __init__(self, wire: socket.socket) -> None:
        self.channel = Channel(wire)
        self.jobs: dict[int, Job] = {}
        self.options: dict[int, PredictOptions] = {}
        self.models: dict[int, ModelLike] = {}
        self.served: dict[ModelLike, int] = {}
        self.shown, self.waits = 0, False


class EngineServer:
    """Answers the front ends of one service, until a signal ends it.

    Args:
        settings: Of the service.
        listening: A Unix socket that front ends connect to.
        board: Of all processes.
        count_outcome: Counts what happened to each version.
        supervisor: A descriptor that comes to its end with the supervisor.
    """

    def __init__(
        self,
        settings: Settings,
        listening: socket.socket,
        board: Board,
        count_outcome: Callable[[Outcome], None],
        supervisor: int,
    ) -> None:
        self._settings, self._listening, self._board, self._supervisor = settings, listening, board, supervisor
        draws = DrawCache(settings.draws_bytes)
        self._memory = FreedMemory(draws)
        self._source = CheckpointSource(store_at(settings.checkpoints), settings.device, cache=draws)
        self._watcher = Watcher.of(
            settings,
            self._source,
            Registry(self._source.place),
            count_outcome,
            stopping=lambda: self._stopping,
            changed=lambda swap: self._call(partial(self._serve, swap.after)),
        )
        self._scheduler = Scheduler(compute)
        self._front_ends: dict[int, _FrontEnd] = {}  # by the descriptor of the channel
        self._owners: dict[Job, tuple[_FrontEnd, int]] = {}
        self._numbers, self._turn = count(1), 0
        self._snapshot: Snapshot | None = None
        self._changes: list[tuple[int, _FrontEnd, int, BaseException | None]] = []
        self._poll = select.epoll()
        self._tasks: deque[Callable[[], object]] = deque()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK)
        self._is_loaded = self._stopping = self._is_alone = False
        self._log = structlog.get_logger("murho.engine")

    def run(self) -> None:
        """Load, and serve until SIGTERM or SIGINT; SIGHUP looks for new versions."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stop())
        signal.signal(signal.SIGHUP, lambda *_: self._call(lambda: self._watcher.ask(Change())))
        threading.Thread(target=self._beat, name="beat", daemon=True).start()
        use_threads(self._settings.threads or available_processors())
        self._watcher.load_first()
        self._is_loaded = True
        # What is loaded stays. Without it, each full collection of garbage would look through it, for 0.3 s.
        gc.collect()
        gc.freeze()
        self._watcher.start()
        self._listening.setblocking(False)
        for descriptor in (self._listening.fileno(), self._wake, self._supervisor):
            self._poll.register(descriptor, select.EPOLLIN)
        while not self._stopping or (self._front_ends and self._is_alone):
            self._read(wait=not self._scheduler)
            if (done := self._scheduler.compute_pass()) is not None:
                self._tell(done)
            del done  # otherwise finished jobs keep their arrays alive until the next ones come
            self._board.show_queue(self._scheduler.standing)
        self._watcher.close(0.0)

    def _stop_alone(self) -> None:
        """End once all front ends have: the supervisor has died, and nobody is there to send a signal."""
        self._poll.unregister(self._supervisor)
        self._is_alone = self._stopping = True

    def _stop(self) -> None:
        if not self._is_loaded:  # a storage may hang, and nothing is lost
            os._exit(0)
        self._stopping = True
        os.eventfd_write(self._wake, 1)

    def _beat(self) -> None:
        while True:
            self._board.beat(ENGINE, self._scheduler.seconds_silent)
            self._memory.look(self._scheduler.passes)
            time.sleep(BEAT_SECONDS)

    def _call(self, task: Callable[[], object]) -> None:
        """Have the thread of `run` do something; any thread may."""
        self._tasks.append(task)
        os.eventfd_write(self._wake, 1)

    # From front ends

    def _read(self, *, wait: bool) -> None:
        """Deals with what has come; waits for it if there is nothing else to do."""
        for descriptor, event in self._poll.poll(None if wait else 0.0):
            if descriptor == self._wake:
                os.eventfd_read(self._wake)
                while self._tasks:
                    self._tasks.popleft()()
            elif descriptor == self._supervisor:
                self._stop_alone()
            elif descriptor == self._listening.fileno():
                self._accept()
            elif (front_end := self._front_ends.get(descriptor)) is not None:
                if event & select.EPOLLOUT:
                    front_end.channel.flush()
                for message, arrays in front_end.channel.receive():
                    self._handle(front_end, message, arrays)
                self._look_after(descriptor, front_end)

    def _accept(self) -> None:
        try:
            wire, _ = self._listening.accept()
        except BlockingIOError:
            return
        front_end = _FrontEnd(wire)
        self._front_ends[wire.fileno()] = front_end
        self._poll.register(wire, select.EPOLLIN)
        if self._snapshot is not None:
            self._send_snapshot(front_end, self._snapshot)
            self._look_after(wire.fileno(), front_end)

    def _look_after(self, descriptor: int, front_end: _FrontEnd) -> None:
        """Wait for room in the channel if it is full, and forget a front end that has gone."""
        if not front_end.channel.closed:
            if front_end.waits != front_end.channel.is_full:
                front_end.waits = not front_end.waits
                self._poll.modify(descriptor, select.EPOLLIN | (select.EPOLLOUT if front_end.waits else 0))
            return
        del self._front_ends[descriptor]  # closing the socket has taken it out of the poll
        for job in front_end.jobs.values():
            self._scheduler.abandon(job)
            self._owners.pop(job, None)
        self._end_changes()

    def _handle(self, front_end: _FrontEnd, message: Message, arrays: list[NDArray[Any]]) -> None:
        match message:
            case JobBlock():
                self._submit(front_end, message, arrays[0])
            case OptionsDefinition(number, options):
                front_end.options[number] = pickle.loads(options)
            case JobCancellation(number):
                if (job := front_end.jobs.pop(number, None)) is not None:
                    self._owners.pop(job, None)
                    self._scheduler.abandon(job)
            case ChangeRequest(number, change):
                self._watcher.ask(pickle.loads(change)).add_done_callback(
                    lambda future: self._call(partial(self._note_change, front_end, number, future))
                )
            case ModelRelease(model):
                del front_end.models[model]
            case SnapshotReceipt(number):
                front_end.shown = number
                self._end_changes()
            case _:
                raise TypeError(type(message))

    def _submit(self, front_end: _FrontEnd, block: JobBlock, numbers: NDArray[Any]) -> None:
        model = front_end.models[block.model]
        columns, start = columns_of(model.schema, numbers, block.texts), 0
        for each in block.jobs:
            stop = start + each.rows
            job = Job(
                model,
                columns,
                front_end.options[each.options],
                each.rows,
                each.cost,
                each.caller,
                each.deadline,
                each.max_outside,
                each.rows_of_pass,
                each.arrived,
                each.submitted,
                start,
            )
            front_end.jobs[each.number] = job
            self._owners[job] = front_end, each.number
            self._scheduler.submit([job])
            start = stop

    # To front ends

    def _tell(self, done: Pass) -> None:
        """Send what came of a pass to those who wait for it."""
        groups: defaultdict[_FrontEnd, defaultdict[int, list[tuple[int, Job, Answer]]]]
        groups = defaultdict(lambda: defaultdict(list))
        failures: defaultdict[_FrontEnd, list[tuple[int, bytes]]] = defaultdict(list)
        progress: defaultdict[_FrontEnd, list[tuple[int, int]]] = defaultdict(list)
        for job, outcome in done.settled:
            if (owner := self._owners.pop(job, None)) is None:
                continue
            front_end, number = owner
            del front_end.jobs[number]
            if isinstance(outcome, BaseException):
                failures[front_end].append((number, self._pickle(outcome)))
            else:
                groups[front_end][id(outcome.prediction)].append((number, job, outcome))
        for part in done.slices:
            if (owner := self._owners.get(part.job)) is not None:
                progress[owner[0]].append((owner[1], part.job.done))
        counted = None
        if done.slices:
            counted = done.model.name, done.model.version, len(done.slices), done.rows, done.seconds
        seconds = self._scheduler.rates.seconds(done.model, 1.0)
        for front_end in {**groups, **failures, **progress}:
            sent, arrays = list[AnswerGroup](), list[NDArray[Any]]()
            for group in groups[front_end].values():
                facts, named = disassemble(_prediction_of([answer for _, _, answer in group]))
                settled = [
                    JobAnswer(
                        number,
                        job.rows,
                        job.timing.queue,
                        job.timing.compute,
                        [(value.row, value.feature, value.message) for value in answer.outside],
                    )
                    for number, job, answer in group
                ]
                sent.append(AnswerGroup(facts, list(named), settled))
                arrays += named.values()
            known = front_end.served.get(done.model)
            rate = None if known is None else (known, seconds)
            message = PassAnswers(sent, failures[front_end], progress[front_end], counted, rate)
            self._send(front_end, message, arrays)
            counted = None  # one of them counts

    def _send(self, front_end: _FrontEnd, message: Message, arrays: list[NDArray[Any]] | None = None) -> None:
        if front_end.channel.closed:
            return
        front_end.channel.send(message, arrays or [])
        if front_end.channel.is_full:
            self._look_after(front_end.channel.fileno(), front_end)

    def _pickle(self, error: BaseException) -> bytes:
        if isinstance(error, MurhoError):
            return pickle.dumps(error)
        self._log.error("a computation failed", exc_info=error)
        return pickle.dumps(RuntimeError(repr(error)))  # what a library raises may not get through a channel

    # What is served

    def _serve(self, snapshot: Snapshot) -> None:
        """Have all front ends show a snapshot."""
        self._snapshot = snapshot
        self._turn += 1
        for front_end in list(self._front_ends.values()):
            self._send_snapshot(front_end, snapshot)

    def _send_snapshot(self, front_end: _FrontEnd, snapshot: Snapshot) -> None:
        known, described = front_end.served, []
        front_end.served = {}
        for model in snapshot.served:
            if (number := known.get(model)) is None:
                number = next(self._numbers)
                front_end.models[number] = model
                reference = self._source.reference_of(model)
                described.append(
                    ModelDescription(number, model.name, model.version, model.spec, model.answer_cost, reference)
                )
            front_end.served[model] = number
        served = SharedSnapshot.of(snapshot, front_end.served, described)
        self._send(front_end, SnapshotUpdate(self._turn, pickle.dumps(served)))

    def _note_change(self, front_end: _FrontEnd, number: int, future: Future[Swap]) -> None:
        """Note that a change is made, or could not be; the front end is told once all others show it."""
        self._changes.append((self._turn, front_end, number, future.exception()))
        self._end_changes()

    def _end_changes(self) -> None:
        least = min((each.shown for each in self._front_ends.values()), default=self._turn)
        waiting = []
        for change in self._changes:
            turn, front_end, number, failure = change
            if turn <= least:
                self._send(front_end, ChangeOutcome(number, None if failure is None else self._pickle(failure)))
            else:
                waiting.append(change)
        self._changes = waiting


def _prediction_of(answers: Sequence[Answer]) -> AnyPrediction:
    """Return the prediction for the rows of answers that share one, in their order."""
    prediction, rows = answers[0].prediction, [answer.rows for answer in answers]
    if rows[0] is None or rows[-1] is None:
        return prediction
    start, stop = rows[0].start, rows[-1].stop
    if stop - start == sum(each.stop - each.start for each in rows if each is not None):
        return prediction if start == 0 and stop == len(prediction) else rows_of(prediction, slice(start, stop))
    return rows_of(prediction, np.concatenate([np.arange(len(prediction))[each] for each in rows if each is not None]))


def columns_of(schema: Schema, numbers: NDArray[Any], texts: list[list[str | None]]) -> Columns:
    """Return canonical columns `[B]` of a block; see `channel.JobBlock`."""
    rows, of_texts = iter(numbers), iter(texts)
    columns: dict[str, NDArray[Any]] = {}
    for feature in schema.features:
        if feature.kind is FeatureKind.CATEGORICAL:
            column = np.empty(numbers.shape[1], dtype=object)
            column[:] = next(of_texts)
            columns[feature.name] = column
        else:
            columns[feature.name] = next(rows)
    return columns
