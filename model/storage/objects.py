"""Object storage by fsspec, in the few operations that checkpoints need, each with a time limit.

Whatever the library of a storage raises becomes a `CheckpointError` that names the address. fsspec is imported here,
and only when a storage is opened.
"""

from __future__ import annotations

import asyncio
import inspect
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from murho.model.errors import CheckpointError, OptionError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["MissingObjectError", "ObjectStorage", "StoredObject"]

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
