"""Object storage by fsspec, in the few operations that checkpoints need, each with a time limit.

Whatever the library of a storage raises becomes a `CheckpointError` that names the address. fsspec is imported here,
and only when a storage is opened.

The manifest of a version in object storage: size and SHA-256 of every file. It is written last, and marks the end.

A version without a manifest is still being written. A file that is not as the manifest says is never used.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import re
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import orjson

from murho.model.checkpoint.checkpoint import FACTS_FILE, TENSORS_FILE
from murho.model.errors import CheckpointError, OptionError, StorageError
from murho.model.runtime import MOST_FACTS_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = [
    "FORMAT",
    "MANIFEST_FILE",
    "MOST_BYTES",
    "FileFacts",
    "Manifest",
    "MissingObjectError",
    "ObjectStorage",
    "StoredObject",
    "file_sha256",
]

EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "az": "az", "abfs": "az", "abfss": "az", "adl": "az"}
"""Protocol → the extra of Murho with its library."""
ACCOUNTS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or ~/.aws",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS, or `gcloud auth application-default login`",
    "az": "AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT_NAME with AZURE_STORAGE_ACCOUNT_KEY",
}
"""Extra → where its library finds an account."""
BLOCK_BYTES = 4 * 2**20
"""Bytes of one request for a part of an object: a time limit holds for each, and memory for a single one."""
SECONDS = 30.0
"""Time limit of a request, beside the time that its bytes may take."""
LEAST_RATE = 100_000.0
"""Bytes a second below which a transfer counts as stuck."""
TAGS = ("ETag", "etag", "generation", "md5", "LastModified", "last_modified", "updated", "mtime", "created")
"""What fsspec's file systems call that which changes with the content of an object."""


class MissingObjectError(CheckpointError):
    """There is no such object."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as a listing has it.

    Attributes:
        size: Its length, bytes.
        tag: Changes whenever the content does, as far as the storage tells.
    """

    size: int
    tag: tuple[str, ...]


class ObjectStorage:
    """The objects below a URL, by their paths relative to it. Calls may come from any thread, not from an event loop.

    Attributes:
        url: The URL, without a slash at its end.
    """

    def __init__(self, url: str, *, seconds: float = SECONDS) -> None:
        """Open a storage; nothing is asked of it yet.

        Args:
            url: Such as ``s3://bucket/prefix``.
            seconds: Time limit of a request, beside the time that its bytes may take at `LEAST_RATE`. Storages whose
                library is not asynchronous have no limit but the library's own.

        Raises:
            OptionError: The protocol is unknown or its library is not installed; the message says what to install.
        """
        self.url = url
        self._seconds = seconds
        self._fs, self._root = _open(url)
        self._extra = EXTRAS.get(_protocol(url))

    def address(self, path: str) -> str:
        """The URL of an object."""
        return f"{self.url}/{path}" if path else self.url

    def list(self, folder: str = "") -> dict[str, StoredObject]:
        """List every object below a folder, by path relative to the URL. The storage is asked, never a cache.

        Raises:
            CheckpointError: It can't be listed.
        """
        below = f"{self._root}/{folder}".rstrip("/")
        with self._told("can't be listed", folder):
            self._fs.invalidate_cache()
            found = self._call("find", below, detail=True)
            if not found and self._extra == "az":  # for a container that is not there, adlfs finds nothing
                self._call("info", self._root.partition("/")[0])
        start = len(self._root.strip("/")) + 1
        objects = {}
        for name, info in found.items():
            path = name.strip("/")[start:]
            if path and not name.endswith("/") and info.get("type") == "file":  # a console's folders end with a slash
                tag = tuple(str(info[key]) for key in TAGS if info.get(key) is not None)
                objects[path] = StoredObject(int(info.get("size") or 0), tag)
        return objects

    def read(self, path: str, size: int) -> Iterator[bytes]:
        """Yield the content of an object of a known size in blocks; fewer bytes come from one that is shorter.

        Raises:
            MissingObjectError: There is no such object.
            StorageError: The storage can't be reached, or takes too long.
        """
        for start in range(0, size, BLOCK_BYTES):
            end = min(start + BLOCK_BYTES, size)
            with self._told("can't be read", path):
                block = self._call("cat_file", f"{self._root}/{path}", start=start, end=end, size=end - start)
            yield block[: end - start]
            if len(block) < end - start:
                return

    def write(self, path: str, content: bytes) -> None:
        """Write a small object, in place of what is there.

        Raises:
            CheckpointError: It can't be written.
        """
        with self._told("can't be written", path):
            self._call("pipe_file", f"{self._root}/{path}", content, size=len(content))

    def create(self, path: str, content: bytes) -> bool:
        """Write a small object that is not there yet; returns whether this call made it.

        A storage that can't write exclusively overwrites: then two callers at the same moment may both get true.

        Raises:
            CheckpointError: It can't be written.
        """
        try:
            with self._told("can't be written", path):
                self._call("pipe_file", f"{self._root}/{path}", content, mode="create", size=len(content))
        except FileExistsError:
            return False
        except StorageError:
            self.write(path, content)
        return True

    def upload(self, file: Path, path: str) -> None:
        """Write a file as an object, in place of what is there.

        Raises:
            CheckpointError: It can't be written.
        """
        with self._told("can't be written", path):
            self._call("put_file", str(file), f"{self._root}/{path}", size=file.stat().st_size)

    def remove(self, path: str) -> None:
        """Remove an object; none is fine, too.

        Raises:
            CheckpointError: It can't be removed.
        """
        with suppress(MissingObjectError), self._told("can't be removed", path):
            self._call("rm_file", f"{self._root}/{path}")

    def _call(self, method: str, *arguments: Any, size: int = 0, **options: Any) -> Any:
        """Call a method of the file system, within the time that its bytes may take."""
        if not self._fs.async_impl:
            return getattr(self._fs, method)(*arguments, **options)
        call = getattr(self._fs, f"_{method}")(*arguments, **options)
        if not inspect.isawaitable(call):
            return call
        future = asyncio.run_coroutine_threadsafe(_awaited(call), self._fs.loop)
        limit = self._seconds + size / LEAST_RATE
        try:
            return future.result(limit)
        except TimeoutError as error:
            if not future.cancel():
                raise
            raise StorageError(f"no answer within {limit:.0f} s") from error

    @contextmanager
    def _told(self, what: str, path: str) -> Iterator[None]:
        """Turn what a storage's library raises into an error for people."""
        address = self.address(path)
        try:
            yield
        except FileExistsError:
            raise
        except FileNotFoundError as error:
            raise MissingObjectError(f"{address} {what}: there is no such object or bucket") from error
        except PermissionError as error:
            raise StorageError(f"{address} {what}: access is denied ({_first_line(error)})") from error
        # Each library has exceptions of its own, such as those of botocore and aiohttp, below no common root.
        except (Exception, CancelledError) as error:
            raise StorageError(f"{address} {what}: {_first_line(error)}") from error


async def _awaited(call: Any) -> Any:
    return await call


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__


def _protocol(url: str) -> str:
    return url.partition("://")[0].rpartition("::")[2].lower()


def _open(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it.

    Raises:
        OptionError: The protocol is unknown, its library is not installed or finds no account.
    """
    protocol = _protocol(url)
    extra = EXTRAS.get(protocol)
    try:
        from fsspec.core import url_to_fs
        from fsspec.registry import get_filesystem_class

        get_filesystem_class(protocol)
    except ImportError as error:
        advice = "" if extra is None else f": pip install 'murho[{extra}]'"
        raise OptionError(f"{url}: the library for {protocol}:// is not installed{advice} ({error})") from error
    except ValueError as error:
        raise OptionError(
            f"{url}: {error}; Murho reads directories, s3://, gs://, az:// and what fsspec knows"
        ) from error
    try:
        # Not an instance that other code shares: its listings are cached.
        fs, path = url_to_fs(url, skip_instance_cache=True, use_listings_cache=False)
    except Exception as error:  # wrong credentials in the configuration of a library, for example
        advice = "" if extra is None else f". An account is named by {ACCOUNTS[extra]}"
        raise OptionError(f"{url} can't be opened: {_first_line(error)}{advice}") from error
    return fs, str(path).rstrip("/")


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
