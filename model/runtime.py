"""The process: processors, devices, threads, free memory, interrupts, durable files, and progress of work on rows.

Progress of work on many rows, on stderr: a bar with an ETA on a terminal, plain lines otherwise.

Number of processors that this process may use, and how its OpenMP threads wait for each other.

The CPU affinity and the container's quota decide, not the size of the machine. The kernel throttles a thread pool that
is larger than the quota, and answers become many times slower.

The device to compute on, and the number of threads.

PyTorch is imported when it is asked: a mistyped name is answered at once.

Reading the files of checkpoints: what is no plain file, or is too large, is not read.

A checkpoint is copied and mounted by many hands. A pipe in place of a file would be waited for without end, and a
device or a sparse file would fill the memory. So every reader of such a file reads it here.
"""

from __future__ import annotations

import ctypes
import errno
import math
import os
import secrets
import signal
import stat
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

import orjson
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from murho.model.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

__all__ = [
    "FEW_PRODUCTS",
    "MOST_FACTS_BYTES",
    "Advance",
    "HeldBack",
    "advancing",
    "available_processors",
    "check_device",
    "give_back",
    "ignore_rows",
    "in_parts",
    "interrupts_held_back",
    "let_threads_sleep",
    "memory_size",
    "parse_json",
    "read_bounded",
    "replace_durably",
    "resolve_device",
    "sync_directory",
    "threads_for",
    "use_threads",
    "use_threads_for_answering",
    "use_threads_for_fitting",
    "write_durably",
    "written_whole",
]


CONTROL_GROUPS = Path("/sys/fs/cgroup")


def available_processors(control_groups: Path = CONTROL_GROUPS) -> int:
    """Return the number of processors that affinity and the control group's quota allow this process, at least 1.

    Args:
        control_groups: Mount point of the control groups. Version 2 is read first, then version 1.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    count = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    quota = _quota(control_groups)
    return count if quota is None else max(1, min(count, math.ceil(quota)))


def let_threads_sleep() -> None:
    """Make OpenMP threads sleep while they wait for each other, unless the environment sets another policy.

    By default they spin. If another program needs the processor, the kernel preempts a spinning thread for 4 ms at a
    time, in the middle of an operation that takes a tenth of that. Measured with two threads, 256 draws, mixture noise
    and one other busy process on two cores: one row takes 68 ms spinning and 2.8 ms sleeping; 1,000 rows take 1,900 and
    240 ms. Without other processes, sleeping takes 1.1 to 1.2 times as long as spinning.

    Call this before PyTorch is imported: its OpenMP reads the policy once.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def _quota(control_groups: Path) -> float | None:
    """Return the quota in processors, or None without a quota."""
    try:
        limit, period = (control_groups / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            limit = (control_groups / "cpu" / "cpu.cfs_quota_us").read_text()
            period = (control_groups / "cpu" / "cpu.cfs_period_us").read_text()
        except OSError:
            return None
    try:
        quota = int(limit) / int(period)
    except (ValueError, ZeroDivisionError):
        return None
    return quota if quota > 0 else None


def check_device(wanted: str) -> None:
    """Check the name of a device, without looking whether it is there.

    Raises:
        OptionError: The name is unknown.
    """
    if wanted not in ("auto", "cpu", "cuda") and not (wanted.startswith("cuda:") and wanted[5:].isdigit()):
        raise OptionError(f"--device must be auto, cpu or cuda, not {wanted!r}")


def resolve_device(wanted: str) -> str:
    """Return the PyTorch device for ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.

    Raises:
        OptionError: The name is unknown, or CUDA is asked for and not available.
    """
    check_device(wanted)
    if wanted == "cpu":
        return wanted
    import torch

    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if not torch.cuda.is_available():
        raise OptionError(
            "--device cuda: no CUDA device is usable here; PyTorch is a CPU build, or GPU or driver are missing. "
            "Use --device cpu"
        )
    if wanted != "cuda" and int(wanted[5:]) >= torch.cuda.device_count():
        raise OptionError(f"--device {wanted}: there are {torch.cuda.device_count()} CUDA devices, counted from 0")
    return wanted


@contextmanager
def use_threads_for_fitting(device: str) -> Iterator[None]:
    """Use one thread while fitting on the CPU: the matrix products of a minibatch are too small to split."""
    import torch

    before = torch.get_num_threads()
    if device == "cpu":
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def use_threads_for_answering() -> None:
    """Use one thread for each available processor. PyTorch counts the machine's; a container may have fewer."""
    import torch

    torch.set_num_threads(available_processors())


FEW_PRODUCTS = 2**23
"""Products (weights times rows) up to which one thread finishes before a second one wakes up.

With two threads that sleep while they wait, each MKL function takes 13 us more, up to about 60,000 values.
"""

PARTS_PER_THREAD = 4
"""Parts of the rows for each thread: one that loses its processor to other work for a while leaves some to the rest."""


def use_threads(count: int) -> None:
    """Set PyTorch's number of threads for the calling thread alone.

    A thread takes the number that was set last in any thread when PyTorch first needs it there. So it is asked first:
    otherwise a number set meanwhile by another thread would replace the one set here.
    """
    torch.get_num_threads()
    torch.set_num_threads(count)


@contextmanager
def threads_for(products: int) -> Iterator[None]:
    """Use one thread for small work, and PyTorch's number of threads for larger work.

    Args:
        products: Multiplications of the forward pass: number of weights in all draws, times rows.
    """
    before = torch.get_num_threads()
    if before == 1 or products > FEW_PRODUCTS:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def in_parts(count: int, least: int, work: Callable[[slice], None]) -> None:
    """Share rows out among PyTorch's number of threads, this thread included, in parts of the same size.

    Each thread takes the next part when it is done with one.

    Args:
        count: Number of rows.
        least: Smallest number of rows for which a further thread is used.
        work: Processes one slice of the rows; it must release the interpreter lock.
    """
    threads = torch.get_num_threads()
    used = min(threads, count // least)
    if used <= 1:
        work(slice(0, count))
        return
    parts = min(PARTS_PER_THREAD * used, count // least)
    slices = iter([slice(count * part // parts, count * (part + 1) // parts) for part in range(parts)])

    def take_turns() -> None:
        for rows in slices:
            work(rows)

    others = [_helpers(threads - 1).submit(take_turns) for _ in range(used - 1)]
    take_turns()
    for other in others:
        other.result()


@lru_cache(maxsize=1)
def _helpers(threads: int) -> ThreadPoolExecutor:
    """A pool of threads that sleep until they get work."""
    return ThreadPoolExecutor(threads, thread_name_prefix="murho-helper")


def give_back() -> None:
    """Give the freed memory of the C library back to the system, where that can be asked for (glibc).

    Tensors and arrays of some megabytes leave gaps between smaller ones. glibc keeps these for later, and after fits of
    different sizes they are hundreds of megabytes. It takes milliseconds.
    """
    if not sys.platform.startswith("linux"):
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # musl has none
    if trim is not None:
        trim(0)


@dataclass
class HeldBack:
    """What was held back.

    Attributes:
        came: Whether a SIGINT came.
    """

    came: bool = False


@contextmanager
def interrupts_held_back() -> Iterator[HeldBack]:
    """Note the first SIGINT during the block; a second one raises a KeyboardInterrupt.

    What the first one would have ended is finished by the end of the block. Outside of the main thread, which alone
    may handle signals, the block runs as it would without this. The same where SIGINT is ignored already.
    """
    held_back = HeldBack()
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:
        yield held_back
        return

    def receive(_number: int, _frame: FrameType | None) -> None:
        if held_back.came:
            raise KeyboardInterrupt
        held_back.came = True

    try:
        signal.signal(signal.SIGINT, receive)
    except ValueError:  # not the main thread
        yield held_back
        return
    try:
        yield held_back
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def written_whole(path: Path) -> Iterator[BinaryIO]:
    """A context with a new file to write. It takes the place of the path at the end, unless an error ends it.

    Several processes may write the same path: the last one to end has it.

    Raises:
        OSError: The file can't be written; the old one, if any, is unchanged.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_durably(path: Path, content: bytes) -> None:
    """Write a file and flush it to the disk. Its name is on the disk only after `sync_directory`.

    Raises:
        OSError: The file can't be written.
    """
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    """Flush the file names of a directory to the disk.

    Raises:
        OSError: The directory can't be read or flushed.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_durably(path: Path, content: bytes) -> None:
    """Replace a file atomically. A reader finds the old content or the new content, never a part of it.

    Raises:
        OSError: The file can't be written; the old file is unchanged.
    """
    temporary = path.with_name(path.name + ".writing")
    write_durably(temporary, content)
    temporary.replace(path)
    sync_directory(path.parent)


MOST_FACTS_BYTES = 64 * 2**20
"""The largest ``model.json``; one has about 6 kB a feature."""
MOST_VALUES = 4_000_000
"""The most values of a JSON file: in memory the smallest ones take 50 times their bytes."""


def read_bounded(path: Path, most: int = MOST_FACTS_BYTES, least: int = 0) -> bytes:
    """Read a plain file whole, or nothing of it; links are followed.

    Args:
        path: The file.
        most: The most bytes that it may have.
        least: The fewest bytes. A large file that is being copied is not read again and again.

    Raises:
        OSError: It can't be read, is no plain file, has another size, or changes while it is read.
    """
    # Without O_NONBLOCK, opening a pipe waits for its writer.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is no plain file")
        if found.st_size > most:
            raise OSError(errno.EFBIG, f"it has {found.st_size:,} bytes, and at most {most:,} are read")
        if found.st_size < least:
            raise OSError(
                errno.EIO, f"it has {found.st_size:,} of {least:,} bytes: it was truncated, or is still being copied"
            )
        content = file.read(found.st_size + 1)
    if len(content) != found.st_size:
        raise OSError(errno.EIO, "its size changed while it was read")
    return content


def parse_json(content: bytes) -> Any:
    """The data of a JSON file.

    Raises:
        ValueError: It is no JSON, or has more than `MOST_VALUES` values.
    """
    # Texts may hold these characters too: then the count is only higher.
    values = content.count(b",") + content.count(b"[") + content.count(b"{")
    if values > MOST_VALUES:
        raise ValueError(f"it has about {values:,} values, and at most {MOST_VALUES:,} are read")
    return orjson.loads(content)


def memory_size(control_groups: Path = CONTROL_GROUPS) -> int | None:
    """Bytes of memory of the machine, or of the container where that has a limit; None where nothing tells.

    Args:
        control_groups: Mount point of the control groups, of version 2 or 1.
    """
    sizes = []
    with suppress(AttributeError, OSError, ValueError):
        sizes.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # "max" is no limit
            sizes.append(int((control_groups / name).read_text()))
    return min(sizes, default=None)


Advance: TypeAlias = "Callable[[int], None]"
"""A function that takes the number of rows finished since the last call."""

SECONDS_BETWEEN_LINES = 2.0


def ignore_rows(rows: int) -> None:
    """An `Advance` that shows nothing."""


@contextmanager
def advancing(title: str, total: int, of: str = "rows") -> Iterator[Advance]:
    """Show the progress of work on rows. Without a terminal, the first line comes after two seconds.

    Args:
        title: Name of the work.
        total: Total number of rows.
        of: What is counted, if it is not rows.

    Yields:
        The function to call with the number of rows just finished.
    """
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield _Lines(title, total, of)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn(f"{{task.completed:,}} of {{task.total:,}} {of}"),
        TimeElapsedColumn(),
        TextColumn("ETA"),
        TimeRemainingColumn(),
    )
    # What is written to stdout meanwhile stays there: a bar that redirects it would write it to stderr.
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as bar:
        task = bar.add_task(title, total=total)
        yield lambda rows: bar.update(task, advance=rows)


class _Lines:
    """Print a line at most every two seconds."""

    def __init__(self, title: str, total: int, of: str) -> None:
        self._title, self._total, self._of, self._done = title, total, of, 0
        self._began = self._printed_at = time.monotonic()

    def __call__(self, rows: int) -> None:
        self._done += rows
        now = time.monotonic()
        if now - self._printed_at < SECONDS_BETWEEN_LINES:
            return
        self._printed_at = now
        elapsed = now - self._began
        remaining = elapsed / self._done * (self._total - self._done)
        sys.stderr.write(
            f"{self._title}: {self._done:,} of {self._total:,} {self._of}, {elapsed:.0f} s, "
            f"about {remaining:.0f} s more\n"
        )
        sys.stderr.flush()
