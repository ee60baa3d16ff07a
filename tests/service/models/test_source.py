from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from murho.model.checkpoint.stores import DirectoryStore
from murho.model.errors import CheckpointError
from murho.service.errors import NotReadyError
from murho.service.models.loader import Loader, Registry
from murho.service.models.watcher import CheckpointSource
from tests.rents import RENTS
from tests.service.support import FakeModel

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def version(tmp_path: Path) -> Path:
    directory = tmp_path / "cars" / "1"
    directory.mkdir(parents=True)
    for name in ("model.json", "model.safetensors"):
        (directory / name).write_text("{}")
    return directory


def test_a_directory_that_was_there_and_is_gone_is_an_error(version: Path) -> None:
    root = version.parents[1] / "root"
    (version.parent).rename(root)
    source = CheckpointSource(DirectoryStore(root), "cpu")
    assert len(source.list()) == 1
    root.rename(root.with_name("away"))
    with pytest.raises(CheckpointError, match="is gone"):
        source.list()


def test_a_directory_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    snapshot = Loader(CheckpointSource(DirectoryStore(tmp_path / "file"), "cpu"), Registry("here")).refresh()
    with pytest.raises(NotReadyError, match="file"):
        snapshot.require_models()


def test_a_directory_without_files_is_still_being_written(tmp_path: Path) -> None:
    (tmp_path / "cars" / "1").mkdir(parents=True)
    source = CheckpointSource(DirectoryStore(tmp_path), "cpu")
    assert source.stamp(source.list()[0]) is None
    with pytest.raises(CheckpointError, match=r"model\.json"):
        source.load(source.list()[0])


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_the_stamp_changes_with_either_file(version: Path, name: str) -> None:
    source = CheckpointSource(DirectoryStore(version.parents[1]), "cpu")
    (reference,) = source.list()
    before = source.stamp(reference)
    assert source.stamp(reference) == before
    os.utime(version / name, ns=(1, 1))
    assert source.stamp(reference) != before
    (version / "model.safetensors").unlink()
    assert source.stamp(reference) is not None


def test_the_stamp_follows_a_link(version: Path) -> None:
    root = version.parents[1]
    (root / "cars" / "2").mkdir()
    for name in ("model.json", "model.safetensors"):
        (root / "cars" / "2" / name).write_text("{}")
    link = root / "boats"
    link.symlink_to("cars")
    (version.parent / "3").symlink_to("1")
    source = CheckpointSource(DirectoryStore(root), "cpu")
    third = next(each for each in source.list() if (each.name, each.version) == ("boats", "3"))
    before = source.stamp(third)
    (version.parent / "3").unlink()
    (version.parent / "3").symlink_to("2")
    assert source.stamp(third) != before


def test_facts_of_a_report_are_read_where_a_version_keeps_them(tmp_path: Path) -> None:
    home = tmp_path / "rents" / "1"
    shutil.copytree(RENTS, home)
    source = CheckpointSource(DirectoryStore(tmp_path), "cpu")
    assert source.report_facts(FakeModel()) is None
    model = source.load(source.list()[0])
    assert source.report_facts(model) is None
    (home / "report").mkdir()
    (home / "report" / "facts.json").write_text('{"format": 3, "rows_are": "held out"}')
    assert source.report_facts(model) == {"format": 3, "rows_are": "held out"}
    (home / "report" / "facts.json").write_text('{"format": 1')
    assert source.report_facts(model) is None
