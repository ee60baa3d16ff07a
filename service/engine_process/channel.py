"""The channel between the engine and a front end: messages and arrays, through a socket and shared memory.

A frame is a message (msgpack, `Message`) and the numbers that belong to it. Few numbers follow the message in the
socket; more are written once into a file in memory, which the other side maps: no copy is made of them on the way.

Neither side waits for the other: what a socket has no room for waits in the process until it has.
"""

from __future__ import annotations

import math
import mmap
import os
import socket
import struct
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

HEAD = struct.Struct("<IIQ")
"""Of a frame: bytes of the message, whether the numbers are in a file, and their bytes."""
MOST_INLINE = 2**16
"""Bytes of numbers that go through the socket."""
SOCKET_BYTES = 2**20
READ_BYTES = 2**18
ALIGNED = 8


class Numbers(NamedTuple):
    """One array of a frame: its type, as NumPy names it, and its shape."""

    kind: str
    shape: tuple[int, ...]


class JobHeader(msgspec.Struct, array_like=True, gc=False):
    """One job of a block: `engine.jobs.Job` without its rows, which follow those of the job before."""

    number: int
    options: int
    rows: int
    cost: float
    caller: str
    arrived: float
    submitted: float
    deadline: float
    max_outside: int
    rows_of_pass: int | None


class JobBlock(msgspec.Struct, tag=0, array_like=True, gc=False):
    """To the engine: jobs for one model.

    Their numeric cells are one array `[numeric features, rows]`; texts have a list for each categorical feature.
    """

    model: int
    jobs: list[JobHeader]
    texts: list[list[str | None]]


class OptionsDefinition(msgspec.Struct, tag=1, array_like=True, gc=False):
    """To the engine: options of a prediction, pickled, and the number by which jobs name them from now on."""

    number: int
    options: bytes


class JobCancellation(msgspec.Struct, tag=2, array_like=True, gc=False):
    """To the engine: nobody waits for a job any more."""

    number: int


class ChangeRequest(msgspec.Struct, tag=3, array_like=True, gc=False):
    """To the engine: make a change of what is served, pickled; `ChangeOutcome` answers with its number."""

    number: int
    change: bytes


class ModelRelease(msgspec.Struct, tag=4, array_like=True, gc=False):
    """To the engine: no request of this front end has a model any more."""

    model: int


class SnapshotReceipt(msgspec.Struct, tag=5, array_like=True, gc=False):
    """To the engine: this front end serves what `SnapshotUpdate` said, by its number."""

    number: int


class SnapshotUpdate(msgspec.Struct, tag=6, array_like=True, gc=False):
    """To a front end: what is served from now on, pickled (`engine_process.mirror.SharedSnapshot`)."""

    number: int
    served: bytes


class ChangeOutcome(msgspec.Struct, tag=7, array_like=True, gc=False):
    """To a front end: every front end serves what a change has made, or why it could not be made, pickled."""

    number: int
    failure: bytes | None


class JobAnswer(msgspec.Struct, array_like=True, gc=False):
    """The answer of one job of a group: its rows follow those of the job before."""

    number: int
    rows: int
    queue: float
    compute: float
    outside: list[tuple[int, str, str]]


class AnswerGroup(msgspec.Struct, array_like=True, gc=False):
    """Answers to the same options; their predictions are one.

    Attributes:
        facts: Samples, seed, whether it is calibrated, and the classes.
        fields: Names of its arrays, which are the next ones of the frame.
        jobs: Whose rows these are, in order.
    """

    facts: tuple[int, int, bool, tuple[str, ...] | None]
    fields: list[str]
    jobs: list[JobAnswer]


class PassAnswers(msgspec.Struct, tag=8, array_like=True, gc=False):
    """To a front end: what came of a pass.

    Attributes:
        groups: Answers.
        failures: Jobs without an answer, each with its error, pickled.
        progress: Jobs of which so many rows are computed.
        counted: Name and version of the model, jobs, rows and seconds, for this front end to count; None: another does.
        rate: Number of the model, and the seconds that a row-draw of it takes.
    """

    groups: list[AnswerGroup]
    failures: list[tuple[int, bytes]]
    progress: list[tuple[int, int]]
    counted: tuple[str, str, int, int, float] | None
    rate: tuple[int, float] | None


Message: TypeAlias = (
    JobBlock
    | OptionsDefinition
    | JobCancellation
    | ChangeRequest
    | ModelRelease
    | SnapshotReceipt
    | SnapshotUpdate
    | ChangeOutcome
    | PassAnswers
)


class _Frame(msgspec.Struct, array_like=True, gc=False):
    message: Message
    arrays: list[Numbers]


class Channel:
    """One end of the channel.

    Args:
        wire: A connected stream socket between processes of this machine.

    Attributes:
        closed: Whether the other side has gone.
    """

    def __init__(self, wire: socket.socket) -> None:
        wire.setblocking(False)
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
        self.wire, self.closed = wire, False
        self._encoder, self._decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(_Frame)
        self._outbox: deque[tuple[memoryview, int | None]] = deque()
        self._inbox, self._files = bytearray(), deque[int]()

    def fileno(self) -> int:
        """Return the descriptor, for whoever waits for messages."""
        return self.wire.fileno()

    @property
    def is_full(self) -> bool:
        """Whether something waits until the socket has room (`flush`)."""
        return bool(self._outbox)

    def send(self, message: Message, arrays: Sequence[NDArray[Any]] = ()) -> None:
        """Send a message, or have it wait; one to a side that has gone is dropped."""
        if self.closed:
            return
        listed = [Numbers(array.dtype.str, array.shape) for array in arrays]
        encoded = self._encoder.encode(_Frame(message, listed))
        size = sum(_aligned_size(array.nbytes) for array in arrays)
        if size <= MOST_INLINE:
            pieces = [HEAD.pack(len(encoded), 0, size), encoded, *_pad(arrays)]
            self._outbox.append((memoryview(b"".join(pieces)), None))
        else:
            file = os.memfd_create("murho")
            os.ftruncate(file, size)
            with mmap.mmap(file, size) as memory:
                place = 0
                for array in arrays:
                    np.frombuffer(memory, array.dtype, array.size, place).reshape(array.shape)[...] = array
                    place += _aligned_size(array.nbytes)
            self._outbox.append((memoryview(HEAD.pack(len(encoded), 1, size) + encoded), file))
        self.flush()

    def flush(self) -> None:
        """Send what waits, as far as the socket has room."""
        while self._outbox:
            data, file = self._outbox[0]
            try:
                count = self.wire.send(data) if file is None else socket.send_fds(self.wire, [data], [file])
            except (BlockingIOError, InterruptedError):
                return
            except OSError:  # the other side has gone, which `receive` will see
                self._drop_outbox()
                return
            if file is not None:
                os.close(file)
            self._outbox[0] = (data[count:], None)
            if count == len(data):
                self._outbox.popleft()

    def receive(self) -> Iterator[tuple[Message, list[NDArray[Any]]]]:
        """Yield the messages that have come, with their arrays; `closed` says whether they were the last."""
        while not self.closed:
            try:
                data, files, _, _ = socket.recv_fds(self.wire, READ_BYTES, 64)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                data, files = b"", []
            self._files += files
            self._inbox += data
            if not data:
                self.close()
            if len(data) < READ_BYTES:
                break
        yield from self._frames()

    def _frames(self) -> Iterator[tuple[Message, list[NDArray[Any]]]]:
        start = 0
        while len(self._inbox) - start >= HEAD.size:
            length, in_file, size = HEAD.unpack_from(self._inbox, start)
            stop = start + HEAD.size + length + (0 if in_file else size)
            if len(self._inbox) < stop:
                break
            body = start + HEAD.size
            frame = self._decoder.decode(memoryview(self._inbox)[body : body + length])
            if in_file:
                file = self._files.popleft()
                memory: mmap.mmap | bytearray = mmap.mmap(file, size)
                os.close(file)
            else:
                memory = self._inbox[body + length : stop]  # a copy, which stays
            start = stop
            yield frame.message, list(_arrays(memory, frame.arrays))
        del self._inbox[:start]

    def close(self) -> None:
        """Close this end."""
        self.closed = True
        self.wire.close()
        for file in self._files:
            os.close(file)
        self._files.clear()
        self._drop_outbox()

    def _drop_outbox(self) -> None:
        for _, file in self._outbox:
            if file is not None:
                os.close(file)
        self._outbox.clear()


def _aligned_size(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED


def _pad(arrays: Iterable[NDArray[Any]]) -> Iterator[bytes]:
    for array in arrays:
        data = array.tobytes()
        yield data
        yield bytes(_aligned_size(len(data)) - len(data))


def _arrays(memory: mmap.mmap | bytearray, listed: Iterable[Numbers]) -> Iterator[NDArray[Any]]:
    place = 0
    for kind, shape in listed:
        dtype = np.dtype(kind)
        count = math.prod(shape)
        yield np.frombuffer(memory, dtype, count, place).reshape(shape)
        place += _aligned_size(count * dtype.itemsize)
