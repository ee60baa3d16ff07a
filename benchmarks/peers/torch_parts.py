"""What the scripts of PyTorch's libraries share; what is left in each is the use of that library."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from benchmarks.peers.step_task import LEARNING_RATE, Steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from benchmarks.peers.step_task import StepTask

__all__ = ["begin", "drawing", "module_steps", "sequential"]


def begin(task: StepTask) -> list[tuple[Tensor, Tensor]]:
    """One thread and the task's seed; the minibatches, ``[B, D]`` and ``[B, 1]``."""
    torch.set_num_threads(1)
    torch.manual_seed(task.seed)
    return [
        (torch.from_numpy(rows), torch.from_numpy(targets).unsqueeze(1))
        for rows, targets in task.minibatches()
    ]


def sequential(
    layers: Iterable[torch.nn.Module], activation: type[torch.nn.Module] = torch.nn.ReLU
) -> torch.nn.Sequential:
    """The layers with an activation between them."""
    modules: list[torch.nn.Module] = []
    for layer in layers:
        modules += (layer, activation())
    return torch.nn.Sequential(*modules[:-1])


def module_steps(
    model: torch.nn.Module,
    minibatches: Sequence[tuple[Tensor, Tensor]],
    loss: Callable[[Tensor, Tensor], Tensor],
) -> Steps:
    """Adam on the parameters of a module each of whose forward passes is one draw.

    Args:
        model: From rows ``[B, D]`` to function values ``[B, 1]``.
        minibatches: As `begin` gives them.
        loss: Of the rows and targets of one, a scalar.
    """
    optimiser = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)

    def step(number: int) -> None:
        optimiser.zero_grad()
        loss(*minibatches[number]).backward()
        optimiser.step()

    return Steps(len(minibatches), step, drawing(model))


def drawing(forward: Callable[[Tensor], Tensor]) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
    """The draws of `Steps`, from a forward pass under one draw."""

    def draw(rows: NDArray[np.float32]) -> NDArray[np.float32]:
        with torch.no_grad():
            drawn: NDArray[np.float32] = forward(torch.from_numpy(rows)).numpy()
            return drawn

    return draw
