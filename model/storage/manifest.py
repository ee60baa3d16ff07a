"""The manifest of a version in object storage: size and SHA-256 of every file. It is written last, and marks the end.

A version without a manifest is still being written. A file that is not as the manifest says is never used.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import orjson

from murho.model.errors import CheckpointError
from murho.model.posterior.checkpoint import FACTS_FILE, TENSORS_FILE
from murho.model.runtime.checkpoint_files import MOST_FACTS_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["FORMAT", "MANIFEST_FILE", "MOST_BYTES", "FileFacts", "Manifest", "file_sha256"]

MANIFEST_FILE = "manifest.json"
FORMAT = 1
MOST_BYTES = 2**20
"""The largest manifest that is read; one of a thousand files has a tenth of it."""
MOST_FILES = 5_000
_SHA256 = re.compile(r"[0-9a-f]{64}")
_BLOCK = 2**20


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What a file must be.

    Attributes:
        size: Its length, bytes.
        sha256: Hash of its content, 64 hexadecimal digits.
    """

    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files of a version.

    Attributes:
        files: Facts by path, relative to the version, with forward slashes.
    """

    files: Mapping[str, FileFacts]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(each.size for each in self.files.values())

    @classmethod
    def of_directory(cls, directory: Path) -> Manifest:
        """The manifest of the files below a directory; hidden ones are left out.

        Raises:
            CheckpointError: A file can't be read, or ``model.json`` or the tensors are missing.
        """
        files = {}
        try:
            for path in sorted(directory.rglob("*")):
                relative = path.relative_to(directory)
                if path.is_file() and not any(part.startswith(".") for part in relative.parts):
                    files[relative.as_posix()] = FileFacts(path.stat().st_size, file_sha256(path))
        except OSError as error:
            raise CheckpointError(f"{directory}: can't be read: {error.strerror or error}") from error
        files.pop(MANIFEST_FILE, None)  # of a version that was copied from a storage
        for name in (FACTS_FILE, TENSORS_FILE):
            if name not in files:
                raise CheckpointError(f"{directory}: no checkpoint: {name} is missing")
        return cls(files)

    def to_bytes(self) -> bytes:
        """The content of ``manifest.json``."""
        files = {path: {"bytes": each.size, "sha256": each.sha256} for path, each in sorted(self.files.items())}
        return orjson.dumps({"format": FORMAT, "files": files}, option=orjson.OPT_INDENT_2)

    @classmethod
    def from_bytes(cls, content: bytes) -> Manifest:
        """Read a manifest that anybody may have written.

        Raises:
            CheckpointError: It is no manifest, or a path in it leads out of the version; the message says where.
        """
        try:
            facts = orjson.loads(content)
        except orjson.JSONDecodeError as error:
            raise CheckpointError(f"not valid JSON ({error}); the file is damaged") from error
        listed = facts.get("files") if isinstance(facts, dict) else None
        if not isinstance(listed, dict) or len(listed) > MOST_FILES:
            raise CheckpointError('expected an object with "format" and "files"')
        version = facts.get("format")
        if version != FORMAT or isinstance(version, bool):
            raise CheckpointError(f"format must be {FORMAT}, found {version!r}; a newer one needs a newer Murho")
        files = {path: _facts(path, value) for path, value in listed.items()}
        for name in (FACTS_FILE, TENSORS_FILE):
            if name not in files:
                raise CheckpointError(f"it does not list {name}")
        for path in files:
            if any(str(parent) in files for parent in PurePosixPath(path).parents):
                raise CheckpointError(f"{path!r} is in a folder that is a file, too")
        return cls(files)

    def differs_from(self, directory: Path) -> str | None:
        """The first file of a directory that is not as it must be, with the reason; None if all are."""
        for path, facts in self.files.items():
            try:
                if (directory / path).stat().st_size != facts.size:
                    return f"{path} has another size"
                if file_sha256(directory / path) != facts.sha256:
                    return f"{path} has another sha256"
            except OSError as error:
                return f"{path} can't be read: {error.strerror or error}"
        return None


def _facts(path: str, value: Any) -> FileFacts:
    parts = path.split("/")
    if "\\" in path or "\0" in path or len(path) > 512 or any(part.startswith(".") or not part for part in parts):
        raise CheckpointError(f"{path[:80]!r} is no path of a file within the version")
    size = value.get("bytes") if isinstance(value, dict) else None
    sha256 = value.get("sha256") if isinstance(value, dict) else None
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 2**48:
        raise CheckpointError(f"{path}: bytes must be a whole number from 0, found {size!r}")
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise CheckpointError(f"{path}: sha256 must be 64 hexadecimal digits, found {str(sha256)[:80]!r}")
    if path == FACTS_FILE and size > MOST_FACTS_BYTES:
        raise CheckpointError(f"{path} has {size:,} bytes, and at most {MOST_FACTS_BYTES:,} are read")
    return FileFacts(size, sha256)


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's content, hexadecimal.

    Raises:
        OSError: It can't be read.
    """
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
