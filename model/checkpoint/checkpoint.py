"""Checkpoints on disk: ``NAME/VERSION/`` with ``model.safetensors`` and ``model.json``.

A version is written to a temporary name, flushed to the disk, then renamed: a reader sees all of it or none of it.
Every tensor that is read is checked against the shapes in ``model.json``; nothing is ever unpickled. Both files are
covered by hashes, and a few answers are stored with them (`model.checkpoint.proof`).

The seal is the last field of ``model.json``, the SHA-256 of all others. It is computed from the parsed content in one
canonical form, keys sorted and without spaces. So indentation and the order of keys may change; names and values may
not.

Below a root, a directory that can't be read, or a link that leads nowhere, is a problem of its own; the others are
listed all the same.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import math
import os
import re
import shutil
import stat
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import orjson

from murho.model.errors import CheckpointError
from murho.model.files import MOST_FACTS_BYTES, parse_json, read_bounded, sync_directory, write_durably
from murho.model.runtime import memory_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import Tensor

    from murho.model.arrays import Doubles
    from murho.model.checkpoint.spec import ModelSpec

DEFAULT_ROOT = Path("checkpoints")
"""The default directory of checkpoints."""
NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
VERSION_PATTERN = re.compile(r"[1-9][0-9]{0,8}")
REMOVED = "it was removed meanwhile"
UNREADABLE = "the directory can't be read"
NOT_A_DIRECTORY = "this is a file, and a directory is expected"


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


def name_and_version(directory: Path) -> tuple[str, str]:
    """Return name and version by the path of a directory ``NAME/VERSION``, wherever a link leads."""
    called = Path(os.path.abspath(directory))  # noqa: PTH100 - Path.resolve would follow links
    return called.parent.name, called.name


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

    @property
    def unreadable(self) -> bool:
        """Whether the problem is that it can't be read now, so that it may be a good one."""
        return self.problem is not None and self.problem.startswith(UNREADABLE)


def list_checkpoints(root: Path) -> list[CheckpointReference]:
    """List every checkpoint in a directory, sorted by name, then by version.

    Hidden entries (such as the temporary directories of writers) and plain files with other names than versions are
    skipped. Links count as what they lead to, under their own name. A root that does not exist has no checkpoints.

    Raises:
        CheckpointError: The root can't be read.
    """
    try:
        names = sorted(entry for entry in root.iterdir() if not entry.name.startswith("."))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CheckpointError(f"{root}: can't list checkpoints: {error.strerror or error}") from error
    return [reference for outer in names for reference in _versions(outer)]


def _versions(outer: Path) -> Iterator[CheckpointReference]:
    """Return the versions of one name, or what is wrong with it; nothing for a plain file."""
    entries, problem = list[Path](), _directory_problem(outer)
    if problem in (NOT_A_DIRECTORY, REMOVED):
        return
    if problem is None and not NAME_PATTERN.fullmatch(outer.name):
        problem = "the name breaks the rule: letters, digits, '.', '_' and '-', at most 64"
    if problem is None:
        try:
            entries = list(outer.iterdir())
        except OSError as error:
            problem = f"{UNREADABLE}: {error.strerror or error}"
    if problem is not None:
        yield CheckpointReference(outer.name, "", outer, problem)
        return
    good = sorted((v for v in entries if VERSION_PATTERN.fullmatch(v.name)), key=lambda v: int(v.name))
    bad, hidden = [], False
    for entry in sorted(entries):
        if entry.name.startswith("."):
            hidden = True
        elif not VERSION_PATTERN.fullmatch(entry.name) and _directory_problem(entry) != NOT_A_DIRECTORY:
            bad.append(entry)
    for version in good:
        problem = _directory_problem(version)
        if problem != REMOVED:
            yield CheckpointReference(outer.name, version.name, version, problem)
    yield from (CheckpointReference(outer.name, v.name, v, "a version is a whole number from 1") for v in bad)
    # A directory with hidden entries alone is no problem: its first training is still running.
    if not good and not bad and not hidden:
        yield CheckpointReference(outer.name, "", outer, "the directory holds no version")


def _directory_problem(path: Path) -> str | None:
    """Why a path is no directory; None if it is one."""
    try:
        entry = path.stat()
    except FileNotFoundError:
        if path.is_symlink():
            return f"the link leads to {os.readlink(path)}, which does not exist"  # noqa: PTH115 - as it is written
        return REMOVED
    except OSError as error:
        return f"{UNREADABLE}: {error.strerror or error}"
    return None if stat.S_ISDIR(entry.st_mode) else NOT_A_DIRECTORY


SEAL = "sha256_of_the_rest"
"""Key of the seal."""

FILE_FIELDS = ("format", "name", "tensors", "proof", SEAL)
"""Fields of ``model.json`` that describe the two files, not the model."""

FORMAT = 1
"""Version of the layout of ``model.json``; a reader refuses a newer one."""

TENSORS_FILE = "model.safetensors"
FACTS_FILE = "model.json"
WRITING, PROBE = ".writing-", ".probe-"
DEAD_SECONDS = 3_600.0
"""Age from which a version that is being written counts as left behind: its content is there before, so it takes
seconds."""
HEADER_BYTES = 512
"""More than the header of a file of tensors takes for each of them."""
LARGEST_SHARE = 0.25
"""Of the memory, for tensors: they are there as a file, as numbers, as mu and sigma of draws, and as draws."""


def seal(facts: Mapping[str, Any]) -> bytes:
    """Return the content of ``model.json``, indented, with its seal as the last field.

    Args:
        facts: All other fields, as JSON data; numpy arrays are written as lists.
    """
    # What a reader parses, not what is written: arrays, and numbers of single precision, have become plain JSON.
    plain = orjson.loads(orjson.dumps(facts, option=orjson.OPT_SERIALIZE_NUMPY))
    return orjson.dumps({**plain, SEAL: _digest(plain)}, option=orjson.OPT_INDENT_2)


def check_seal(facts: Mapping[str, Any]) -> None:
    """Check the seal of parsed content.

    Raises:
        CheckpointError: There is no seal, the content differs from what was sealed, or is nested too deeply for any.
    """
    if SEAL not in facts:
        raise CheckpointError(f"{SEAL} is missing: the file was damaged or edited; restore it or train again")
    try:
        actual = _digest({key: value for key, value in facts.items() if key != SEAL})
    except TypeError as error:
        raise CheckpointError(f"the values are nested too deeply ({error})") from error
    if facts[SEAL] != actual:
        raise CheckpointError(
            f"{SEAL} is {str(facts[SEAL])[:12]}…, but the other fields have {actual[:12]}…: "
            "the file was damaged or edited; restore it or train again"
        )


def _digest(plain: Mapping[str, Any]) -> str:
    return hashlib.sha256(orjson.dumps(plain, option=orjson.OPT_SORT_KEYS)).hexdigest()


Read: TypeAlias = "Callable[[str, int, int], bytes]"
"""Reads a file of a version whole, by its name, with the most and the fewest bytes that it may have."""


@dataclass(frozen=True, slots=True, eq=False)
class StoredCheckpoint:
    """The content of a version, read and checked.

    Attributes:
        address: The directory ``NAME/VERSION`` or the URL, for messages.
        name: Name of the checkpoint.
        version: Its version.
        spec: The specification in ``model.json``.
        tensors: Float32 tensors on the CPU, by name.
        proof: The answers that the writer got, as JSON data (`model.checkpoint.proof`).
    """

    address: str
    name: str
    version: str
    spec: ModelSpec
    tensors: dict[str, Tensor]
    proof: object


def read_stored(directory: Path) -> StoredCheckpoint:
    """Read and check the two files of a version on disk, as `read_version` does.

    Args:
        directory: ``NAME/VERSION``.
    """
    return read_version(
        lambda file, *limits: read_file(directory / file, *limits), str(directory), *name_and_version(directory)
    )


def read_version(read: Read, address: str, name: str, version: str) -> StoredCheckpoint:
    """Read and check the two files of a version.

    Args:
        read: Reads one of them; raises a `CheckpointError`.
        address: The directory or the URL, for messages.
        name: Name of the checkpoint.
        version: Its version.

    Raises:
        CheckpointError: A file is missing or damaged, the format is newer, a field of ``model.json`` is not as
            expected, or the tensors don't fit it. The message names the file, and the field or the tensor.
    """
    from murho.model.checkpoint.spec import ModelSpec

    path = f"{address}/{FACTS_FILE}"
    facts = read_facts(read(FACTS_FILE, MOST_FACTS_BYTES, 0), path)
    try:
        spec = ModelSpec.from_json({name: value for name, value in facts.items() if name not in FILE_FIELDS})
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from error
    recorded = facts.get("tensors")
    sha256 = recorded.get("sha256") if isinstance(recorded, dict) else None
    path, shapes = f"{address}/{TENSORS_FILE}", spec.tensor_shapes()
    size = _bytes_of(shapes, path)
    content = read(TENSORS_FILE, size + HEADER_BYTES * (len(shapes) + 1), size)
    tensors = _read_tensors(content, path, sha256, shapes)
    return StoredCheckpoint(address, name, version, spec, tensors, facts.get("proof"))


def read_file(path: Path, most: int = MOST_FACTS_BYTES, least: int = 0) -> bytes:
    """Read a file of a version within limits; raises a `CheckpointError` with its path."""
    try:
        return read_bounded(path, most, least)
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: the file is missing") from error
    except OSError as error:
        raise CheckpointError(f"{path}: can't be read: {error.strerror or error}") from error


def read_facts(content: bytes, path: str) -> dict[str, Any]:
    """Return the content of ``model.json``, of which format, name and seal are checked; raises a `CheckpointError`."""
    try:
        facts = parse_json(content)
    except ValueError as error:
        raise CheckpointError(f"{path}: not valid JSON ({error}); the file is damaged") from error
    if not isinstance(facts, dict):
        raise CheckpointError(f"{path}: expected a JSON object, found {type(facts).__name__}")
    version = facts.get("format")
    if type(version) is not int or version < 1:
        raise CheckpointError(f"{path}: format must be a whole number from 1, found {version!r}")
    if version > FORMAT:
        raise CheckpointError(
            f"{path}: format {version} is newer than {FORMAT}, the newest that this Murho reads; upgrade Murho"
        )
    name = facts.get("name")
    if not isinstance(name, str) or not NAME_PATTERN.fullmatch(name):
        raise CheckpointError(f"{path}: name {name!r} is not a valid checkpoint name")
    try:
        check_seal(facts)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from error
    return facts


def _read_tensors(
    content: bytes, path: str, sha256: object, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Tensor]:
    """Return the tensors of a file.

    Args:
        content: Of the file.
        path: Its path, for messages.
        sha256: Hash of its content, from ``model.json``.
        shapes: Name and shape of every tensor that the file must hold.
    """
    import safetensors.torch

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
    problem = _problem(tensors, shapes)
    if problem is not None:
        raise CheckpointError(f"{path}: tensor {problem}")
    return tensors


def _problem(found: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]]) -> str | None:
    """Return the first problem of tensors from a file; None if there is none."""
    import torch

    for name in found.keys() - shapes.keys():
        return f"{name!r} is not expected"
    for name, shape in shapes.items():
        tensor = found.get(name)
        if tensor is None:
            return f"{name!r} is missing, expected shape {list(shape)}"
        if tensor.dtype != torch.float32:
            return f"{name!r} is {tensor.dtype}, expected {torch.float32}"
        if tensor.shape != shape:
            return f"{name!r} has shape {list(tensor.shape)}, expected {list(shape)}"
        if not bool(torch.isfinite(tensor).all()):
            return f"{name!r} holds NaN or infinity"
    return None


def _bytes_of(shapes: Mapping[str, tuple[int, ...]], path: str) -> int:
    """Bytes of the tensors of a file.

    Raises:
        CheckpointError: They are more than this machine can load.
    """
    size, memory = 4 * sum(math.prod(shape) for shape in shapes.values()), memory_size()
    if memory is not None and size > LARGEST_SHARE * memory:
        raise CheckpointError(
            f"{path}: {FACTS_FILE} describes {size / 2**30:,.1f} GiB of tensors, and this machine or container has "
            f"{memory / 2**30:,.1f} GiB of memory: loading takes four times the tensors"
        )
    return size


def check_writable(root: Path, name: str) -> None:
    """Check that a checkpoint can be written, so that a fit fails before it starts, not at its end.

    Raises:
        CheckpointError: The name is forbidden or the directory can't be written.
    """
    validate_name(name)
    try:
        home = root / name
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=PROBE, dir=home):
            pass
        with contextlib.suppress(OSError):
            home.rmdir()  # only if it is empty: a fit that fails leaves no trace
    except OSError as error:
        raise CheckpointError(f"{root / name}: can't write checkpoints here: {error.strerror or error}") from error


def write_checkpoint(
    root: Path,
    name: str,
    spec: ModelSpec,
    tensors: Mapping[str, Tensor],
    proof: Mapping[str, Doubles],
    *,
    extras: Mapping[str, bytes] | None = None,
) -> Path:
    """Write the next version of a checkpoint, all of it or nothing.

    Args:
        root: Directory of checkpoints.
        name: Name of the checkpoint.
        spec: The content of ``model.json`` except `FILE_FIELDS`, which are added here.
        tensors: mu, rho and noise parameters by name, float32.
        proof: What every reader must answer for typical rows (`model.checkpoint.proof`).
        extras: Further files by path, such as those of a report. No reader of checkpoints needs them; where they can't
            be written, the checkpoint is written without.

    Returns:
        The directory ``root/name/version``; the version is one above the highest existing one.

    Raises:
        CheckpointError: The name is forbidden, or the disk is full or not writable. Then nothing of the new version is
            visible, and older ones are untouched.
    """
    import safetensors.torch

    validate_name(name)
    content: bytes = safetensors.torch.save({key: tensor.contiguous() for key, tensor in tensors.items()})
    complete = {
        "format": FORMAT,
        "name": name,
        **spec.to_json(),
        "tensors": {
            "file": TENSORS_FILE,
            "sha256": hashlib.sha256(content).hexdigest(),
            "bytes": len(content),
        },
        "proof": proof,
    }
    home = root / name
    temporary: Path | None = None
    try:
        home.mkdir(parents=True, exist_ok=True)
        _clear_left(home)
        temporary = Path(tempfile.mkdtemp(prefix=WRITING, dir=home))
        temporary.chmod(0o755)
        write_durably(temporary / TENSORS_FILE, content)
        write_durably(temporary / FACTS_FILE, seal(complete))
        _write_extras(temporary, extras or {})
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


def _clear_left(home: Path) -> None:
    """Remove what killed commands have left. A living one, on this machine or another, has written of late."""
    for left in (*home.glob(f"{WRITING}*"), *home.glob(f"{PROBE}*")):
        with contextlib.suppress(OSError):
            if time.time() - max(path.stat().st_mtime for path in (left, *left.rglob("*"))) > DEAD_SECONDS:
                shutil.rmtree(left, ignore_errors=True)


def _write_extras(directory: Path, extras: Mapping[str, bytes]) -> None:
    """Write all further files, or none of them."""
    try:
        for name, content in extras.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_bytes(content)
    except OSError:
        for name in extras:
            (directory / name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                (directory / name).parent.rmdir()  # only if it is empty


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
