"""Files that are all there or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from murho.model.files import written_whole


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "index"
    for content in (b"old", b"new"):
        with written_whole(path) as file:
            file.write(content)
        assert path.read_bytes() == content
    assert [entry.name for entry in tmp_path.iterdir()] == ["index"]


@pytest.mark.parametrize("dies_at", [(os, "fsync"), (Path, "replace")])
def test_a_writer_that_dies_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_at: tuple[object, str]
) -> None:
    path = tmp_path / "index"
    path.write_bytes(b"old")

    def die(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(*dies_at, die)
    with pytest.raises(OSError, match="no space left"), written_whole(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"old"


def test_an_error_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "answers.csv"
    with written_whole(path) as file:
        file.write(b"old")
    with pytest.raises(KeyError), written_whole(path) as file:  # noqa: PT012 - the error comes after the write
        file.write(b"new")
        raise KeyError
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
