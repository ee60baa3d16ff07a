"""Checkpoints in object storage: versions are listed, read into memory, checked by hash, and published.

Objects are called ``NAME/VERSION/FILE``, as the files of a directory of checkpoints are; other objects are skipped, and
so is what is hidden. ``model.json`` is the manifest of a version: it has the hash of the tensors, and one of itself. It
is written last: a version is there with it, and not before. What does not fit its hashes is never used.

fsspec speaks to the storages. Nothing is kept on a local disk: a version is read whenever it is loaded.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from murho.model.checkpoint.checkpoint import (
    FACTS_FILE,
    NAME_PATTERN,
    VERSION_PATTERN,
    CheckpointReference,
    read_stored,
    validate_name,
)
from murho.model.checkpoint.stores import PAGE_FILE, CheckpointStore, WrittenVersion
from murho.model.errors import CheckpointError, OptionError, StorageError
from murho.model.files import MOST_FACTS_BYTES

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping

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
CLAIM_FILE, PROBE_FILE = ".claim", ".probe"
"""A claim takes a number while its files are written; it is written only where it is not there yet."""
_FILE = r"[^./\\\0][^/\\\0]*"
_PATH = re.compile(rf"({NAME_PATTERN.pattern})/({VERSION_PATTERN.pattern})/({_FILE}(?:/{_FILE})*)")


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
        """The URL of an object."""
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


class ObjectStore(CheckpointStore):
    """Checkpoints below a URL."""

    in_place = False

    def __init__(self, url: str) -> None:
        """Open a storage, such as ``s3://bucket/prefix``; nothing is asked of it yet.

        Raises:
            OptionError: The protocol is unknown or its library is not installed.
        """
        self.place, self.storage = url, ObjectStorage(url)
        self._versions: dict[tuple[str, str], dict[str, StoredObject]] = {}
        # A version is made here before it is published.
        caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 - raises nothing
        self.root = Path(caches, "murho", "unpublished", hashlib.sha256(url.encode()).hexdigest()[:16])

    def list(self) -> list[CheckpointReference]:
        """List every version that is complete.

        Raises:
            CheckpointError: The storage can't be listed.
        """
        found: dict[tuple[str, str], dict[str, StoredObject]] = {}
        for path, stored in self.storage.list().items():
            if parts := _PATH.fullmatch(path):
                found.setdefault((parts[1], parts[2]), {})[parts[3]] = stored
        self._versions = {key: files for key, files in found.items() if FACTS_FILE in files}
        keys = sorted(self._versions, key=lambda key: (key[0], int(key[1])))
        return [CheckpointReference(*key, Path(*key)) for key in keys]

    def stamp(self, reference: CheckpointReference) -> Hashable | None:
        """What changes with any object of a version, as of the last listing; None for one that was not listed.

        All objects count: one that was restored is reason to try a refused version again.
        """
        files = self._versions.get((reference.name, reference.version))
        return None if files is None else tuple(sorted(files.items()))

    def address(self, reference: CheckpointReference) -> str:
        """The URL of a version."""
        return self.storage.address(f"{reference.name}/{reference.version}")

    def read(self, reference: CheckpointReference, file: str, most: int = MOST_FACTS_BYTES, least: int = 0) -> bytes:
        """Read an object of a version, no more bytes than were listed."""
        address, stored = f"{self.address(reference)}/{file}", self._files(reference).get(file)
        if stored is None:
            raise CheckpointError(f"{address}: the file is missing")
        if not least <= stored.size <= most:
            raise CheckpointError(f"{address}: it has {stored.size:,} bytes, and {least:,} to {most:,} are expected")
        content = b"".join(self.storage.read(f"{reference.name}/{reference.version}/{file}", stored.size))
        if len(content) != stored.size:
            raise CheckpointError(f"{address} ended after {len(content):,} of {stored.size:,} bytes")
        return content

    def directory(self, reference: CheckpointReference) -> Path:
        """A temporary directory with the files of a version, which is removed with this object.

        Raises:
            StorageError: The storage can't be reached, or the directory can't be written.
            CheckpointError: A file is not as ``model.json`` says, or was cut; the message says which.
        """
        self.fetch(reference)
        try:
            temporary = tempfile.mkdtemp(prefix="murho-")
            weakref.finalize(self, shutil.rmtree, temporary, ignore_errors=True)
            directory = Path(temporary, reference.name, reference.version)
            for file, stored in self._files(reference).items():
                (directory / file).parent.mkdir(parents=True, exist_ok=True)
                with (directory / file).open("wb") as opened:
                    opened.writelines(self.storage.read(f"{reference.name}/{reference.version}/{file}", stored.size))
        except OSError as error:
            raise StorageError(
                f"{tempfile.gettempdir()} can't be written: {error.strerror or error}; TMPDIR names another directory"
            ) from error
        return directory

    def check_writable(self, name: str) -> None:
        """Check that objects can be written and listed, and the local directory in which a version is made first.

        Raises:
            CheckpointError: The name is forbidden, or one of both can't be written.
        """
        super().check_writable(name)
        self.storage.write(f"{name}/{PROBE_FILE}", b"")
        self.storage.remove(f"{name}/{PROBE_FILE}")
        self.storage.list(name)

    def place_version(self, made: Path, name: str) -> WrittenVersion:
        """Publish a version that was written on this machine, where it is kept if that fails.

        Raises:
            CheckpointError: It could not be published; the message says where it is kept, and how to try again.
        """
        try:
            written = self.publish(made, name)
        except CheckpointError as error:
            raise CheckpointError(
                f"{error}; nothing of the checkpoint is served from there. It is kept in {made}: "
                f"`murho publish {made} {self.place}` tries again"
            ) from error
        shutil.rmtree(made, ignore_errors=True)
        return written

    def publish(self, directory: Path, name: str) -> WrittenVersion:
        """Put a version from disk into the storage as the next version of a name, all of it or nothing.

        Of two writers at the same moment each gets a number of its own, if the storage can write exclusively, as S3,
        Google and Azure can. With another one their files may mix; then hashes do not fit, and no reader uses them.

        Raises:
            CheckpointError: It is no sound version, or could not be written. No reader uses what may be left.
        """
        read_stored(directory)
        names = {each.relative_to(directory).as_posix(): each for each in directory.rglob("*") if each.is_file()}
        files = {file: path for file, path in names.items() if "/." not in f"/{file}"}
        version = self._claim(validate_name(name))
        folder = f"{name}/{version}"
        try:
            self._upload(folder, files)
        except BaseException:
            # The manifest first: it may be there though its writing seemed to fail.
            for file in (FACTS_FILE, *files):
                self.storage.remove(f"{folder}/{file}")
            raise
        finally:
            self.storage.remove(f"{folder}/{CLAIM_FILE}")
        address = self.storage.address(folder)
        report = f"{address}/{PAGE_FILE}" if PAGE_FILE in files else None
        return WrittenVersion(self.place, address, name, version, report)

    def _upload(self, folder: str, files: Mapping[str, Path]) -> None:
        """Write the files of a version, and the manifest once all others have arrived whole."""
        others = {f"{folder}/{file}": path for file, path in files.items() if file != FACTS_FILE}
        for path, file in others.items():
            self.storage.upload(file, path)
        there = self.storage.list(folder)
        for path, file in others.items():
            if path not in there or there[path].size != file.stat().st_size:
                raise CheckpointError(f"{self.storage.address(path)} did not arrive whole")
        self.storage.upload(files[FACTS_FILE], f"{folder}/{FACTS_FILE}")

    def _files(self, reference: CheckpointReference) -> dict[str, StoredObject]:
        try:
            return self._versions[reference.name, reference.version]
        except KeyError as error:
            raise CheckpointError(f"{self.address(reference)} is not there any more") from error

    def _claim(self, name: str) -> str:
        """The first free number above the highest version, which no other writer takes from now on."""
        taken = [path.split("/")[1] for path in self.storage.list(name)]
        number = max((int(each) for each in taken if VERSION_PATTERN.fullmatch(each)), default=0)
        while True:
            number += 1
            claim = f"{name}/{number}/{CLAIM_FILE}"
            try:
                self.storage.write(claim, b"", mode="create")
            except FileExistsError:
                continue
            except StorageError:  # it can't write exclusively
                self.storage.write(claim, b"")
            return str(number)
