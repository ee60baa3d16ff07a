"""Objects below a URL, by fsspec: listed, read in blocks, written and removed, each within a time limit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from murho.model.errors import CheckpointError, OptionError, StorageError

EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "az": "az", "abfs": "az", "abfss": "az", "adl": "az"}
"""Protocol → the extra of Murho with its library."""
ACCOUNTS = {
    "s3": "An account is named by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or ~/.aws",
    "gs": "An account is named by GOOGLE_APPLICATION_CREDENTIALS, or `gcloud auth application-default login`",
    "az": "An account is named by AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT_NAME with "
    "AZURE_STORAGE_ACCOUNT_KEY",
}
"""Extra → where its library finds an account."""
BLOCK_BYTES = 4 * 2**20
"""Bytes of one request for a part of an object: a time limit holds for each, and memory for a single one."""
SECONDS = 30.0
"""Time limit of a request, beside the time that its bytes may take."""
LEAST_RATE = 100_000.0
"""Bytes a second below which a transfer counts as stuck."""
TAGS = ("ETag", "etag", "generation", "md5", "LastModified", "last_modified", "updated", "mtime", "created")
"""What fsspec's file systems call that which changes with the content of an object. Its own ``ukey`` asks once more for
each object, and takes all that is told of it, such as when it was last read."""


class StoredObject(NamedTuple):
    """An object as a listing has it: its length in bytes, and what changes whenever its content does."""

    size: int
    tag: tuple[str, ...]


class ObjectStorage:
    """The objects below a URL, by their paths relative to it. Calls may come from any thread, not from an event loop.

    Attributes:
        url: The URL, without a slash at its end.
        seconds: Time limit of a request, beside the time that its bytes may take at `LEAST_RATE`. Storages whose
            library is not asynchronous have no limit but the library's own.
    """

    def __init__(self, url: str) -> None:
        """Open a storage; nothing is asked of it yet.

        Raises:
            OptionError: The protocol is unknown, its library is not installed or finds no account.
        """
        from fsspec.core import url_to_fs

        self.url, self.seconds = url, SECONDS
        protocol = url.partition("://")[0].rpartition("::")[2].lower()
        self._extra = extra = EXTRAS.get(protocol, "")
        try:
            # Not an instance that other code shares: its listings are cached.
            self._fs, root = url_to_fs(url, skip_instance_cache=True, use_listings_cache=False)
        except ImportError as error:
            advice = f": pip install 'murho[{extra}]'" if extra else ""
            raise OptionError(f"{url}: the library for {protocol}:// is not installed{advice} ({error})") from error
        except Exception as error:  # wrong credentials in the configuration of a library, for example
            advice = ACCOUNTS.get(extra, "Murho reads directories, s3://, gs://, az:// and what fsspec knows")
            raise OptionError(f"{url} can't be opened: {_first_line(error)}. {advice}") from error
        self._root = str(root).strip("/")

    def address(self, path: str) -> str:
        """Return the URL of an object."""
        return f"{self.url}/{path}".rstrip("/")

    def list(self, folder: str = "") -> dict[str, StoredObject]:
        """List every object below a folder, by path relative to the URL. The storage is asked, never a cache.

        Raises:
            CheckpointError: It can't be listed.
        """
        self._fs.invalidate_cache()
        found = self._ask("listed", folder, "find", self._at(folder), detail=True)
        if not found and self._extra == "az":  # for a container that is not there, adlfs finds nothing
            self._ask("listed", folder, "info", self._root.partition("/")[0])
        start = len(self._root) + 1
        return {
            name.strip("/")[start:]: StoredObject(info.get("size") or 0, tuple(str(info.get(key)) for key in TAGS))
            for name, info in found.items()
            if info.get("type") == "file" and not name.endswith("/")  # a console's folders end with a slash
        }

    def read(self, path: str, size: int) -> Iterator[bytes]:
        """Yield the content of an object of a known size in blocks; fewer bytes come from one that is shorter.

        Raises:
            CheckpointError: There is no such object, or it can't be read.
        """
        for start in range(0, size, BLOCK_BYTES):
            most = min(BLOCK_BYTES, size - start)
            block = self._ask("read", path, "cat_file", self._at(path), bytes_=most, start=start, end=start + most)
            yield block[:most]
            if len(block) < most:
                return

    def write(self, path: str, content: bytes, **options: Any) -> None:
        """Write a small object, in place of what is there.

        Raises:
            FileExistsError: It is there, and an option says ``mode="create"``.
            CheckpointError: It can't be written.
        """
        self._ask("written", path, "pipe_file", self._at(path), content, bytes_=len(content), **options)

    def upload(self, file: Path, path: str) -> None:
        """Write a file as an object, in place of what is there.

        Raises:
            CheckpointError: It can't be written.
        """
        self._ask("written", path, "put_file", str(file), self._at(path), bytes_=file.stat().st_size)

    def remove(self, path: str) -> None:
        """Remove an object, if that is possible."""
        with suppress(CheckpointError):
            self._ask("removed", path, "rm_file", self._at(path))

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}".rstrip("/")

    def _ask(self, what: str, path: str, method: str, *arguments: Any, bytes_: int = 0, **options: Any) -> Any:
        """Call a method of the file system within the time that its bytes may take; errors are told to people."""
        address, limit = self.address(path), self.seconds + bytes_ / LEAST_RATE
        try:
            if not self._fs.async_impl:
                return getattr(self._fs, method)(*arguments, **options)
            from fsspec.asyn import sync

            return sync(self._fs.loop, getattr(self._fs, f"_{method}"), *arguments, timeout=limit, **options)
        except FileExistsError:
            raise
        except TimeoutError as error:
            raise StorageError(f"{address} can't be {what}: no answer within {limit:.0f} s") from error
        except FileNotFoundError as error:
            raise CheckpointError(f"{address} can't be {what}: there is no such object or bucket") from error
        # Each library has exceptions of its own, such as those of botocore and aiohttp, below no common root.
        except Exception as error:
            raise StorageError(f"{address} can't be {what}: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]
