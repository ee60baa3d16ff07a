"""The processes of a service: one engine, and front ends that share the port.

The engine owns checkpoints, draws, the queue and the device (`engine_process.server`). Front ends own sockets, HTTP,
keys, decoding and encoding. So an event loop and a computation never wait for one another's lock.

- *Memory*: all are forked from this process once it has imported what they need, so its code is in memory once.
- *Connections*: each front end has a listening socket, which stays this process's: what waits there while a front end
  is started again is answered by the next one.
- *Limits*: of callers (`security.Buckets`) and of what is pending (`engine_process.board`) hold over all front ends.
- *Health*: each process says once a second that it lives; every front end answers `/healthz` for all.
- *Metrics*: files that every front end reads (`telemetry.metrics`).
- *The end*: front ends drain, then the engine ends. If this process dies, they end too.
- A process that dies, or is silent for too long, is started again. Requests in flight to a lost engine are answered
  503; connections of a lost front end are closed.
"""

from __future__ import annotations

import gc
import math
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from prometheus_client import Counter, multiprocess, values

from murho.model.runtime import available_processors
from murho.service.engine_process.board import ENGINE, Board
from murho.service.engine_process.remote import FrontEnd
from murho.service.process import (
    CLOSING_SECONDS,
    end_at_once,
    has_terminal,
    is_in_terminal,
    serve_until_stopped,
)
from murho.service.security import Buckets, Security
from murho.service.telemetry.log import Stderr
from murho.service.telemetry.metrics import reload_counter

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.context import ForkProcess
    from types import FrameType

    from murho.service.models.loader import Snapshot
    from murho.service.settings import Settings

POSSIBLE = sys.platform == "linux"
"""Whether there are such processes: elsewhere a service is one process."""
PATIENCE_SECONDS = 15.0
"""After the drain has had its time, so long until processes that are still there are killed."""
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
FIRST_PAUSE, LAST_PAUSE = 0.5, 30.0
"""Seconds from a process's death to its replacement; doubled while they die young."""
YOUNG_SECONDS = 30.0
COLLECTIONS_BEFORE_FULL = 1000
"""Collections of the middle generation of garbage before one of all."""


def front_ends_of(settings: Settings) -> int:
    """Return the number of front ends that settings ask for; by default the engine has a processor to itself."""
    return max(1, available_processors() - 1) if settings.workers == "auto" else settings.workers


@dataclass(slots=True, eq=False)
class _Process:
    """A process, and when it was started, monotonic seconds."""

    process: ForkProcess
    since: float


class Supervisor:
    """Starts the processes of a service, and starts again those that end before their time.

    Args:
        settings: Of the service.
        listening: A listening socket for each front end.
        announce: Tells people what is served, in a front end.

    Raises:
        OptionError: An API key is stored in a wrong form, or the file of keys can't be read.
    """

    def __init__(
        self, settings: Settings, listening: list[socket.socket], announce: Callable[[Snapshot], None]
    ) -> None:
        Security(settings)  # keys that no front end could use are said once, here
        self._settings, self._listening, self._announce = settings, listening, announce
        self._board, self._buckets = Board(len(listening)), Buckets(shared=True)
        self._processes: dict[int, _Process] = {}
        self._due: dict[int, float] = {}  # number of a process that died to the time of its replacement
        self._pause = FIRST_PAUSE
        self._stopping: int | None = None  # the signal
        self._kill_at = math.inf
        self._in_terminal = is_in_terminal()
        self._log = structlog.get_logger("murho.processes")

    def run(self) -> None:
        """Serve until a signal comes and all front ends have drained."""
        with tempfile.TemporaryDirectory(prefix="murho-metrics-") as directory:
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = directory
            _write_metrics_as("supervisor")
            self._deaths = Counter(
                "murho_worker_deaths_total", "Processes that died, and were replaced.", registry=None
            )
            self._place = Path(directory) / "engine"
            # It stays open: front ends connect while the engine is started again, and wait for it.
            self._engine_socket = socket.socket(socket.AF_UNIX)
            self._engine_socket.bind(str(self._place))
            self._engine_socket.listen(128)
            _share_code(self._settings.device)
            self._heard, self._tells = os.pipe()
            self._alive, self._lives = os.pipe()  # nothing is written: it ends with this process
            for number in SIGNALS:
                signal.signal(number, self._heed)
            with Stderr.in_thread():
                for process in range(1 + len(self._listening)):
                    self._start(process)
                while self._processes or self._stopping is None:
                    self._once()

    def _heed(self, number: int, _: FrameType | None) -> None:
        os.write(self._tells, bytes([number]))

    def _start(self, number: int) -> None:
        self._board.beat(number)  # from here on its silence counts
        first = number not in self._due
        context = multiprocessing.get_context("fork")
        name = "engine" if number == ENGINE else f"front end {number}"
        process = context.Process(target=self._work, args=(number, first), name=name)
        # Until it has its own handlers, a signal to it must not be taken for one to this process.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        process.start()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        self._due.pop(number, None)
        self._processes[number] = _Process(process, time.monotonic())

    def _work(self, number: int, first: bool) -> None:
        """Return the life of a process."""
        os.setpgid(0, 0)  # Ctrl-C is for the supervisor
        for signal_number in SIGNALS:
            signal.signal(signal_number, signal.SIG_IGN if signal_number == signal.SIGHUP else signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        os.close(self._lives)
        _write_metrics_as(number)
        if number == ENGINE:
            for listening in self._listening:
                listening.close()
            from murho.service.engine_process.server import EngineServer

            count = reload_counter(None)
            EngineServer(
                self._settings,
                self._engine_socket,
                self._board,
                lambda outcome: count.labels(outcome).inc(),
                self._alive,
            ).run()
            return
        self._engine_socket.close()
        for other, listening in enumerate(self._listening, 1):
            if other != number:
                listening.close()
        announce = self._announce if first and number == 1 else lambda _: None
        front_end = FrontEnd(number, self._place, self._board, self._buckets, self._alive)
        serve_until_stopped(self._settings, self._listening[number - 1], announce, front_end)

    def _once(self) -> None:
        """Wait for what comes next, for a moment at most, and deals with it."""
        ready = connection.wait([*(each.process.sentinel for each in self._processes.values()), self._heard], 0.1)
        if self._heard in ready:
            for signal_number in os.read(self._heard, 64):
                self._handle_signal(signal_number)
        for number in [number for number, each in self._processes.items() if each.process.sentinel in ready]:
            self._bury(number)
        now = time.monotonic()
        for number, each in self._processes.items():
            if now > self._kill_at or self._board.silence(number) > self._settings.engine_silence:
                self._log.error("killed unresponsive process", process=each.process.name, pid=each.process.pid)
                each.process.kill()
        if self._stopping is None:
            for number in [number for number, due in self._due.items() if now >= due]:
                self._start(number)
        elif self._processes.keys() == {ENGINE}:
            self._send(ENGINE, signal.SIGTERM)

    def _handle_signal(self, number: int) -> None:
        if number == signal.SIGHUP:
            time.sleep(CLOSING_SECONDS if self._in_terminal else 0.0)
            if not self._in_terminal or has_terminal():
                for process in self._processes:
                    self._send(process, signal.SIGHUP)
                return
            number = signal.SIGTERM
        if self._stopping is not None:
            for each in self._processes.values():
                each.process.kill()
            end_at_once(number)
        self._stopping = number
        for listening in self._listening:  # once a front end has closed its own, new clients go elsewhere
            listening.close()
        self._kill_at = time.monotonic() + self._settings.drain_delay + self._settings.drain_grace + PATIENCE_SECONDS
        for process in self._processes:
            if process != ENGINE:
                self._send(process, number)

    def _bury(self, number: int) -> None:
        """Take note of the end of a process, and have it replaced in a moment."""
        ended = self._processes.pop(number)
        ended.process.join()
        self._board.bury(number)
        multiprocess.mark_process_dead(number)  # type: ignore[no-untyped-call]
        if self._stopping is not None:
            return
        self._deaths.inc()
        lived = time.monotonic() - ended.since
        self._pause = FIRST_PAUSE if lived > YOUNG_SECONDS else min(LAST_PAUSE, 2.0 * self._pause)
        self._due[number] = time.monotonic() + self._pause
        self._log.error(
            "process died; another one takes its place",
            process=ended.process.name,
            pid=ended.process.pid,
            code=ended.process.exitcode,
            seconds=round(lived, 1),
        )

    def _send(self, number: int, signal_number: int) -> None:
        process = self._processes[number].process
        if process.pid is not None and process.exitcode is None:
            os.kill(process.pid, signal_number)


def _write_metrics_as(name: str | int) -> None:
    """Have metrics that are made from now on in files of a name; a new process goes on with those of the one before."""
    values.ValueClass = values.MultiProcessValue(lambda: name)  # type: ignore[no-untyped-call]


def _share_code(device: str) -> None:
    """Import and compile what the processes need; no collection of garbage writes to it, so it stays shared."""
    import murho.model.checkpoint.posterior
    import murho.service.engine_process.server  # noqa: F401
    from murho.model.predictive.compiled_engine import load
    from murho.model.runtime import resolve_device
    from murho.service.app import import_late

    import_late()
    if resolve_device(device) == "cpu":
        load()
    for thread in threading.enumerate():
        if thread is not threading.main_thread():
            thread.join(1.0)
    gc.collect()
    gc.freeze()
    # A full collection holds up a front end with many connections for 0.1 s, and finds nothing: what requests and
    # connections leave behind has no circles.
    gc.set_threshold(*gc.get_threshold()[:2], COLLECTIONS_BEFORE_FULL)
