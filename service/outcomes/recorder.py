"""Recording off the way of an answer: a queue that survives a kill, and one thread that brings it to the store.

What an answer says to be recorded is in the queue, a SQLite file beside the store, before the answer leaves: the kernel
has it, whatever becomes of this process. It isn't on the disk yet: a power cut may take what the store, which syncs,
did not have. All processes share the queue, and whichever has its lock brings what waits; what the store has already
changes nothing there. While the store is slow or gone, answers go on and what waits grows up to `record_bytes`; what
comes beyond is not recorded, and said so.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
import stat
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np
import structlog
from sqlalchemy.exc import DataError, IntegrityError

from murho.model.errors import OptionError
from murho.model.predictive.prediction import AnyPrediction, ClassPrediction, Prediction
from murho.service.errors import NotReadyError
from murho.service.outcomes.types import Batch, VersionFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from murho.model.checkpoint.spec import ModelSpec
    from murho.service.outcomes.store import Store
    from murho.service.predict.answers import ToRecord

GATHER_SECONDS = 0.1
"""What comes within it is one transaction, of 1.5 ms; each of its rows takes 10 microseconds."""
LOOK_SECONDS = 0.005
LONGEST_PAUSE = 5.0
"""Seconds between two attempts while the store doesn't answer."""
IDLE_SECONDS = 10.0
"""Between two looks for what processes that are gone have left, and for what is too old."""
SETTLE_SECONDS = 2.0
LONGEST_WORK, LONGEST_READ = 60.0, 10.0
"""Seconds that a request waits for the store: to keep many outcomes, and to read. A server that is frozen says nothing,
and its kernel still acknowledges what is sent."""
THREADS = 4
MOST_TAKEN = 100
"""Batches brought to the store at once."""
MOST_PAGES = 2**12
"""Of 4 KiB, in the queue's log."""

ResultT = TypeVar("ResultT")


@dataclass(slots=True)
class _Together:
    """Answers of one version, alike in what is recorded of them, and their ids once they are recorded."""

    answers: list[ToRecord] = field(default_factory=list)
    ids: list[list[str]] | None = None
    done: bool = False


class Recorder:
    """Takes predictions and brings them to the store.

    Args:
        store: The store.
        most_bytes: The most bytes that wait.
        keep_days: Older predictions are deleted; None: none are.
        store_bytes: The oldest predictions are deleted while the store is larger; None: none are.

    Attributes:
        store: The store.
        waiting: Bytes that the store doesn't have yet.

    Raises:
        OptionError: There is no place for a queue that others can't reach.
    """

    def __init__(
        self, store: Store, most_bytes: int, *, keep_days: float | None = None, store_bytes: int | None = None
    ) -> None:
        self.store = store
        self.waiting = 0
        self._most, self._days, self._store_bytes = most_bytes, keep_days, store_bytes
        self._directory = _directory_of(store)
        try:
            _make_private(self._directory)
            self._turn = os.open(self._directory / "turn", os.O_RDWR | os.O_CREAT, 0o600)
            self._adding, self._queue = (_Queue(self._directory / "queue.db") for _ in range(2))
        except (OSError, NotReadyError) as error:
            raise OptionError(f"Predictions can't be recorded: {getattr(error, 'strerror', None) or error}.") from None
        self._lock, self._hurry = threading.Lock(), threading.Event()
        self._come, self._closing = threading.Event(), threading.Event()
        self._known: set[tuple[str, str]] = set()  # versions whose facts are on their way
        self._together: dict[tuple[object, ...], _Together] = {}
        self._facts: tuple[ModelSpec, VersionFacts] | None = None
        self._encoder = msgspec.msgpack.Encoder()
        self._own, self._numbers = f"{os.urandom(8).hex()}-", count()
        self._log = structlog.get_logger("murho.outcomes")
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="store")
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self, seconds: float) -> None:
        """End the thread, if the store lets it within some seconds. What it leaves is in the queue."""
        for event in (self._closing, self._come, self._hurry):
            event.set()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._thread.join(seconds)
        self.store.close()
        for queue in (self._adding, self._queue):
            queue.close()

    async def in_thread(self, work: Callable[[], ResultT], seconds: float = LONGEST_READ) -> ResultT:
        """Run work with the store in one of a few threads, for some seconds at most.

        Raises:
            NotReadyError: It isn't done in time: a store that is cut off may say nothing at all.
        """
        running = asyncio.get_running_loop().run_in_executor(self._threads, work)
        try:
            return await asyncio.wait_for(running, seconds)
        except TimeoutError:
            raise NotReadyError("The store doesn't answer. Try again later.") from None

    async def with_others(self, answer: ToRecord) -> list[str] | None:
        """Record an answer with the others of the same turn of the event loop, as `record` does.

        The answers of a pass come at one time, and one write for all takes as long as one for each.
        """
        key = (answer.model, answer.state, answer.inputs is None, answer.decisions is None)
        together = self._together.setdefault(key, _Together())
        place = len(together.answers)
        together.answers.append(answer)
        await asyncio.sleep(0)
        if not together.done:
            self._together.pop(key, None)
            together.done, together.ids = True, self.record(together.answers)
        return None if together.ids is None else together.ids[place]

    def record(self, answers: Sequence[ToRecord]) -> list[list[str]] | None:
        """Record answers of one version, alike in what is recorded of them, from any thread.

        Returns:
            Their ids; None: there was no room for them.
        """
        first, prefix = answers[0], f"{time.time_ns() // 1_000_000:011x}{self._own}{next(self._numbers):x}"
        own = (f"{prefix}-{row}" for row in count())  # in the order of time, of a random prefix of the process
        ids = [list(islice(own, len(each.prediction)) if each.ids is None else each.ids) for each in answers]
        means, kept = _pack([each.prediction for each in answers])
        inputs = None if first.inputs is None else [cell for each in answers for cell in each.inputs or ()]
        decisions = None if first.decisions is None else [said for each in answers for said in each.decisions or ()]
        of_all, model = [key for each in ids for key in each], first.model
        batch = Batch(model.name, model.version, time.time(), of_all, means, kept, inputs, decisions, first.state)
        if shared := dict(each.shared for each in answers if each.shared is not None):
            batch = msgspec.structs.replace(batch, shared=shared)
        with self._lock:
            done = self._write(batch, model.spec)
        if done:
            self._come.set()
        return ids if done else None

    def settle(self) -> None:
        """Wait until what was recorded before is in the store, by other front ends too.

        Raises:
            NotReadyError: It isn't there after some seconds.
        """
        ((last,),), end = self._queue.run("SELECT max(number) FROM batches"), time.monotonic() + SETTLE_SECONDS
        self._hurry.set()
        self._come.set()
        while self._queue.run("SELECT 1 FROM batches WHERE number <= ? LIMIT 1", last):
            if time.monotonic() > end:
                raise NotReadyError("Recorded predictions still wait for the store. Try again later.")
            time.sleep(LOOK_SECONDS)

    def _write(self, batch: Batch, spec: ModelSpec) -> bool:
        """Add a batch to the queue; return whether it is there. The lock is held."""
        key = (batch.model, batch.version)
        if key not in self._known:
            batch = msgspec.structs.replace(batch, facts=self._facts_of(spec))
        encoded = self._encoder.encode(batch)
        if self._closing.is_set() or self.waiting + len(encoded) > self._most:
            return False
        try:
            self._adding.run("INSERT INTO batches (content) VALUES (?)", encoded)
        except NotReadyError as error:
            self._log.warning("predictions can't be recorded", error=str(error))
            return False
        self._known.add(key)
        self.waiting += len(encoded)
        return True

    def _facts_of(self, spec: ModelSpec) -> VersionFacts:
        if self._facts is None or self._facts[0] is not spec:
            self._facts = spec, VersionFacts.of(spec)
        return self._facts[1]

    def _run(self) -> None:
        tidied = -IDLE_SECONDS
        while not self._closing.is_set():
            try:
                if time.monotonic() - tidied >= IDLE_SECONDS:
                    tidied = time.monotonic()
                    self._tidy()
                self._pass_on()
                self._come.wait(IDLE_SECONDS)
                self._come.clear()
                self._hurry.wait(GATHER_SECONDS)
                self._hurry.clear()
            except Exception:  # it is needed as long as there are answers; what it had is in the queue
                self._log.exception("recording failed")
        self._pass_on()

    def _pass_on(self) -> None:
        """Bring what waits to the store, unless another process does."""
        self._known.clear()
        try:
            fcntl.flock(self._turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if self._queue.run("SELECT 1 FROM batches LIMIT 1"):
                self._come.set()  # what came last, it may not have seen
            return
        decoder = msgspec.msgpack.Decoder(Batch)
        try:
            while taken := self._queue.run("SELECT number, content FROM batches ORDER BY number LIMIT ?", MOST_TAKEN):
                batches = []
                for _, content in taken:
                    with suppress(msgspec.MsgspecError):  # of another format
                        batches.append(decoder.decode(content))
                if not self._bring(batches):
                    return
                self._queue.run("DELETE FROM batches WHERE number <= ?", taken[-1][0])
                ((_, pages, _),) = self._queue.run("PRAGMA wal_checkpoint")
                if pages > MOST_PAGES:
                    self._queue.run("PRAGMA wal_checkpoint(TRUNCATE)")  # writers wait for the last few
        finally:
            fcntl.flock(self._turn, fcntl.LOCK_UN)
            ((self.waiting,),) = self._queue.run("SELECT coalesce(sum(length(content)), 0) FROM batches")

    def _bring(self, batches: Sequence[Batch]) -> bool:
        """Bring batches to the store, however long it takes; return whether it has them before this one closes."""
        pause = 0.1
        while True:
            try:
                self.store.record(batches)
            except NotReadyError as error:
                if isinstance(error.__cause__, DataError | IntegrityError):
                    return self._one_by_one(batches)
                self._log.warning("predictions wait for the store", error=str(error), bytes=self.waiting)
                if self._closing.wait(pause):
                    return False
                pause = min(LONGEST_PAUSE, 2.0 * pause)
            else:
                return True

    def _one_by_one(self, batches: Sequence[Batch]) -> bool:
        """Bring batches of which the store will never take some; others shall not wait for them."""
        for batch in batches:
            try:
                self.store.record([batch])
            except NotReadyError as error:
                self._log.error("the store refuses predictions", error=str(error), ids=batch.ids[:10])
        return True

    def _tidy(self) -> None:
        """Delete what is too old or too much."""
        try:
            before = None if self._days is None else time.time() - 86400.0 * self._days
            if before is not None or self._store_bytes is not None:
                self.store.clean(before, self._store_bytes)
        except NotReadyError as error:
            self._log.warning("the store can't be tidied up now", error=str(error))


class _Queue:
    """A connection to the batches that wait, encoded, in the order in which they came; for one thread at a time.

    Args:
        path: The file.

    Raises:
        NotReadyError: It can't be opened, or is no such file.
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(path, 1.0, isolation_level=None, check_same_thread=False)
        # A commit writes, and only `Recorder._pass_on` syncs.
        for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "wal_autocheckpoint = 0"):
            self.run(f"PRAGMA {pragma}")
        self.run("CREATE TABLE IF NOT EXISTS batches (number INTEGER PRIMARY KEY AUTOINCREMENT, content BLOB)")

    def run(self, statement: str, *values: object) -> list[Any]:
        """Return the rows of a statement, done at once, or not at all.

        Raises:
            NotReadyError: It can't be done.
        """
        try:
            with self._lock:
                return self._connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise NotReadyError(f"The queue before the store can't be used: {error}") from error

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._connection.close()


def _make_private(directory: Path) -> None:
    """Make a directory that only this user can reach, unless it is there; one that is there becomes such.

    Links in it and files of others, who may have reached it before, are deleted.

    Raises:
        OSError: It can't be made, or it is a link or another user's: the files in it could be anybody's.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise PermissionError(
            f"{directory} is a link or belongs to another user. Remove it, or for PostgreSQL set TMPDIR to a directory "
            "of this user's"
        )
    if status.st_mode & 0o077:
        directory.chmod(0o700)
    for path in directory.iterdir():
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1 or status.st_uid != os.geteuid():
            path.unlink()


def _directory_of(store: Store) -> Path:
    """Return where the queue of a store is: beside its file, or among temporary files."""
    url = store.url
    if url.drivername == "sqlite":
        return Path(f"{url.database}-recording")
    digest = blake2b(url.render_as_string(hide_password=True).encode(), digest_size=8).hexdigest()
    return Path(tempfile.gettempdir()) / f"murho-{os.getuid()}-{digest}"


def _pack(predictions: Sequence[AnyPrediction]) -> tuple[bytes, bytes]:
    """Return means and answer as `Batch` has them."""
    numbers = [each for each in predictions if isinstance(each, Prediction)]
    if numbers:
        mean = np.concatenate([each.mean for each in numbers])
        grid = np.concatenate([each.grid for each in numbers if each.grid is not None])  # each has one
        return mean.tobytes(), (grid - mean[:, None]).astype(np.float32).tobytes()
    answers = []
    for each in predictions:
        assert isinstance(each, ClassPrediction)  # noqa: S101 - all are of one version
        sets = np.ones_like(each.probabilities) if each.prediction_set is None else each.prediction_set
        answers.append(np.hstack([each.probabilities, sets]))
    return b"", np.concatenate(answers).astype(np.float32).tobytes()
