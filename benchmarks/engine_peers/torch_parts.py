"""What the scripts of PyTorch's libraries share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from benchmarks.step_peers.torch_parts import sequential

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

    from benchmarks.engine_peers.exchange import EngineTask

__all__ = ["begin", "loaded", "moments", "with_activations"]


def begin(task: EngineTask) -> None:
    """Threads and seed."""
    torch.set_num_threads(task.threads)
    torch.manual_seed(task.seed)


def with_activations(layers: Iterable[torch.nn.Module]) -> torch.nn.Sequential:
    """The layers with `benchmarks.engine_peers.exchange.ACTIVATION` between them."""
    return sequential(layers, torch.nn.SiLU)


def loaded(parameter: Tensor, values: NDArray[np.float32]) -> None:
    """Copies ``[inputs, outputs]`` or ``[outputs]`` into a parameter that has its outputs first."""
    with torch.no_grad():
        parameter.copy_(torch.from_numpy(values.T))


def moments(draws: Tensor) -> dict[str, NDArray[Any]]:
    """Of function values ``[S, B]`` or ``[S, B, 1]``."""
    draws = draws.reshape(draws.shape[:2])
    return {"mean": draws.mean(dim=0).numpy(), "epistemic_std": draws.std(dim=0, correction=0).numpy()}
