"""What the scripts of PyTorch's libraries share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from benchmarks.peers.engine_task import NOISE, percentiles_of
from benchmarks.peers.torch_parts import sequential

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from benchmarks.peers.engine_task import Call, EngineTask

__all__ = ["begin", "calls_of", "loaded", "with_activations"]


def begin(task: EngineTask) -> None:
    """Threads and seed."""
    torch.set_num_threads(task.threads)
    torch.manual_seed(task.seed)


def with_activations(layers: Iterable[torch.nn.Module]) -> torch.nn.Sequential:
    """The layers with `benchmarks.peers.engine_task.ACTIVATION` between them."""
    return sequential(layers, torch.nn.SiLU)


def loaded(parameter: Tensor, values: NDArray[np.float32]) -> None:
    """Copies ``[inputs, outputs]`` or ``[outputs]`` into a parameter that has its outputs first."""
    with torch.no_grad():
        parameter.copy_(torch.from_numpy(values.T))


def calls_of(draw: Callable[[Tensor, int], Tensor]) -> dict[str, Call]:
    """Mean and std alone; and with them percentiles of an observation, from draws with noise.

    Args:
        draw: Function values ``[S, B]`` or ``[S, B, 1]`` of rows ``[B, D]`` under S draws.
    """

    def drawn(rows: NDArray[np.float32], samples: int) -> Tensor:
        with torch.no_grad():
            draws = draw(torch.from_numpy(rows), samples)
        return draws.reshape(draws.shape[:2])

    def call(rows: NDArray[np.float32], samples: int) -> Mapping[str, NDArray[Any]]:
        return _moments(drawn(rows, samples))

    def percentiles(rows: NDArray[np.float32], samples: int) -> Mapping[str, NDArray[Any]]:
        draws = drawn(rows, samples)
        observations = draws + NOISE * torch.randn_like(draws)
        return {**_moments(draws), "percentiles": percentiles_of(observations.numpy())}

    return {"call": call, "percentiles": percentiles}


def _moments(draws: Tensor) -> dict[str, NDArray[Any]]:
    return {"mean": draws.mean(dim=0).numpy(), "epistemic_std": draws.std(dim=0, correction=0).numpy()}
