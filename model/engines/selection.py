"""The choice of a posterior's engine, made once when the posterior is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from murho.model.engines.compiled.loader import load
from murho.model.engines.torch_engine import TorchEngine

if TYPE_CHECKING:
    import torch

    from murho.model.engines.engine import Engine
    from murho.model.engines.target_models import AnyTargetModel

__all__ = ["ENGINES", "engine_worth", "select_engine"]

WORTH_COMPILED_CODE = 2**22
"""Rows times draws above which compiled code saves more than the second that it takes to load."""


ENGINES = ("auto", "torch")
"""``auto``: compiled code on a CPU, where it is available; ``torch``: PyTorch, which saves a second of loading."""


def select_engine(target: AnyTargetModel, device: torch.device, choice: str = "auto") -> Engine:
    """Select the engine for a target model.

    ``auto`` selects compiled code on a CPU, if Numba is installed and works, for the observation models and transforms
    that it supports, and else PyTorch. If compiled code can't be loaded, `compiled.loader.load` logs the reason once.

    Args:
        target: Maps the network's outputs to the distribution of the target.
        device: The device of the draws.
        choice: One of `ENGINES`.

    Raises:
        ValueError: The choice is not one of `ENGINES`.
    """
    if choice not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, not {choice!r}")
    reference = TorchEngine(target)
    if choice == "torch" or device.type != "cpu":
        return reference
    kernels = load()
    if kernels is None:
        return reference
    from murho.model.engines.class_target_model import ClassTargetModel
    from murho.model.engines.compiled_class_engine import CompiledClassEngine
    from murho.model.engines.compiled_engine import CompiledEngine
    from murho.model.engines.target_model import TargetModel

    if isinstance(target, ClassTargetModel):
        return CompiledClassEngine(target, kernels)
    if isinstance(target, TargetModel) and CompiledEngine.supports(target):
        return CompiledEngine(target, kernels)
    return reference


def engine_worth(rows: int, samples: int) -> str:
    """The choice of engine for a process that answers this number of rows once, and then ends."""
    return "auto" if rows * samples > WORTH_COMPILED_CODE else "torch"
