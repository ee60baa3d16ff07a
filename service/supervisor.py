"""Several processes on one port: the supervisor of ``murho serve --workers N``, and what it shares with its workers.

Python runs one thread at a time in a process, so one event loop bounds what a service answers. Each worker here is a
whole service, with its own listening socket on the same port; the kernel shares connections out among them
(SO_REUSEPORT). The supervisor imports what a service needs and compiles the engine, then forks the workers: code is in
memory once. It starts no thread and computes nothing, because neither survives a fork.

- *Versions*: a change that a request asks for, a look for new versions, SIGHUP: all go through the supervisor, which
  has every worker make them, one after the other, and tells who asked once all have. So all workers serve the same. One
  that could not do what others could is replaced.
- *Limits of callers* are counted in memory that all workers have (`security.Buckets`); limits of memory, of
  connections and of what waits are each worker's own.
- *Health*: each worker says once a second on a board how it is; every worker answers `/healthz` and `/readyz` for all.
- *Metrics*: files that every worker reads (`telemetry.metrics`).
- *The end*: the supervisor has all drain, and waits for them. If it dies, they drain too.
- A worker that dies, or whose engine or event loop is silent for too long, is replaced. The new one takes connections
  once it serves what the others do.
"""

from __future__ import annotations

import gc
import math
import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import connection
from typing import TYPE_CHECKING

import structlog
from prometheus_client import Counter, multiprocess, values

from murho.model.runtime import available_processors
from murho.service.models.loader import Change, Snapshot
from murho.service.models.watcher import LOOK, seconds_between_looks
from murho.service.process import (
    CLOSING_SECONDS,
    end_at_once,
    has_terminal,
    is_in_terminal,
    listen,
    serve_until_stopped,
)
from murho.service.security import Buckets, Security
from murho.service.telemetry.log import Stderr
from murho.service.worker import Announce, Answer, Ask, Board, Loaded, Made, Make, Stage, Stop, Worker

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from multiprocessing.context import ForkProcess
    from types import FrameType

    from murho.service.settings import Settings

PATIENCE_SECONDS = 15.0
"""After the drain has had its time, so long until workers that are still there are killed."""
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
FIRST_PAUSE, LAST_PAUSE = 0.5, 30.0
"""Seconds from a worker's death to its replacement; doubled while they die young."""
YOUNG_SECONDS = 30.0


def count_of(settings: Settings) -> int:
    """Returns the number of workers that settings ask for; on a GPU it is one, which has the device's memory alone."""
    wanted = available_processors() if settings.workers == "auto" else settings.workers
    if wanted == 1 or settings.device == "cpu":
        return wanted
    from murho.model.runtime import resolve_device

    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # the other way to look would forbid a fork
    if resolve_device(settings.device) == "cpu":
        return wanted
    structlog.get_logger("murho.workers").info("one worker: the GPU serves all connections", workers=settings.workers)
    return 1


@dataclass(slots=True, eq=False)
class _Process:
    """The supervisor's side of one worker.

    Attributes:
        number: 0 and up; a replacement has the number of the worker that died.
        process: The process.
        wire: To it.
        since: When it was started, monotonic seconds.
        joined: Whether it makes the changes that the others make.
        loaded: Whether its first loading has ended.
    """

    number: int
    process: ForkProcess
    wire: connection.Connection
    since: float
    joined: bool
    loaded: bool = False


@dataclass(slots=True)
class _Task:
    """Changes that are to be made.

    Attributes:
        changes: The changes.
        asker: Who is told.
        makers: Who makes them.
        made: What came of it: a failure or None, by number of the worker.
    """

    changes: tuple[Change, ...]
    asker: _Process | None = None
    makers: list[_Process] = field(default_factory=list)
    made: dict[int, BaseException | None] = field(default_factory=dict)


class Supervisor:
    """Starts workers, keeps their number, and hands on what concerns all of them.

    Args:
        settings: Of the service.
        count: Number of workers.
        reserved: A socket of `process.reserve`: the port stays the service's.
        announce: Tells people what is served, in a worker.

    Raises:
        OptionError: An API key is stored in a wrong form, or the file of keys can't be read.
    """

    def __init__(
        self, settings: Settings, count: int, reserved: socket.socket, announce: Callable[[Snapshot], None]
    ) -> None:
        threads = settings.threads or max(1, available_processors() // count)
        self._settings = settings.model_copy(
            update={"threads": threads, "watch_seconds": 0.0, "draws_bytes": settings.draws_bytes // count}
        )
        Security(settings)  # keys that no worker could use are said once, here
        self._count, self._announce = count, announce
        self._listen = partial(listen, settings.host, reserved.getsockname()[1], shared=True)
        self._look_seconds, self._next_look = seconds_between_looks(settings), math.inf
        self._board = Board(count)
        self._buckets = Buckets(shared=True)
        self._workers: dict[int, _Process] = {}
        self._due: dict[int, float] = {}  # number of a worker that died to the time of its replacement
        self._pause = FIRST_PAUSE
        self._tasks: deque[_Task] = deque()  # the first is in hand once it has makers
        self._wanted: dict[str, Change] = {}  # what a new worker must make to serve what the others do
        self._announced = False
        self._stopping, self._kill_at = False, math.inf
        self._in_terminal = is_in_terminal()
        self._log = structlog.get_logger("murho.workers")

    def run(self) -> None:
        """Serves until a signal comes and all workers have drained."""
        with tempfile.TemporaryDirectory(prefix="murho-metrics-") as metrics:
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = metrics
            _write_metrics_as("supervisor")
            self._deaths = Counter("murho_worker_deaths_total", "Workers that died, and were replaced.", registry=None)
            _share_code()
            self._heard, self._tells = os.pipe()
            for signal_number in SIGNALS:
                signal.signal(signal_number, self._heed)
            with Stderr.in_thread():
                for number in range(self._count):
                    self._start(number, first=True)
                while self._workers or not self._stopping:
                    self._once()

    def _heed(self, number: int, _: FrameType | None) -> None:
        os.write(self._tells, bytes([number]))

    def _start(self, number: int, *, first: bool = False) -> None:
        ours, theirs = multiprocessing.Pipe()
        listening = self._listen() if first else None
        # From here on its silence counts.
        self._board.say(number, 0.0, Stage.LOADING if first else Stage.CLOSED)
        worker = Worker(number, theirs, self._board, self._buckets, listening, self._listen)
        context = multiprocessing.get_context("fork")
        process = context.Process(target=self._work, args=(worker, ours), name=f"worker {number}")
        # Until the worker has its own handlers, a signal to it must not be taken for one to the supervisor.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        process.start()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        theirs.close()
        if listening is not None:
            listening.close()
        self._workers[number] = _Process(number, process, ours, time.monotonic(), joined=first)

    def _work(self, worker: Worker, ours: connection.Connection) -> None:
        """The life of a worker, in its own process."""
        os.setpgid(0, 0)  # Ctrl-C is for the supervisor
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN if number == signal.SIGHUP else signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        _write_metrics_as(worker.number)
        for wire in (ours, *(each.wire for each in self._workers.values())):
            wire.close()  # otherwise nobody would hear the end of the supervisor
        serve_until_stopped(
            self._settings, worker.listening, lambda snapshot: worker.loaded(partial(self._announce, snapshot)), worker
        )

    def _once(self) -> None:
        """Waits for what comes next, for a moment at most, and deals with it."""
        wires = {each.wire: each for each in self._workers.values()}
        ends = {each.process.sentinel: each for each in self._workers.values()}
        for ready in connection.wait([*wires, *ends, self._heard], timeout=0.1):
            if ready in wires:
                self._read(wires[ready])
            elif ready in ends:
                self._bury(ends[ready])
            else:
                for number in os.read(self._heard, 64):
                    self._signalled(number)
        now = time.monotonic()
        for worker in self._workers.values():
            if now > self._kill_at or self._board.silence(worker.number) > self._settings.engine_silence:
                self._log.error("worker killed: it shows no life", worker=worker.number, pid=worker.process.pid)
                worker.process.kill()
        if not self._stopping:
            for number in [number for number, due in self._due.items() if now >= due]:
                del self._due[number]
                self._start(number)
            if now >= self._next_look and not self._tasks:
                self._next_look = now + self._look_seconds
                self._tasks.append(_Task((LOOK,)))
        self._go_on()

    def _signalled(self, number: int) -> None:
        if number == signal.SIGHUP:
            time.sleep(CLOSING_SECONDS if self._in_terminal else 0.0)
            if not self._in_terminal or has_terminal():
                self._tasks.append(_Task((Change(),)))
                return
            number = signal.SIGTERM
        if self._stopping:
            for worker in self._workers.values():
                worker.process.kill()
            end_at_once(number)
        self._stopping = True
        self._kill_at = time.monotonic() + self._settings.drain_delay + self._settings.drain_grace + PATIENCE_SECONDS
        for worker in self._workers.values():
            self._send(worker, Stop(number))

    def _read(self, worker: _Process) -> None:
        try:
            message = worker.wire.recv()
        except (EOFError, OSError):
            worker.process.join(1.0)  # it is dying
            return
        match message:
            case Ask(change):
                self._tasks.append(_Task((change,), asker=worker))
            case Made(failure):
                self._tasks[0].made[worker.number] = failure
            case Loaded():
                worker.loaded = True
                if not worker.joined:
                    self._tasks.append(_Task((), makers=[worker]))

    def _go_on(self) -> None:
        """Ends the task in hand if all have made it, and begins the next."""
        while self._tasks:
            task = self._tasks[0]
            if not task.changes:  # a worker that comes later
                task.changes = (*self._wanted.values(), Change())
                self._send(task.makers[0], Make(task.changes))
            elif not task.makers:
                task.makers = [each for each in self._workers.values() if each.joined]
                for worker in task.makers:
                    self._send(worker, Make(task.changes))
            alive = [each for each in task.makers if self._workers.get(each.number) is each]
            if any(each.number not in task.made for each in alive):
                return
            self._tasks.popleft()
            self._end(task, alive)
        if not self._announced and len(self._workers) == self._count and all(e.loaded for e in self._workers.values()):
            self._announced = True
            self._send(self._workers[0], Announce())
            if self._look_seconds:
                self._next_look = time.monotonic() + self._look_seconds

    def _end(self, task: _Task, alive: list[_Process]) -> None:
        """Tells who asked that changes are made; ends a worker that could not make them, where others could."""
        failed = [each for each in alive if task.made[each.number] is not None]
        if len(failed) < len(alive) and not self._stopping:  # then those fail that have ended
            for worker in failed:
                reason = str(task.made[worker.number])
                self._log.error("worker told to stop: it serves what others don't", worker=worker.number, reason=reason)
                worker.process.terminate()
            for worker in alive:
                worker.joined = True
            change = task.changes[-1]
            if change.name:
                self._wanted.pop(change.name, None)
                if change.unload or change.version is not None:
                    self._wanted[change.name] = change
        if task.asker is not None:
            self._send(task.asker, Answer(task.made.get(task.asker.number)))

    def _bury(self, worker: _Process) -> None:
        """Takes note of the end of a worker, and has it replaced in a moment."""
        worker.process.join()
        worker.wire.close()
        del self._workers[worker.number]
        self._board.say(worker.number, 0.0, Stage.ABSENT)
        multiprocess.mark_process_dead(worker.number)  # type: ignore[no-untyped-call]
        if self._stopping:
            return
        self._deaths.inc()
        lived = time.monotonic() - worker.since
        self._pause = FIRST_PAUSE if lived > YOUNG_SECONDS else min(LAST_PAUSE, 2.0 * self._pause)
        self._due[worker.number] = time.monotonic() + self._pause
        self._log.error(
            "worker died; another one takes its place",
            worker=worker.number,
            pid=worker.process.pid,
            code=worker.process.exitcode,
            seconds=round(lived, 1),
        )

    def _send(self, worker: _Process, message: object) -> None:
        with suppress(OSError):  # it has died, and is about to be buried
            worker.wire.send(message)


def _write_metrics_as(name: str | int) -> None:
    """Has metrics that are made from now on in files of a name; a new worker goes on with those of the one before."""
    values.ValueClass = values.MultiProcessValue(lambda: name)  # type: ignore[no-untyped-call]


def _share_code() -> None:
    """Imports and compiles what all workers need; no collection of garbage writes to it, so it stays shared."""
    import murho.model.checkpoint.posterior
    import murho.service.app  # noqa: F401
    from murho.model.predictive.compiled_engine import load

    load()
    for thread in threading.enumerate():
        if thread is not threading.main_thread():
            thread.join(1.0)
    gc.collect()
    gc.freeze()
