"""One of several processes of a service: what it has in common with the others, and its wire to the supervisor.

`service.supervisor` says how they work together.
"""

from __future__ import annotations

import asyncio
import math
import mmap
import signal
import struct
import threading
import time
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from murho.service.errors import EngineSilentError, NotReadyError, ServiceError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Coroutine
    from multiprocessing import connection

    from murho.service.models.loader import Change, Swap
    from murho.service.models.watcher import Watcher
    from murho.service.security import Buckets


class Stage(IntEnum):
    """What a worker does; a late one is closed until it serves what the others do."""

    ABSENT = 0
    CLOSED = 1
    LOADING = 2
    SERVING = 3


AWAY_SECONDS = 5.0
"""A process that hasn't looked for so long was paused, and perhaps its whole machine."""


class Board:
    """How each worker is: when it last said so, how long its engine has been silent, and whether it serves.

    Args:
        count: Number of workers.
        clock: Monotonic seconds, the same in all processes.
    """

    _LINE = struct.Struct("ddd")  # when, in monotonic seconds; seconds of silence; stage

    def __init__(self, count: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._count, self._memory = count, mmap.mmap(-1, count * self._LINE.size)
        self._clock, self._looked, self._since = clock, clock(), -math.inf

    def say(self, number: int, silent: float, stage: Stage) -> None:
        """Writes the line of one worker."""
        self._LINE.pack_into(self._memory, number * self._LINE.size, self._clock(), silent, stage)

    def look(self) -> None:
        """Notes that this process runs, at least once a second.

        If it didn't, all may have been paused: the silence of others counts only since it runs again.
        """
        now = self._clock()
        if now - self._looked > AWAY_SECONDS:
            self._since = now
        self._looked = now

    def silence(self, number: int) -> float:
        """Returns the seconds for which the event loop or the engine of a worker has shown no life."""
        self.look()
        (said, silent, stage), now = self._LINE.unpack_from(self._memory, number * self._LINE.size), self._looked
        return min(max(silent, now - said), now - self._since) if stage else 0.0

    def require_alive(self, most: float) -> None:
        """Checks that no worker is silent for too long.

        Raises:
            EngineSilentError: One is.
        """
        for number in range(self._count):
            if (silent := self.silence(number)) > most:
                raise EngineSilentError(f"Worker {number} has shown no sign of life for {silent:.0f} seconds.")

    def require_loaded(self) -> None:
        """Checks that every worker that takes connections has ended loading.

        Raises:
            NotReadyError: One hasn't.
        """
        stages = [stage for _, _, stage in self._LINE.iter_unpack(self._memory[:])]
        if loading := stages.count(Stage.LOADING):
            raise NotReadyError(f"{loading} of {self._count} workers still load. Try again in a moment.", retry_after=1)


class Make(NamedTuple):
    """To a worker: make changes, one after the other, and say so."""

    changes: tuple[Change, ...]


class Made(NamedTuple):
    """From a worker: it made changes, or why it couldn't make the last."""

    failure: BaseException | None


class Ask(NamedTuple):
    """From a worker: all are to make a change."""

    change: Change


class Answer(NamedTuple):
    """To the worker that asked: all have made the change, or why not."""

    failure: BaseException | None


class Loaded(NamedTuple):
    """From a worker: its first loading has ended."""


class Announce(NamedTuple):
    """To one worker: all have loaded."""


class Stop(NamedTuple):
    """To a worker: stop as on a signal."""

    signal: int


class Worker:
    """A worker's side: what it has in common with the others, and its wire to the supervisor.

    Args:
        number: 0 and up.
        wire: To the supervisor.
        board: Of all workers.
        buckets: What callers have taken.
        listening: Its socket; None: it comes later, and opens one once it serves what the others do.
        listen: Opens a socket.
    """

    def __init__(
        self,
        number: int,
        wire: connection.Connection,
        board: Board,
        buckets: Buckets,
        listening: socket.socket | None,
        listen: Callable[[], socket.socket],
    ) -> None:
        self.number, self.board, self.buckets, self.listening = number, board, buckets, listening
        self._wire, self._listen, self._sending = wire, listen, threading.RLock()
        self._asked: deque[Future[Swap]] = deque()
        self._made: Future[Swap] = Future()
        self._announce: Callable[[], None] | None = None

    def ask(self, change: Change) -> Future[Swap]:
        """Has all workers make a change; the future has this one's result once all have."""
        answer: Future[Swap] = Future()
        with self._sending:
            self._asked.append(answer)
            self._send(Ask(change))
        return answer

    def loaded(self, announce: Callable[[], None]) -> None:
        """Says that loading has ended, or that there is a model after there was none.

        Args:
            announce: Tells people, once that holds for all; it is called in one of the workers.
        """
        if self._announce is None:
            self._announce = announce
            self._send(Loaded())
        elif self.number == 0:
            announce()

    def beat(self, silent: float) -> None:
        """Says how the worker is, once a second.

        Args:
            silent: Seconds for which its engine has shown no life.
        """
        self.board.look()
        stage = Stage.CLOSED if self.listening is None else Stage.LOADING if self._announce is None else Stage.SERVING
        self.board.say(self.number, silent, stage)

    def start(
        self,
        watcher: Watcher,
        listen_on: Callable[[socket.socket], Coroutine[None, None, None]],
        stop: Callable[[int], None],
    ) -> None:
        """Begins to hear what the supervisor says; called in the event loop.

        Args:
            watcher: Makes changes.
            listen_on: Takes the connections of a socket.
            stop: Stops as on a signal, unless it has begun to.
        """
        arguments = watcher, listen_on, stop, asyncio.get_running_loop()
        threading.Thread(target=self._hear, args=arguments, name="supervisor", daemon=True).start()

    def _hear(
        self,
        watcher: Watcher,
        listen_on: Callable[[socket.socket], Coroutine[None, None, None]],
        stop: Callable[[int], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        def made(future: Future[Swap]) -> None:
            if self.listening is None:
                try:
                    self.listening = self._listen()
                except ServiceError:
                    loop.call_soon_threadsafe(stop, signal.SIGTERM)  # another one takes its place
                    raise
                asyncio.run_coroutine_threadsafe(listen_on(self.listening), loop).result()
            failure = future.exception()
            if failure is not None and not isinstance(failure, ServiceError):
                failure = RuntimeError(repr(failure))  # what a library raises may not get through a wire
            self._send(Made(failure))

        while True:
            try:
                message = self._wire.recv()
            except (EOFError, OSError):
                loop.call_soon_threadsafe(stop, signal.SIGTERM)  # nobody is there to say it
                return
            match message:
                case Make(changes):
                    for change in changes:
                        self._made = watcher.ask(change)
                    self._made.add_done_callback(made)
                case Answer(failure):
                    answer = self._asked.popleft()
                    if not answer.set_running_or_notify_cancel():
                        continue  # whoever asked has left
                    if failure is None:
                        answer.set_result(self._made.result())
                    else:
                        answer.set_exception(failure)
                case Announce() if self._announce is not None:
                    self._announce()
                case Stop(number):
                    loop.call_soon_threadsafe(stop, number)

    def _send(self, message: object) -> None:
        with self._sending, suppress(OSError):  # without a supervisor it is about to stop
            self._wire.send(message)
