"""The device to compute on, and the number of threads."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from murho.model.errors import OptionError
from murho.model.runtime.processors import available_processors

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["resolve_device", "use_threads_for_answering", "use_threads_for_fitting"]


def resolve_device(wanted: str) -> str:
    """Return the PyTorch device for ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.

    Raises:
        OptionError: The name is unknown, or CUDA is asked for and not available.
    """
    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if wanted == "cpu":
        return wanted
    if wanted == "cuda" or (wanted.startswith("cuda:") and wanted[5:].isdigit()):
        if not torch.cuda.is_available():
            raise OptionError(
                "--device cuda: no CUDA device is usable here; PyTorch is a CPU build, or GPU or driver are missing. "
                "Use --device cpu"
            )
        if wanted != "cuda" and int(wanted[5:]) >= torch.cuda.device_count():
            raise OptionError(f"--device {wanted}: there are {torch.cuda.device_count()} CUDA devices, counted from 0")
        return wanted
    raise OptionError(f"--device must be auto, cpu or cuda, not {wanted!r}")


@contextmanager
def use_threads_for_fitting(device: str) -> Iterator[None]:
    """Use one thread while fitting on the CPU: the matrix products of a minibatch are too small to split."""
    before = torch.get_num_threads()
    if device == "cpu":
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def use_threads_for_answering() -> None:
    """Use one thread for each available processor. PyTorch counts the machine's; a container may have fewer."""
    torch.set_num_threads(available_processors())
