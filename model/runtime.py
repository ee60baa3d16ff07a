"""The process: its processors, devices, threads, free memory and interrupts.

The CPU affinity and the container's quota decide how many processors there are, not the size of the machine. The kernel
throttles a thread pool that is larger than the quota, and answers become many times slower.

PyTorch is imported when it is needed: a mistyped device is answered at once.
"""

from __future__ import annotations

import ctypes
import logging
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import TypeVar

from murho.model.errors import OptionError

Loaded = TypeVar("Loaded")

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
    """Make threads of products sleep while they wait for each other, unless the environment sets another policy.

    By default they spin. If another program needs the processor, the kernel preempts a spinning thread for 4 ms at a
    time, in the middle of an operation that takes a tenth of that. Measured with two threads, 256 draws, mixture noise
    and one other busy process on two cores: one row takes 68 ms spinning and 2.8 ms sleeping; 1,000 rows take 1,900 and
    240 ms. Without other processes, sleeping takes 1.1 to 1.2 times as long as spinning.

    NumPy's OpenBLAS spins too, and can't be told to sleep: it gets one thread. Otherwise a product of the encoder, of
    half a millisecond, takes a processor from the engine's threads: 1,000 rows take 36 ms instead of 23 on two cores.

    Call this before NumPy and PyTorch are imported: they read these variables once.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


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
def at_most_threads(count: int | None = None) -> Iterator[None]:
    """Let PyTorch use at most so many threads during the block; None: one for each available processor."""
    import torch

    before = torch.get_num_threads()
    most = count or available_processors()
    if most >= before:
        yield
        return
    torch.set_num_threads(most)
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

PARTS_PER_THREAD = 5
"""Parts of the rows for each thread: one that loses its processor to other work for a while leaves some to the rest.
With 5, two threads have five of ten members each; with 4, some parts are of two members, and one thread ends with six.
"""


def use_threads(count: int) -> None:
    """Set PyTorch's number of threads for the calling thread alone.

    A thread takes the number that was set last in any thread when PyTorch first needs it there. So it is asked first:
    otherwise a number set meanwhile by another thread would replace the one set here.
    """
    import torch

    torch.get_num_threads()
    torch.set_num_threads(count)


def threads_for(products: int) -> AbstractContextManager[None]:
    """Use one thread for small work, and PyTorch's number of threads for larger work.

    Args:
        products: Multiplications of the forward pass: number of weights in all draws, times rows.
    """
    return at_most_threads(1) if products <= FEW_PRODUCTS else nullcontext()


def even_slices(count: int, parts: int) -> list[slice]:
    """Consecutive parts of about equal size."""
    return [slice(count * part // parts, count * (part + 1) // parts) for part in range(parts)]


def in_parts(count: int, least: int, work: Callable[[slice], None]) -> None:
    """Share rows, or whatever is counted, out among PyTorch's number of threads, this one included, in equal parts.

    Each thread takes the next part when it is done with one.

    Args:
        count: Number of rows.
        least: Smallest number of rows for which a further thread is used.
        work: Processes one slice of the rows; it must release the interpreter lock.
    """
    import torch

    threads = torch.get_num_threads()
    used = min(threads, count // least)
    if used <= 1:
        work(slice(0, count))
        return
    parts = min(PARTS_PER_THREAD * used, count // least)
    slices = iter(even_slices(count, parts))

    def take_turns() -> None:
        for rows in slices:
            work(rows)

    others = [_helpers(threads - 1).submit(take_turns) for _ in range(used - 1)]
    take_turns()
    for other in others:
        other.result()


@lru_cache(maxsize=1)
def _helpers(threads: int) -> ThreadPoolExecutor:
    """Return a pool of threads that sleep until they get work."""
    return ThreadPoolExecutor(threads, thread_name_prefix="murho-helper")


LONG_SECONDS = 3.0
"""Loading compiled code takes about one second; what takes longer than this is compiling."""


def load_compiled(load: Callable[[], Loaded]) -> Loaded | None:
    """Load compiled code, or log why there is none.

    Numba is an extra (``murho[compiled]``). Loading takes about a second and 120 MiB. On its first use on a machine the
    code is compiled, which takes about twenty seconds. A failure here is no error: PyTorch computes the same.

    Args:
        load: Imports the compiled functions; an error says that they do not work on this Python or processor.

    Returns:
        What it returns; None where Numba is missing, or ``load`` failed.
    """
    log = logging.getLogger("murho.engines")
    words = "compiling for this kind of processor, about 20 s; the code is kept, so that later starts load it"
    timer = threading.Timer(LONG_SECONDS, log.info, (words,))
    timer.daemon = True
    timer.start()
    try:
        return load()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("numba", "llvmlite"):
            raise
        log.info(
            "PyTorch computes: compiled code needs Numba; "
            "run pip install '.[compiled]' in a clone of Murho's repository"
        )
    except Exception as error:  # whatever a compiler may fail with
        log.warning("PyTorch computes, more slowly: compiled code can't be loaded here (%r)", error)
    finally:
        timer.cancel()
    return None


def trim_heap() -> None:
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
