"""A place of checkpoints behind one interface, a directory or a URL, and the one function that decides between them."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import url2pathname

from murho.model.checkpoint.checkpoint import (
    FACTS_FILE,
    TENSORS_FILE,
    CheckpointReference,
    StoredCheckpoint,
    check_seal,
    check_writable,
    list_checkpoints,
    read_file,
    read_version,
    validate_name,
    write_checkpoint,
)
from murho.model.errors import CheckpointError, OptionError
from murho.model.files import MOST_FACTS_BYTES, parse_json

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from torch import Tensor

    from murho.model.checkpoint.spec import ModelSpec

# Two letters at least: the drive of a path on Windows has one. ``a::b://`` is how fsspec chains protocols.
_URL = re.compile(r"[a-z][a-z0-9+.-]+(::[a-z][a-z0-9+.-]+)*://", flags=re.IGNORECASE)


def is_url(place: Path | str) -> bool:
    """Whether a place is the URL of a storage, and no path."""
    return isinstance(place, str) and _URL.match(place) is not None


def place_of(place: Path | str) -> Path | str:
    """A place as the product keeps it: a URL as text without a slash at its end, anything else as a path.

    Raises:
        OptionError: The URL has a password in it, which logs and messages would show.
    """
    if not isinstance(place, str) or not is_url(place):
        return Path(place)
    try:
        parts = urlsplit(place.rpartition("::")[2])
        password = parts.password
    except ValueError as error:
        raise OptionError(f"{place!r} is no valid URL: {error}") from error
    if password is not None:
        raise OptionError(
            f"the URL {parts.scheme}://… has a password in it, which logs would show: give credentials by the "
            "environment or the configuration of the storage's library"
        )
    if parts.scheme.lower() == "file":
        return Path(url2pathname(parts.path))
    return place.rstrip("/") if parts.netloc or parts.path.strip("/") else place


def directory_at(place: Path | str) -> Path:
    """The directory that a place names, for functions that write to a disk alone.

    Raises:
        CheckpointError: It is a URL; the message says what to do.
    """
    chosen = place_of(place)
    if isinstance(chosen, str):
        raise CheckpointError(f"{chosen} is a URL: save into a directory, then `murho publish NAME/VERSION {chosen}`")
    return chosen


def shown_place(place: Path | str) -> str:
    """A place for messages: the absolute path, because a relative one is ambiguous in a container's log; or the URL."""
    return place if isinstance(place, str) else str(place.absolute())


PAGE_FILE = "report.html"
"""As `model.report` calls it, which stands above this package."""


@dataclass(frozen=True, slots=True)
class WrittenVersion:
    """A version that was just written.

    Attributes:
        place: The place of checkpoints: a path or a URL.
        address: The path or the URL of the version.
        name: Name of the checkpoint.
        version: Its version.
        report: The path or the URL of its report; None without one.
    """

    place: str
    address: str
    name: str
    version: str
    report: str | None = None


class CheckpointStore(ABC):
    """A place of checkpoints.

    Attributes:
        place: The path or the URL, as it was given.
        root: The directory in which versions are written: the place, or one on this machine.
        in_place: Whether `find` gives the version itself, beside which a report may be put, and no copy of it.
    """

    place: str
    root: Path
    in_place: bool

    @abstractmethod
    def list(self) -> list[CheckpointReference]:
        """List every version, by name, then by rising version; raises `CheckpointError` where that is impossible."""

    @abstractmethod
    def stamp(self, reference: CheckpointReference) -> Hashable | None:
        """What changes with the content of a listed version; None while it is being written."""

    @abstractmethod
    def address(self, reference: CheckpointReference) -> str:
        """The path or the URL of a version, for messages."""

    @abstractmethod
    def read(self, reference: CheckpointReference, file: str, most: int = MOST_FACTS_BYTES, least: int = 0) -> bytes:
        """Read a file of a listed version whole, or nothing of it.

        Args:
            reference: The version.
            file: Path of the file within it.
            most: The most bytes that it may have.
            least: The fewest bytes.

        Raises:
            StorageError: The storage can't be reached.
            CheckpointError: The file is missing, can't be read, or has another size.
        """

    def fetch(self, reference: CheckpointReference) -> StoredCheckpoint:
        """Read and check a listed version; raises what `model.checkpoint.checkpoint.read_version` does."""
        read = partial(self.read, reference)
        return read_version(read, self.address(reference), reference.name, reference.version)

    def find(self, name: str, version: str | None = None) -> Path:
        """A directory with all files of a version, by default the highest; it stays as long as this object does.

        Raises:
            CheckpointError: There is no such version, and the message lists the existing ones; or it can't be fetched.
        """
        validate_name(name)
        known = [reference for reference in self.list() if reference.problem is None]
        versions = {reference.version: reference for reference in known if reference.name == name}
        if not versions:
            names = sorted({reference.name for reference in known})
            there = f"there are: {', '.join(names)}" if names else "there is none; train one with `murho train`"
            raise CheckpointError(f"{self.place} has no checkpoint {name!r}; {there}")
        chosen = next(reversed(versions)) if version is None else version
        if chosen not in versions:
            raise CheckpointError(f"checkpoint {name!r} has no version {version!r}; there are: {', '.join(versions)}")
        return self.directory(versions[chosen])

    @abstractmethod
    def directory(self, reference: CheckpointReference) -> Path:
        """A directory with all files of a listed version, see `find`."""

    def check_writable(self, name: str) -> None:
        """Check that a version can be written; raises `CheckpointError`."""
        check_writable(self.root, name)

    def write(
        self, name: str, spec: ModelSpec, tensors: Mapping[str, Tensor], *, extras: Mapping[str, bytes] | None = None
    ) -> WrittenVersion:
        """Write the next version as `write_checkpoint` does, all of it or nothing; raises `CheckpointError`."""
        return self.place_version(write_checkpoint(self.root, name, spec, tensors, extras=extras), name)

    @abstractmethod
    def place_version(self, made: Path, name: str) -> WrittenVersion:
        """Have a version that was written in `root` in the place, or keep it there; raises `CheckpointError`."""


class DirectoryStore(CheckpointStore):
    """A directory of checkpoints."""

    in_place = True

    def __init__(self, root: Path) -> None:
        self.place, self.root, self._was_there = str(root), root, False

    def list(self) -> list[CheckpointReference]:
        """List every version in the directory.

        Raises:
            CheckpointError: The directory can't be read, or it was there before and is gone: a volume that was
                unmounted is no reason to drop what is served.
        """
        found, there = list_checkpoints(self.root), self.root.exists()
        if self._was_there and not there:
            raise CheckpointError(f"{shown_place(self.root)} is gone")
        self._was_there = there
        return found

    def stamp(self, reference: CheckpointReference) -> Hashable | None:
        """Inode, size and time of change of the version's files and directory; links are followed.

        None without a ``model.json``: a version that is copied here, not renamed, is still being written. What can't be
        read has a stamp too, and is refused when it is loaded.
        """
        entries = []
        for name in ("", TENSORS_FILE, FACTS_FILE):
            try:
                each = (reference.path / name).stat()
                entries.append((each.st_dev, each.st_ino, each.st_size, each.st_mtime_ns))
            except FileNotFoundError:
                if name == FACTS_FILE:
                    return None
            except OSError as error:
                return error.errno
        return tuple(entries)

    def address(self, reference: CheckpointReference) -> str:
        """The path of a version."""
        return shown_place(reference.path)

    def read(self, reference: CheckpointReference, file: str, most: int = MOST_FACTS_BYTES, least: int = 0) -> bytes:
        """Read a file of a version."""
        return read_file(reference.path / file, most, least)

    def directory(self, reference: CheckpointReference) -> Path:
        """The directory of a version."""
        return reference.path

    def place_version(self, made: Path, name: str) -> WrittenVersion:
        """Tell where a version is."""
        page = made / PAGE_FILE
        return WrittenVersion(self.place, str(made), name, made.name, str(page) if page.is_file() else None)


def store_at(place: Path | str) -> CheckpointStore:
    """Return the place of checkpoints that a path or a URL names. Only a URL takes fsspec.

    Args:
        place: A directory, or a URL such as ``s3://bucket/prefix``.

    Raises:
        OptionError: The URL can't be used; the message says what to install.
    """
    chosen = place_of(place)
    if isinstance(chosen, str):
        from murho.model.checkpoint.object_store import ObjectStore

        return ObjectStore(chosen)
    return DirectoryStore(chosen)


@dataclass(frozen=True, slots=True)
class CheckpointSummary:
    """One name of a place of checkpoints; all but ``name``, ``versions`` and ``problem`` are of its latest version.

    Attributes:
        name: Name of the checkpoint.
        versions: Its versions, the latest last; empty if there is none.
        target: The predicted column; None, as the next ones, where the file does not tell.
        unit: Its unit.
        rows: Number of rows learned from.
        crps: CRPS on held-out rows, the target's unit; None for classes.
        created: When it was made, with a time zone.
        problem: Why the latest version can't be used, or None.
        task: ``regression`` or ``classification``.
        log_loss: Log loss on held-out rows, nats; None for numbers.
        accuracy: Share of the held-out rows whose class is the likeliest one; None for numbers.
        held_out: Whether there are held-out rows: without any, the scores are of the training rows.
    """

    name: str
    versions: tuple[str, ...]
    target: str | None = None
    unit: str | None = None
    rows: int | None = None
    crps: float | None = None
    created: datetime | None = None
    problem: str | None = None
    task: str | None = None
    log_loss: float | None = None
    accuracy: float | None = None
    held_out: bool = True

    def to_json(self) -> dict[str, object]:
        """The summary as JSON data."""
        return asdict(self) | {"created": None if self.created is None else self.created.isoformat()}


def summaries(store: CheckpointStore) -> list[CheckpointSummary]:
    """The checkpoints of a place, by name.

    Raises:
        CheckpointError: They can't be listed.
    """
    by_name = groupby(store.list(), key=lambda reference: reference.name)
    return [_summary(store, name, [*references]) for name, references in by_name]


def _summary(store: CheckpointStore, name: str, references: Sequence[CheckpointReference]) -> CheckpointSummary:
    good = [reference for reference in references if reference.problem is None]
    versions = tuple(reference.version for reference in good)
    if not good:
        return CheckpointSummary(name, (), problem=references[-1].problem)
    try:
        facts = parse_json(store.read(good[-1], FACTS_FILE))
        check_seal(facts)
        target, training, metrics = facts["schema"]["target"], facts["training"], facts["metrics"]
        return CheckpointSummary(
            name,
            versions,
            task="regression" if target["classes"] is None else "classification",
            target=target["name"],
            unit=target["unit"],
            rows=facts["records"].get("update", training).get("total_rows", training.get("rows")),
            **{score: metrics.get(score) for score in ("crps", "log_loss", "accuracy")},
            held_out=bool(metrics.get("held_out", True)),
            created=datetime.fromisoformat(facts["created"]),
        )
    except CheckpointError as error:
        problem = str(error)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        problem = f"{FACTS_FILE} is damaged: {error}"
    return CheckpointSummary(name, versions, problem=problem)
