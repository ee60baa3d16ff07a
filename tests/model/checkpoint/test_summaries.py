"""A place of checkpoints in a line each."""

import os
import shutil
from pathlib import Path

from murho.model.checkpoint.stores import DirectoryStore
from murho.model.checkpoint.summaries import summaries
from tests.model.conftest import present


def test_a_summary_is_of_the_latest_version(rent_checkpoints: Path, tmp_path: Path) -> None:
    for version in ("1", "2", "10"):
        shutil.copytree(rent_checkpoints / "rent" / "1", tmp_path / "rent" / version)
    (found,) = summaries(DirectoryStore(tmp_path))
    assert (found.name, found.versions, found.target, found.unit) == ("rent", ("1", "2", "10"), "rent", "EUR")
    assert (found.rows, found.problem) == (160, None)
    assert present(found.crps) > 0.0
    assert present(found.created).tzinfo is not None
    assert found.to_json()["created"] == present(found.created).isoformat()


def test_what_is_damaged_is_named_and_the_others_are_listed(rent_checkpoints: Path, tmp_path: Path) -> None:
    for name in ("cut", "good", "pipe"):
        shutil.copytree(rent_checkpoints / "rent" / "1", tmp_path / name / "1")
    (tmp_path / "cut" / "1" / "model.json").write_text("{")
    (tmp_path / "pipe" / "1" / "model.json").unlink()
    os.mkfifo(tmp_path / "pipe" / "1" / "model.json")
    (tmp_path / "none").mkdir()
    found = {each.name: each.problem for each in summaries(DirectoryStore(tmp_path))}
    assert found["good"] is None
    for name, problem in (("cut", "damaged"), ("pipe", "no plain file"), ("none", "no version")):
        assert problem in present(found[name])
    assert summaries(DirectoryStore(tmp_path / "nowhere")) == []
