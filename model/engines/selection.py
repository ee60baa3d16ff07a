"""Picks the engine of a posterior, once, when it is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from murho.model.engines.compiled.loader import load
from murho.model.engines.torch_engine import TorchEngine

if TYPE_CHECKING:
    import torch

    from murho.model.engines.engine import Engine
    from murho.model.engines.target_model import TargetModel

__all__ = ["ENGINES", "engine_worth", "select_engine"]

WORTH_COMPILED_CODE = 2**22
"""Rows times draws from which on compiled code saves more than the second that it takes to load."""


ENGINES = ("auto", "torch")
"""``auto``: compiled code on a CPU, where it can be had; ``torch``: PyTorch, which needs no second to be loaded."""


def select_engine(target: TargetModel, device: torch.device, choice: str = "auto") -> Engine:
    """The engine for a target model.

    Compiled code is taken on a CPU, where Numba is installed and works, for the observation models and transforms that
    it knows. Everything else is answered by PyTorch; `compiled.loader.load` logs once why it could not be loaded.

    Args:
        target: What the outputs say of the target.
        device: Where the draws are.
        choice: One of `ENGINES`.

    Raises:
        ValueError: The choice is none of them.
    """
    if choice not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, not {choice!r}")
    reference = TorchEngine(target)
    if choice == "torch" or device.type != "cpu":
        return reference
    kernels = load()
    if kernels is None:
        return reference
    from murho.model.engines.compiled_engine import CompiledEngine

    return CompiledEngine(target, kernels) if CompiledEngine.knows(target) else reference


def engine_worth(rows: int, samples: int) -> str:
    """The choice for a process that answers so many rows and ends, for `select_engine`."""
    return "auto" if rows * samples > WORTH_COMPILED_CODE else "torch"
