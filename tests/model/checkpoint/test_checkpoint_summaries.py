"""What `murho models` tells of a directory, damaged checkpoints included."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from murho.model.checkpoint.stores import DirectoryStore, summaries
from tests.model.conftest import present

if TYPE_CHECKING:
    from pathlib import Path


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
    for name in ("edited", "cut", "good", "pipe"):
        shutil.copytree(rent_checkpoints / "rent" / "1", tmp_path / name / "1")
    facts = tmp_path / "edited" / "1" / "model.json"
    facts.write_text(facts.read_text().replace('"EUR"', '"USD"'))
    (tmp_path / "cut" / "1" / "model.json").write_text("{")
    (tmp_path / "pipe" / "1" / "model.json").unlink()
    os.mkfifo(tmp_path / "pipe" / "1" / "model.json")
    (tmp_path / "none").mkdir()
    found = {each.name: each.problem for each in summaries(DirectoryStore(tmp_path))}
    assert found["good"] is None
    assert "damaged or edited" in present(found["edited"])
    assert "damaged" in present(found["cut"])
    assert "no plain file" in present(found["pipe"])
    assert "no version" in present(found["none"])


def test_a_directory_that_is_not_there_has_no_checkpoints(tmp_path: Path) -> None:
    assert summaries(DirectoryStore(tmp_path / "nowhere")) == []
