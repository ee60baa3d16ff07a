"""Files: read within bounds, at once, and written whole or not at all."""

import os
from pathlib import Path

import pytest

from murho.model.files import MOST_VALUES, parse_json, read_bounded, write_whole
from murho.model.runtime import memory_size

STATUS = Path("/proc/self/status")


def test_a_plain_file_and_a_link_to_one_are_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"1234")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert read_bounded(tmp_path / "link", 4) == b"1234"
    with pytest.raises(OSError, match="it has 4 bytes, and at most 3 are read"):
        read_bounded(tmp_path / "file", 3)
    with pytest.raises(FileNotFoundError):
        read_bounded(tmp_path / "none")


@pytest.mark.skipif(not STATUS.exists(), reason="there is no /proc")
def test_a_file_that_is_longer_than_it_says_is_not_read() -> None:
    with pytest.raises(OSError, match="its size changed"):
        read_bounded(STATUS)


def test_json_of_very_many_small_values_is_refused() -> None:
    assert parse_json(b'{"a": [1, {}]}') == {"a": [1, {}]}
    with pytest.raises(ValueError, match="values, and at most"):
        parse_json(b"[" + b"{}," * MOST_VALUES + b"1]")
    with pytest.raises(ValueError, match="unexpected"):
        parse_json(b"a")


def test_the_memory_of_a_container_counts(tmp_path: Path) -> None:
    whole = memory_size(tmp_path)
    assert whole is None or whole > 2**20
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("2000\n")
    assert memory_size(tmp_path) == 2000
    (tmp_path / "memory.max").write_text("1000\n")
    assert memory_size(tmp_path) == 1000
    (tmp_path / "memory" / "memory.limit_in_bytes").unlink()
    (tmp_path / "memory.max").write_text("max\n")
    assert memory_size(tmp_path) == whole


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "index"
    for content in (b"old", b"new"):
        with write_whole(path) as file:
            file.write(content)
        assert path.read_bytes() == content
    assert [entry.name for entry in tmp_path.iterdir()] == ["index"]


@pytest.mark.parametrize("dies_at", [(os, "fsync"), (Path, "replace")])
def test_a_writer_that_dies_leaves_the_old_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_at: tuple[object, str]
) -> None:
    path = tmp_path / "index"
    path.write_bytes(b"old")

    def die(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(*dies_at, die)
    with pytest.raises(OSError, match="no space left"), write_whole(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"old"
    with pytest.raises(KeyError), write_whole(path):
        raise KeyError
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
