from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pytest

from murho.model.checkpoint.objects import Manifest
from murho.model.errors import CheckpointError
from tests.model.checkpoint.conftest import RENTS

if TYPE_CHECKING:
    from pathlib import Path

GOOD = {"bytes": 3, "sha256": "a" * 64}


def manifest(**files: Any) -> dict[str, Any]:
    return {"format": 1, "files": {"model.json": GOOD, "model.safetensors": GOOD, **files}}


def test_a_manifest_has_every_file_and_is_read_as_it_was_written() -> None:
    made = Manifest.of_directory(RENTS)
    assert set(made.files) == {"model.json", "model.safetensors"}
    assert Manifest.from_bytes(made.to_bytes()) == made
    assert made.differs_from(RENTS) is None


def test_hidden_files_and_an_earlier_manifest_are_left_out(tmp_path: Path) -> None:
    for path in ("model.json", "model.safetensors", "report/facts.json", ".hidden", "report/.x", "manifest.json"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(path)
    assert set(Manifest.of_directory(tmp_path).files) == {"model.json", "model.safetensors", "report/facts.json"}


def test_a_directory_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"model\.json is missing"):
        Manifest.of_directory(tmp_path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"format": 1, "files": {"model.js', "not valid JSON"),
        ([], "expected an object"),
        ({"format": 1, "files": []}, "expected an object"),
        (manifest() | {"format": 2}, "newer"),
        ({"format": 1, "files": {"model.json": GOOD}}, r"does not list model\.safetensors"),
        (manifest(**{"../../etc/passwd": GOOD}), "no path of a file"),
        (manifest(**{"/etc/passwd": GOOD}), "no path of a file"),
        (manifest(**{"a//b": GOOD}), "no path of a file"),
        (manifest(**{"a\\b": GOOD}), "no path of a file"),
        (manifest(**{"model.json/b": GOOD}), "folder that is a file"),
        (manifest(x={"bytes": -1, "sha256": "a" * 64}), "x: bytes"),
        (manifest(x={"bytes": True, "sha256": "a" * 64}), "x: bytes"),
        (manifest(x={"bytes": 1, "sha256": "A" * 64}), "x: sha256"),
        (manifest(x="y"), "x: bytes"),
        (manifest(**{"model.json": {"bytes": 2**40, "sha256": "a" * 64}}), "model.json has .* at most .* are read"),
        (manifest(**{f"f{number}": GOOD for number in range(5_001)}), "expected an object"),
    ],
)
def test_a_manifest_that_lies_about_its_form_is_refused(content: Any, said: str) -> None:
    with pytest.raises(CheckpointError, match=said):
        Manifest.from_bytes(content if isinstance(content, bytes) else orjson.dumps(content))


def test_a_file_that_is_not_as_the_manifest_says_is_named(tmp_path: Path) -> None:
    for path in ("model.json", "model.safetensors"):
        (tmp_path / path).write_text("one")
    made = Manifest.of_directory(tmp_path)
    (tmp_path / "model.json").write_text("two")
    assert made.differs_from(tmp_path) == "model.json has another sha256"
    (tmp_path / "model.json").write_text("three")
    assert made.differs_from(tmp_path) == "model.json has another size"
    (tmp_path / "model.json").unlink()
    assert "can't be read" in str(made.differs_from(tmp_path))
