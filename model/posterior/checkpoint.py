"""Checkpoints on disk: ``NAME/VERSION/`` with ``model.safetensors`` and ``model.json``.

A version is written to a temporary name, flushed to the disk, then renamed: a reader sees all of it or none of it.
Every tensor that is read is checked against the shapes in ``model.json``; nothing is ever unpickled.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from murho.model.errors import CheckpointError
from murho.model.runtime.durable_files import sync_directory, write_durably

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from murho.model.posterior.model_spec import ModelSpec

__all__ = [
    "FACTS_FILE",
    "FORMAT",
    "CheckpointReference",
    "check_writable",
    "default_root",
    "find_checkpoint",
    "list_checkpoints",
    "read_checkpoint",
    "validate_name",
    "write_checkpoint",
]

FORMAT = 1
"""Version of the layout of ``model.json``; a reader refuses a newer one."""

NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
VERSION_PATTERN = re.compile(r"[1-9][0-9]{0,8}")
TENSORS_FILE = "model.safetensors"
FACTS_FILE = "model.json"


def default_root() -> Path:
    """The default directory of checkpoints."""
    return Path("checkpoints")


def validate_name(name: str) -> str:
    """Check the name of a checkpoint, and return it.

    Raises:
        CheckpointError: The name is not allowed, for example because it contains a path separator.
    """
    if not NAME_PATTERN.fullmatch(name):
        raise CheckpointError(
            f"{name!r} can't be the name of a checkpoint: use 1 to 64 letters, digits, '.', '_' and '-', "
            "beginning with a letter or a digit"
        )
    return name


@dataclass(frozen=True, slots=True)
class CheckpointReference:
    """One version of one checkpoint on disk, not yet read.

    Attributes:
        name: Name of the outer directory.
        version: Name of the inner directory; empty if the outer one holds no version.
        path: The inner directory; the outer one if that holds no version.
        problem: Why it can't be a checkpoint, or None.
    """

    name: str
    version: str
    path: Path
    problem: str | None = None


def list_checkpoints(root: Path) -> list[CheckpointReference]:
    """List every checkpoint in a directory, sorted by name, then by version.

    Hidden entries (such as the temporary directories of writers) and plain files are skipped. A directory that does
    not exist has no checkpoints.

    Raises:
        CheckpointError: The directory can't be read.
    """
    if not root.exists():
        return []
    found = []
    try:
        for outer in sorted(entry for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith(".")):
            if not NAME_PATTERN.fullmatch(outer.name):
                problem = "the name breaks the rule: letters, digits, '.', '_' and '-', at most 64"
                found.append(CheckpointReference(outer.name, "", outer, problem))
                continue
            entries = list(outer.iterdir())
            versions = [entry for entry in entries if entry.is_dir() and not entry.name.startswith(".")]
            good = sorted((v for v in versions if VERSION_PATTERN.fullmatch(v.name)), key=lambda v: int(v.name))
            bad = sorted(v for v in versions if not VERSION_PATTERN.fullmatch(v.name))
            found += [CheckpointReference(outer.name, v.name, v) for v in good]
            found += [CheckpointReference(outer.name, v.name, v, "a version is a whole number from 1") for v in bad]
            # A directory with hidden entries alone is no problem: its first training is still running.
            if not versions and not any(entry.name.startswith(".") for entry in entries):
                found.append(CheckpointReference(outer.name, "", outer, "the directory holds no version"))
    except OSError as error:
        raise CheckpointError(f"{root}: can't list checkpoints: {error.strerror or error}") from error
    return found


def find_checkpoint(root: Path, name: str, version: str | None = None) -> Path:
    """Find the directory of a version, by default of the highest one.

    Raises:
        CheckpointError: There is no such checkpoint or version; the message lists the existing ones.
    """
    validate_name(name)
    known = [reference for reference in list_checkpoints(root) if reference.problem is None]
    versions = [reference for reference in known if reference.name == name]
    if not versions:
        names = sorted({reference.name for reference in known})
        there = f"there are: {', '.join(names)}" if names else "there is none; train one with `murho train`"
        raise CheckpointError(f"{root} has no checkpoint {name!r}; {there}")
    if version is None:
        return versions[-1].path
    for reference in versions:
        if reference.version == version:
            return reference.path
    there = ", ".join(reference.version for reference in versions)
    raise CheckpointError(f"checkpoint {name!r} has no version {version!r}; there are: {there}")


def read_checkpoint(directory: Path) -> tuple[ModelSpec, dict[str, Tensor]]:
    """Read and check the specification and the tensors of a version.

    Args:
        directory: ``NAME/VERSION``.

    Returns:
        The specification in ``model.json``, and float32 tensors on the CPU by name.

    Raises:
        CheckpointError: A file is missing or damaged, the format is newer, a field of ``model.json`` is not as
            expected, or the tensors don't fit it. The message names the file, and the field or the tensor.
    """
    from murho.model.posterior.model_spec import ModelSpec

    path = directory / FACTS_FILE
    facts = _read_json(path)
    try:
        spec = ModelSpec.from_json(facts)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from error
    recorded = facts.get("tensors")
    sha256 = recorded.get("sha256") if isinstance(recorded, dict) else None
    return spec, _read_tensors(directory / TENSORS_FILE, sha256, spec.tensor_shapes())


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: the file is missing") from error
    except OSError as error:
        raise CheckpointError(f"{path}: can't be read: {error.strerror or error}") from error


def _read_json(path: Path) -> dict[str, Any]:
    """Read ``model.json``, and check its format and name only."""
    try:
        facts = orjson.loads(_read_bytes(path))
    except orjson.JSONDecodeError as error:
        raise CheckpointError(f"{path}: not valid JSON ({error}); the file is damaged") from error
    if not isinstance(facts, dict):
        raise CheckpointError(f"{path}: expected a JSON object, found {type(facts).__name__}")
    version = facts.get("format")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise CheckpointError(f"{path}: format must be a whole number from 1, found {version!r}")
    if version > FORMAT:
        raise CheckpointError(
            f"{path}: format {version} is newer than {FORMAT}, the newest that this Murho reads; upgrade Murho"
        )
    name = facts.get("name")
    if not isinstance(name, str) or not NAME_PATTERN.fullmatch(name):
        raise CheckpointError(f"{path}: name {name!r} is not a valid checkpoint name")
    return facts


def _read_tensors(path: Path, sha256: object, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Read the tensors of a file, and check each one.

    Args:
        path: The file.
        sha256: Hash of its content, from ``model.json``.
        shapes: Name and shape of every tensor that the file must hold.
    """
    import safetensors.torch
    import torch

    from murho.model.networks.named_tensors import tensor_problem

    content = _read_bytes(path)
    actual = hashlib.sha256(content).hexdigest()
    if sha256 != actual:
        raise CheckpointError(
            f"{path}: sha256 is {actual[:12]}…, {FACTS_FILE} says {str(sha256)[:12]}…: "
            "the file was truncated or edited; restore it or train again"
        )
    try:
        tensors: dict[str, Tensor] = safetensors.torch.load(content)
    except Exception as error:
        raise CheckpointError(f"{path}: not a safetensors file ({error})") from error
    template = {name: torch.empty(shape, dtype=torch.float32, device="meta") for name, shape in shapes.items()}
    problem = tensor_problem(tensors, template)
    if problem is not None:
        raise CheckpointError(f"{path}: {problem}")
    return tensors


def check_writable(root: Path, name: str) -> None:
    """Check that a checkpoint can be written, so that a fit fails before it starts, not at its end.

    Raises:
        CheckpointError: The name is forbidden or the directory can't be written.
    """
    validate_name(name)
    try:
        home = root / name
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".probe-", dir=home):
            pass
        with contextlib.suppress(OSError):
            home.rmdir()  # only if it is empty: a fit that fails leaves no trace
    except OSError as error:
        raise CheckpointError(f"{root / name}: can't write checkpoints here: {error.strerror or error}") from error


def write_checkpoint(root: Path, name: str, spec: ModelSpec, tensors: Mapping[str, Tensor]) -> Path:
    """Write the next version of a checkpoint, all of it or nothing.

    Args:
        root: Directory of checkpoints.
        name: Name of the checkpoint.
        spec: The content of ``model.json`` except ``format``, ``name`` and ``tensors``, which are added here.
        tensors: mu, rho and noise parameters by name, float32.

    Returns:
        The directory ``root/name/version``; the version is one above the highest existing one.

    Raises:
        CheckpointError: The name is forbidden, or the disk is full or not writable. Then nothing of the new version
            is visible, and older ones are untouched.
    """
    from murho.model.networks.named_tensors import tensor_bytes

    validate_name(name)
    content = tensor_bytes(tensors)
    complete = {
        "format": FORMAT,
        "name": name,
        **spec.to_json(),
        "tensors": {
            "file": TENSORS_FILE,
            "sha256": hashlib.sha256(content).hexdigest(),
            "bytes": len(content),
        },
    }
    home = root / name
    temporary: Path | None = None
    try:
        home.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=".writing-", dir=home))
        temporary.chmod(0o755)
        write_durably(temporary / TENSORS_FILE, content)
        write_durably(
            temporary / FACTS_FILE,
            orjson.dumps(complete, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY),
        )
        sync_directory(temporary)
        goal = _rename_to_next_version(temporary, home)
        sync_directory(home)
        sync_directory(root)
    except OSError as error:
        raise CheckpointError(
            f"{home}: the checkpoint could not be written: {error.strerror or error}; "
            "nothing of it was left behind, older versions are untouched"
        ) from error
    finally:
        if temporary is not None and temporary.exists():
            shutil.rmtree(temporary, ignore_errors=True)
    return goal


def _rename_to_next_version(temporary: Path, home: Path) -> Path:
    """Rename to the first free number above the highest version, or to a later one if another writer takes it first."""
    taken = [int(entry.name) for entry in home.iterdir() if VERSION_PATTERN.fullmatch(entry.name)]
    version = max(taken, default=0) + 1
    while True:
        goal = home / str(version)
        try:
            temporary.rename(goal)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
            version += 1
        else:
            return goal
