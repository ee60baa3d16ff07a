"""The device to compute on, and the number of threads.

PyTorch is imported when it is asked: a mistyped name is answered at once.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from murho.model.errors import OptionError
from murho.model.runtime.processors import available_processors

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["check_device", "resolve_device", "use_threads_for_answering", "use_threads_for_fitting"]


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
