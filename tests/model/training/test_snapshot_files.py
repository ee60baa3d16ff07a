"""Snapshot files are complete even if the writer dies, checked when read, and locked by one process."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from murho.model.errors import CheckpointError
from murho.model.training.snapshot_files import SnapshotFiles

if TYPE_CHECKING:
    from collections.abc import Callable

TENSORS = {
    "mu": torch.arange(6.0).reshape(2, 3).mT,  # not contiguous
    "state": torch.arange(5, dtype=torch.uint8),
    "step": torch.tensor(3.0),
}


@pytest.fixture
def files(tmp_path: Path) -> SnapshotFiles:
    made = SnapshotFiles(tmp_path / "rent" / ".training")
    assert made.acquire()
    return made


def _names(files: SnapshotFiles) -> set[str]:
    return {path.name for path in files.directory.iterdir()}


def test_index_and_tensors_come_back(files: SnapshotFiles) -> None:
    assert files.read_index() is None
    name, sha256 = files.write_tensors(TENSORS)
    files.write_index({"loss": 0.1 + 0.2, "best": math.inf, "history": [(1, math.nan)]}, [name])
    assert files.read_index() == {"loss": 0.1 + 0.2, "best": None, "history": [[1, None]]}
    for key, tensor in files.read_tensors(name, sha256).items():
        assert torch.equal(tensor, TENSORS[key])
        assert tensor.dtype == TENSORS[key].dtype


def test_what_the_index_no_longer_names_is_removed(files: SnapshotFiles) -> None:
    old, _ = files.write_tensors({"mu": torch.zeros(1)})
    files.write_index({}, [old])
    new, _ = files.write_tensors({"mu": torch.ones(1)})
    assert {old, new} <= _names(files)  # until the new index is there
    files.write_index({}, [new])
    assert _names(files) == {"lock", "training.json", new}


@pytest.mark.parametrize("dies_at", ["os.fsync", "pathlib.Path.replace"])
def test_a_writer_that_dies_leaves_the_snapshot_before_it(
    files: SnapshotFiles, monkeypatch: pytest.MonkeyPatch, dies_at: str
) -> None:
    name, sha256 = files.write_tensors(TENSORS)
    files.write_index({"epoch": 1}, [name])

    def die(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(dies_at, die)
    with pytest.raises(OSError, match="no space"):
        files.write_index({"epoch": 2}, [])
    with pytest.raises(OSError, match="no space"):
        files.write_tensors({"mu": torch.zeros(1)})
    assert files.read_index() == {"epoch": 1}
    assert len(files.read_tensors(name, sha256)) == 3


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


@pytest.mark.parametrize("damage", [_flip, _cut, Path.unlink])
def test_damaged_tensors_are_refused_by_the_files_name(files: SnapshotFiles, damage: Callable[[Path], object]) -> None:
    name, sha256 = files.write_tensors(TENSORS)
    damage(files.directory / name)
    with pytest.raises(CheckpointError, match=rf"{name}: the snapshot is damaged .*leave out --resume"):
        files.read_tensors(name, sha256)


@pytest.mark.parametrize(
    "damage", [_flip, _cut, lambda path: path.write_text("[]"), lambda path: path.write_text('{"format": 2}')]
)
def test_a_damaged_index_is_refused_by_the_files_name(files: SnapshotFiles, damage: Callable[[Path], object]) -> None:
    files.write_index({"epoch": list(range(100))}, [])
    damage(files.directory / "training.json")
    with pytest.raises(CheckpointError, match=r"training\.json: the snapshot is damaged .*leave out --resume"):
        files.read_index()


def test_one_process_holds_it_at_a_time(files: SnapshotFiles) -> None:
    other = SnapshotFiles(files.directory)
    assert not other.acquire()
    assert not other.held
    other.release()  # does nothing to what it does not hold
    assert files.directory.exists()
    files.write_index({}, [])
    files.release()
    assert other.acquire()


def test_nothing_written_leaves_no_trace(files: SnapshotFiles) -> None:
    files.release()
    assert not files.directory.parent.exists()


def test_a_checkpoint_beside_it_stays(files: SnapshotFiles) -> None:
    (files.directory.parent / "1").mkdir()
    files.release()
    assert [path.name for path in files.directory.parent.iterdir()] == ["1"]


def test_a_place_that_can_not_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "rent").write_text("a file")
    with pytest.raises(CheckpointError, match=r"rent/\.training: can't write snapshots here"):
        SnapshotFiles(tmp_path / "rent" / ".training").acquire()
