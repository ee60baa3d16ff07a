"""Messages and arrays between two processes: they come whole, in order, and nobody waits."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from murho.service.engine_process.channel import (
    MOST_INLINE,
    Channel,
    JobBlock,
    JobCancellation,
    JobHeader,
    Message,
    OptionsDefinition,
)

JOB = JobHeader(1, 0, 3, 768.0, "a caller", 1.5, 2.5, float("inf"), 101, None)


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    """Both ends of a channel."""
    ours, theirs = map(Channel, socket.socketpair())
    yield ours, theirs
    ours.close()
    theirs.close()


def files() -> int:
    """Return the number of open files."""
    return len(list(Path("/proc/self/fd").iterdir()))


def received(channel: Channel, sender: Channel, count: int) -> list[tuple[Message, list[NDArray[Any]]]]:
    """So many messages, while the other end sends what waits there."""
    found: list[tuple[Message, list[NDArray[Any]]]] = []
    while len(found) < count:
        sender.flush()
        found += channel.receive()
    return found


@pytest.mark.parametrize("rows", [0, 3, MOST_INLINE // 16, MOST_INLINE])
def test_a_message_comes_with_its_arrays(ends: tuple[Channel, Channel], rows: int) -> None:
    ours, theirs = ends
    arrays = [
        np.arange(2.0 * rows).reshape(2, rows),
        np.arange(rows) % 3 == 0,
        np.arange(6 * rows)[::2].reshape(rows, 3),
        np.empty((0, rows)),
    ]
    message = JobBlock(7, [JOB], [["a", None, "Ω"]])
    ours.send(message, arrays)
    ((found, those),) = received(theirs, ours, 1)
    assert found == message
    assert [array.dtype for array in those] == [array.dtype for array in arrays]
    for array, expected in zip(those, arrays, strict=True):
        np.testing.assert_array_equal(array, expected)
        array[...] = 0  # whoever gets it may write to it


def test_what_the_socket_has_no_room_for_waits_and_comes_in_order(ends: tuple[Channel, Channel]) -> None:
    ours, theirs = ends
    before = files()
    sent: list[Message] = []
    while not ours.is_full or len(sent) < 100:
        number = len(sent)
        if number % 7 == 3:
            sent.append(JobBlock(number, [], []))
            ours.send(sent[-1], [np.full(MOST_INLINE, float(number))])
        else:
            sent.append(OptionsDefinition(number, bytes(number % 5 * 10_000)))
            ours.send(sent[-1])
    found = received(theirs, ours, len(sent))
    assert [message for message, _ in found] == sent
    for message, arrays in found:
        if isinstance(message, JobBlock):
            assert (arrays[0] == message.model).all()
    del found, arrays
    assert files() == before  # what was mapped is closed


def test_what_is_sent_to_a_side_that_has_gone_is_dropped_and_what_it_had_sent_is_still_read(
    ends: tuple[Channel, Channel],
) -> None:
    ours, theirs = ends
    ours.send(JobCancellation(1))
    ours.close()
    before = files()
    theirs.send(JobBlock(1, [], []), [np.zeros(MOST_INLINE)])
    assert not theirs.is_full
    assert files() == before
    assert not theirs.closed
    assert [message for message, _ in theirs.receive()] == [JobCancellation(1)]
    assert list(theirs.receive()) == []
    assert theirs.closed
    theirs.send(JobCancellation(2))
    assert not theirs.is_full
