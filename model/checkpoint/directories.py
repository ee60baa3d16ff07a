"""The directories ``NAME/VERSION`` below a root: which there are, and why some can't be checkpoints.

One directory that can't be read, or a link that leads nowhere, is a problem of its own; the others are listed all the
same.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from murho.model.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterator


NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
VERSION_PATTERN = re.compile(r"[1-9][0-9]{0,8}")
REMOVED = "it was removed meanwhile"
UNREADABLE = "the directory can't be read"
NOT_A_DIRECTORY = "this is a file, and a directory is expected"


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


def name_and_version(directory: Path) -> tuple[str, str]:
    """The name and the version that a directory ``NAME/VERSION`` gives, as it is called, wherever a link leads."""
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
        unreadable: Whether the problem is that it can't be read now, so that it may be a good one.
    """

    name: str
    version: str
    path: Path
    problem: str | None = None
    unreadable: bool = False


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
    """The versions of one name, or what is wrong with it; nothing for a plain file."""
    problem = _directory_problem(outer)
    if problem is not None:
        if problem not in (NOT_A_DIRECTORY, REMOVED):
            yield _reference(outer, "", outer, problem)
        return
    if not NAME_PATTERN.fullmatch(outer.name):
        problem = "the name breaks the rule: letters, digits, '.', '_' and '-', at most 64"
        yield CheckpointReference(outer.name, "", outer, problem)
        return
    try:
        entries = list(outer.iterdir())
    except OSError as error:
        problem = f"{UNREADABLE}: {error.strerror or error}"
        yield CheckpointReference(outer.name, "", outer, problem, unreadable=True)
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
            yield _reference(outer, version.name, version, problem)
    yield from (CheckpointReference(outer.name, v.name, v, "a version is a whole number from 1") for v in bad)
    # A directory with hidden entries alone is no problem: its first training is still running.
    if not good and not bad and not hidden:
        yield CheckpointReference(outer.name, "", outer, "the directory holds no version")


def _reference(outer: Path, version: str, path: Path, problem: str | None) -> CheckpointReference:
    unreadable = problem is not None and problem.startswith(UNREADABLE)
    return CheckpointReference(outer.name, version, path, problem, unreadable)


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


def find_checkpoint(root: Path, name: str, version: str | None = None) -> Path:
    """Find the directory of a version, by default of the highest one.

    Raises:
        CheckpointError: There is no such checkpoint or version; the message lists the existing ones.
    """
    validate_name(name)
    return choose_checkpoint(list_checkpoints(root), root, name, version).path


def choose_checkpoint(
    found: list[CheckpointReference], place: Path | str, name: str, version: str | None = None
) -> CheckpointReference:
    """Choose a version among those of a place, by default the highest one.

    Raises:
        CheckpointError: There is no such checkpoint or version; the message lists the existing ones.
    """
    validate_name(name)
    known = [reference for reference in found if reference.problem is None]
    versions = [reference for reference in known if reference.name == name]
    if not versions:
        names = sorted({reference.name for reference in known})
        there = f"there are: {', '.join(names)}" if names else "there is none; train one with `murho train`"
        raise CheckpointError(f"{place} has no checkpoint {name!r}; {there}")
    if version is None:
        return versions[-1]
    for reference in versions:
        if reference.version == version:
            return reference
    there = ", ".join(reference.version for reference in versions)
    raise CheckpointError(f"checkpoint {name!r} has no version {version!r}; there are: {there}")
