"""Checkpoints: all or nothing on disk, everything checked on the way back."""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from murho.model.bbb.network import Architecture
from murho.model.checkpoint import checkpoint
from murho.model.checkpoint.checkpoint import (
    SEAL,
    check_seal,
    check_writable,
    list_checkpoints,
    name_and_version,
    read_stored,
    seal,
    validate_name,
)
from murho.model.checkpoint.posterior import Posterior
from murho.model.checkpoint.spec import LikelihoodSpec, ModelSpec
from murho.model.checkpoint.stores import DirectoryStore
from murho.model.distributions.target_transforms import Identity, Standardisation
from murho.model.encoding.encoder import Encoder
from murho.model.errors import CheckpointError
from tests.model.checkpoint.test_spec import FACTS
from tests.model.encoding.distribution_tables import schema_of
from tests.support import sealed_again

SPEC = ModelSpec.from_json(FACTS)
TENSORS = {
    name: torch.arange(float(torch.tensor(shape).prod())).reshape(shape) for name, shape in SPEC.tensor_shapes().items()
}
BIAS = "layers.1.bias.mu"


def _write(root: Path) -> Path:
    return Posterior(SPEC, TENSORS).save(root, "cars")


def test_versions_count_up_and_gaps_are_not_reused(tmp_path: Path) -> None:
    (tmp_path / "cars" / "7").mkdir(parents=True)
    (tmp_path / "cars" / "7" / "model.json").write_text("{}")
    assert _write(tmp_path).name == "8"
    assert _write(tmp_path).name == "9"


def test_a_version_that_another_writer_takes_meanwhile_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.rename

    def rename(self: Path, target: Path) -> Path:
        if target.name == "1" and not target.exists():
            target.mkdir()
            (target / "model.json").write_text("{}")
        return real(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    assert _write(tmp_path).name == "2"


@pytest.mark.parametrize("step", ["write_durably", "sync_directory", "_rename_to_next_version"])
def test_a_disk_that_fills_leaves_nothing_and_older_versions_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    older = _write(tmp_path)
    before = {path: path.read_bytes() for path in older.iterdir()}

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(checkpoint, step, full)
    with pytest.raises(CheckpointError, match=r"No space left on device.*older versions are untouched"):
        _write(tmp_path)
    assert {path: path.read_bytes() for path in older.iterdir()} == before
    assert [entry.name for entry in (tmp_path / "cars").iterdir()] == ["1"]


def test_listing_sorts_by_number_and_passes_over_writers_and_files(tmp_path: Path) -> None:
    for version in ("10", "2"):
        (tmp_path / "cars" / version).mkdir(parents=True)
    (tmp_path / "cars" / ".writing-x").mkdir()
    (tmp_path / "readme.txt").write_text("")
    (tmp_path / "bad name").mkdir()
    (tmp_path / "cars" / "latest").mkdir()
    (tmp_path / "empty").mkdir()
    found = [(reference.name, reference.version, reference.problem is None) for reference in list_checkpoints(tmp_path)]
    assert found == [
        ("bad name", "", False),
        ("cars", "2", True),
        ("cars", "10", True),
        ("cars", "latest", False),
        ("empty", "", False),
    ]
    assert DirectoryStore(tmp_path).find("cars").name == "10"
    assert DirectoryStore(tmp_path).find("cars", "2").name == "2"


@pytest.mark.parametrize("name", ["", "a/b", "../x", ".hidden", "a" * 65, "a b", "ä", "a\n"])
def test_names_that_could_be_paths_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="name"):
        validate_name(name)
    with pytest.raises(CheckpointError, match="name"):
        Posterior(SPEC, TENSORS).save(tmp_path, name)
    assert not list(tmp_path.iterdir())


def test_a_directory_that_can_not_be_written_is_found_out_before_the_fit(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(CheckpointError, match="can't write"):
        check_writable(blocked, "cars")
    check_writable(tmp_path / "new", "cars")
    assert not (tmp_path / "new" / "cars").exists()


def _edit(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """Change `model.json` and seal it again, so that what else is checked is seen."""

    def edit(directory: Path) -> None:
        facts = json.loads((directory / "model.json").read_text())
        change(facts)
        (directory / "model.json").write_bytes(sealed_again(json.dumps(facts)))

    return edit


def _content(content: bytes | dict[str, torch.Tensor]) -> Callable[[Path], None]:
    """Other tensors, with their hash."""
    changed = content if isinstance(content, bytes) else safetensors.torch.save(content)

    def replace(directory: Path) -> None:
        (directory / "model.safetensors").write_bytes(changed)
        _edit(lambda facts: facts["tensors"].update(sha256=hashlib.sha256(changed).hexdigest()))(directory)

    return replace


def _text(change: Callable[[str], str]) -> Callable[[Path], object]:
    return lambda directory: (directory / "model.json").write_text(change((directory / "model.json").read_text()))


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**42)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), _sparse])
@pytest.mark.parametrize("file", ["model.json", "model.safetensors"])
def test_what_would_hang_or_fill_memory_is_not_read(tmp_path: Path, file: str, make: Callable[[Path], None]) -> None:
    directory = _write(tmp_path)
    (directory / file).unlink()
    make(directory / file)
    with pytest.raises(CheckpointError, match=rf"{file}: can't be read: it (is no plain file|has .* at most)"):
        read_stored(directory)


def test_tensors_that_the_memory_can_not_hold_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = _write(tmp_path)
    size = 4 * sum(tensor.numel() for tensor in TENSORS.values())
    monkeypatch.setattr(checkpoint, "memory_size", lambda: 4 * size)
    read_stored(directory)
    monkeypatch.setattr(checkpoint, "memory_size", lambda: 4 * size - 1)
    with pytest.raises(CheckpointError, match=r"model\.safetensors: model\.json describes .* GiB of memory"):
        read_stored(directory)


def test_the_next_writer_clears_what_killed_ones_left_and_nothing_of_living_ones(tmp_path: Path) -> None:
    home = tmp_path / "cars"
    for name in (".writing-dead", ".writing-live", ".probe-dead", ".training"):
        (home / name).mkdir(parents=True)
        (home / name / "model.safetensors").write_bytes(b"1")
        for path in (home / name / "model.safetensors", home / name):
            os.utime(path, (0, 0))
    os.utime(home / ".writing-live" / "model.safetensors")  # its folder is old: a large file is being written
    assert _write(tmp_path).name == "1"
    assert sorted(path.name for path in home.iterdir()) == [".training", ".writing-live", "1"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda directory: os.truncate(directory / "model.safetensors", 100), "has 100 of .*still being copied"),
        (_content(b"not a tensor file" * 100), "not a safetensors file"),
        (_content({**TENSORS, BIAS: torch.full((2, 1, 1), torch.nan)}), f"{BIAS}.*NaN"),
        (_content({**TENSORS, "extra": torch.zeros(1)}), "'extra' is not expected"),
        (_content({k: v for k, v in TENSORS.items() if k != BIAS}), f"{BIAS}' is missing"),
        (_content({**TENSORS, BIAS: torch.zeros(3)}), r"shape \[3\], expected \[2, 1, 1\]"),
        (_content({k: v.double() for k, v in TENSORS.items()}), "float64, expected torch.float32"),
        (_edit(lambda facts: facts.update(format=2)), "format 2 is newer than 1.*upgrade"),
        (_edit(lambda facts: facts.update(format="x")), "format must be a whole number"),
        (_edit(lambda facts: facts.update(name="../evil")), "'../evil' is not a valid"),
        (_edit(lambda facts: facts.pop("tensors")), "sha256"),
        (_edit(lambda facts: facts.pop("schema")), r"model\.json: schema: the field is missing"),
        (_text(lambda text: text.rstrip().removesuffix("}") + ', "x": ' + 300 * "[" + 300 * "]" + "}"), "too deeply"),
        (_text(lambda text: text.replace('"EUR"', '"USD"')), "damaged or edited"),
        (_text(lambda text: text.replace(SEAL, "seal")), f"{SEAL} is missing"),
        (_text(lambda _: "{"), "not valid JSON"),
        (_text(lambda _: "[]"), "expected a JSON object"),
        (lambda directory: (directory / "model.safetensors").unlink(), "safetensors: the file is missing"),
    ],
)
def test_damage_is_refused_with_file_and_reason(tmp_path: Path, damage: Callable[[Path], None], message: str) -> None:
    directory = _write(tmp_path)
    damage(directory)
    with pytest.raises(CheckpointError, match=message):
        read_stored(directory)


def test_one_bad_directory_is_a_problem_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path)
    (tmp_path / "cars" / "2").write_text("a file")
    (tmp_path / "cars" / "3").symlink_to("nowhere")
    (tmp_path / "boats").symlink_to(tmp_path / "gone")
    (tmp_path / "ships" / "1").mkdir(parents=True)
    (tmp_path / "trains" / ".1.tmp").mkdir(parents=True)  # its first version is being written
    real = Path.iterdir

    def iterdir(self: Path) -> Iterator[Path]:  # tests may run as root, who may read everything
        if self.name == "ships":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real(self)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    problems = {(each.name, each.version): each.problem for each in list_checkpoints(tmp_path)}
    assert problems == {
        ("cars", "1"): None,
        ("boats", ""): f"the link leads to {tmp_path / 'gone'}, which does not exist",
        ("cars", "2"): "this is a file, and a directory is expected",
        ("cars", "3"): "the link leads to nowhere, which does not exist",
        ("ships", ""): "the directory can't be read: Permission denied",
    }


def test_links_are_known_by_their_own_name(tmp_path: Path) -> None:
    made = _write(tmp_path / "elsewhere")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "trucks").symlink_to(made.parent)
    (made.parent / "2").symlink_to("1")
    found = list_checkpoints(tmp_path / "root")
    assert [(each.name, each.version, each.problem) for each in found] == [("trucks", "1", None), ("trucks", "2", None)]
    assert [name_and_version(each.path) for each in found] == [("trucks", "1"), ("trucks", "2")]


def test_extras_lie_beside_the_two_files_and_a_disk_that_fills_costs_them_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extras = {"page.html": b"<html>", "pictures/a.png": b"png", "pictures/b.png": b"png"}
    first = Posterior(SPEC, TENSORS).save(tmp_path, "cars", extras=extras)
    assert {str(path.relative_to(first)) for path in first.rglob("*") if path.is_file()} == {
        "model.json",
        "model.safetensors",
        *extras,
    }
    write_bytes = Path.write_bytes

    def full(path: Path, content: bytes) -> int:
        if path.name == "b.png":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write_bytes(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    second = Posterior(SPEC, TENSORS).save(tmp_path, "cars", extras=extras)
    assert sorted(path.name for path in second.iterdir()) == ["model.json", "model.safetensors"]
    assert read_stored(second).spec.to_json() == FACTS


SEALED: dict[str, Any] = {
    "name": "cars",
    "training": {"rows": 3, "note": "grün"},
    "numbers": np.array([0.1, 1e300], dtype=np.float64),
    "single": np.array([0.1], dtype=np.float32),
    "large": 2**63 - 1,
}


def test_order_and_indentation_may_change_and_values_and_names_not() -> None:
    read = json.loads(seal(SEALED))
    assert list(read) == [*SEALED, SEAL]
    check_seal(json.loads(json.dumps(dict(reversed(list(read.items()))), indent=7)))
    without = {name: value for name, value in read.items() if name != "large"}
    for changed in (read | {"more": 1}, read | {"numbers": [0.1, 1e299]}, read | {SEAL: 7}, without):
        with pytest.raises(CheckpointError, match="damaged or edited"):
            check_seal(changed)


@pytest.fixture
def rent_copy(rent_checkpoints: Path, tmp_path: Path) -> Path:
    """Return a copy of a checkpoint, to be changed."""
    return Path(shutil.copytree(rent_checkpoints / "rent" / "1", tmp_path / "rent" / "1"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda facts: facts["target"].update(scale=1e300), "proof"),
        (lambda facts: facts["target"].update(location=100.0), r"\.json: proof: mean of row \d is .*, and was"),
        (lambda facts: facts["likelihood"].update(kind="homoscedastic"), "outputs"),
        (lambda facts: facts["encoder"]["parts"][0]["scale"].update(mean=1.0, std=2.0), "proof"),
        (lambda facts: facts.pop("proof"), "proof: expected an object of numbers with mean, std"),
        (lambda facts: facts["proof"].update(std=None), r"proof\.std: expected numbers, 3"),
        (lambda facts: facts["proof"].update(mean=["high"] * 3), r"proof: expected an object of numbers"),
    ],
)
def test_other_answers_and_a_malformed_proof_are_refused(
    rent_copy: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    _edit(change)(rent_copy)
    with pytest.raises(CheckpointError, match=message):
        Posterior.load(rent_copy)


def test_what_gives_no_finite_answer_is_not_written(tmp_path: Path, rent_checkpoints: Path) -> None:
    stored = read_stored(rent_checkpoints / "rent" / "1")
    spec, tensors = stored.spec, stored.tensors
    spec = replace(spec, target=replace(spec.target, scale=1e300))
    with pytest.raises(CheckpointError, match="aren't finite"):
        Posterior(spec, tensors).save(tmp_path, "rent")


@pytest.mark.parametrize("engine", ["auto", "torch"])
def test_draws_far_apart_with_little_noise_prove_themselves(tmp_path: Path, engine: str) -> None:
    columns = {"x": np.array([0.0, 0.5, 1.0])}
    schema = schema_of(columns, imputed=False)
    encoder = Encoder.fit(schema, columns)
    spec = ModelSpec(
        architecture=Architecture(encoder.width, (), 1),
        likelihood=LikelihoodSpec("fixed", sigma=1e-6),
        target=Standardisation(Identity(), 0.0, 1.0),
        schema=schema,
        encoder=encoder,
    )
    tensors = {name: torch.full(shape, 3.0) for name, shape in spec.tensor_shapes().items()}
    Posterior.load(Posterior(spec, tensors).save(tmp_path, "far"), engine=engine)
