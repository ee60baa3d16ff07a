"""Files that are all there or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from murho.model.runtime.durable_files import replace_durably


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "index"
    for content in (b"old", b"new"):
        replace_durably(path, content)
        assert path.read_bytes() == content
    assert [entry.name for entry in tmp_path.iterdir()] == ["index"]


@pytest.mark.parametrize("dies_at", [(os, "fsync"), (Path, "replace")])
def test_a_writer_that_dies_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_at: tuple[object, str]
) -> None:
    path = tmp_path / "index"
    replace_durably(path, b"old")

    def die(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(*dies_at, die)
    with pytest.raises(OSError, match="no space left"):
        replace_durably(path, b"new")
    assert path.read_bytes() == b"old"
