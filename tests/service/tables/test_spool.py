from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murho.service.errors import QueueFullError
from murho.service.predict.memory import IN_MEMORY_BYTES, Room, Spool

if TYPE_CHECKING:
    from collections.abc import Callable

MUCH = 2**40


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=3), st.integers(0, 900_000)), max_size=12))
def test_what_was_written_is_read(parts: list[tuple[bytes, int]]) -> None:
    room = Room(MUCH)
    with Spool(room) as spool:
        for part, times in parts:
            spool.write(part * times)
        written = b"".join(part * times for part, times in parts)
        assert room.taken == spool.size == len(written)
        assert spool.view() == written
        spool.forget_pages()
        assert spool.view() == written
    assert room.taken == 0


def test_a_large_one_is_in_a_file_and_a_small_one_is_not() -> None:
    room = Room(MUCH)
    with Spool(room) as small, Spool(room) as large:
        small.write(b"x" * IN_MEMORY_BYTES)
        assert not small.in_file
        large.write(b"x" * (IN_MEMORY_BYTES + 1))
        assert large.in_file
        assert len(large._in_memory) == 0


def test_all_spools_share_the_room_and_one_alone_always_has_some() -> None:
    room = Room(100)
    with Spool(room) as alone:
        alone.write(b"x" * 101)
        with Spool(room) as other, pytest.raises(QueueFullError) as refused:
            other.write(b"x")
        assert refused.value.retry_after
    with Spool(room) as other:
        other.write(b"x" * 60)
        with Spool(room) as another:
            another.write(b"x" * 40)
            with pytest.raises(QueueFullError):
                another.write(b"x")
    assert room.taken == 0


TemporaryFile = tempfile.TemporaryFile


class Full:
    """A file on a disk that gets full."""

    def __init__(self, after: int) -> None:
        self._file, self._after = TemporaryFile(buffering=0), after
        self.seek, self.read, self.close = self._file.seek, self._file.read, self._file.close

    def write(self, data: memoryview) -> int:
        self._after -= len(data)
        if self._after < 0:
            raise OSError(28, "No space left on device")
        return self._file.write(data)


def _nowhere(**_: object) -> Full:
    raise FileNotFoundError("No usable temporary directory found")


@pytest.mark.parametrize("make", [lambda **_: Full(0), lambda **_: Full(2 * IN_MEMORY_BYTES), _nowhere])
def test_without_a_disk_to_write_to_it_stays_in_memory(
    make: Callable[..., Full], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", make)
    room, block = Room(MUCH), bytes(range(256)) * 4096
    with Spool(room) as spool:
        for _ in range(16):
            spool.write(block)
        assert spool.view() == block * 16
        assert room.taken == 16 * len(block)
