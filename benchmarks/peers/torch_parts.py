"""The code that the scripts of PyTorch libraries share; each script has the use of its library alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from benchmarks.peers.engine_task import percentiles_of
from benchmarks.peers.network_task import NOISE
from benchmarks.peers.step_task import LEARNING_RATE, Steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from benchmarks.peers.engine_task import Call, EngineTask
    from benchmarks.peers.network_task import NetworkTask
    from benchmarks.peers.step_task import StepTask

__all__ = [
    "begin",
    "calls_of",
    "drawing",
    "load",
    "minibatches",
    "module_calls",
    "module_steps",
    "sequential",
]


def begin(task: NetworkTask) -> None:
    """Sets threads and seed."""
    torch.set_num_threads(task.threads)
    torch.manual_seed(task.seed)


def sequential(layers: Iterable[torch.nn.Module], activation: type[torch.nn.Module]) -> torch.nn.Sequential:
    """The layers with an activation between them."""
    modules: list[torch.nn.Module] = []
    for layer in layers:
        modules += (layer, activation())
    return torch.nn.Sequential(*modules[:-1])


def minibatches(task: StepTask) -> list[tuple[Tensor, Tensor]]:
    """Rows ``[B, D]`` and targets ``[B, 1]`` of each minibatch."""
    return [(torch.from_numpy(rows), torch.from_numpy(targets).unsqueeze(1)) for rows, targets in task.minibatches()]


def module_steps(model: torch.nn.Module, task: StepTask, loss: Callable[[Tensor, Tensor], Tensor]) -> Steps:
    """Steps of Adam on the parameters of a module that makes a new draw in each forward pass.

    Args:
        model: From rows ``[B, D]`` to function values ``[B, 1]``.
        task: The task, with its minibatches.
        loss: From the rows and targets of a minibatch to a scalar.
    """
    batches = minibatches(task)
    optimiser = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)

    def step(number: int) -> None:
        optimiser.zero_grad()
        loss(*batches[number]).backward()
        optimiser.step()

    return Steps(len(batches), step, drawing(model))


def drawing(forward: Callable[[Tensor], Tensor]) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
    """The argument `draw` of `Steps`, from a forward pass under one draw."""

    def draw(rows: NDArray[np.float32]) -> NDArray[np.float32]:
        with torch.no_grad():
            drawn: NDArray[np.float32] = forward(torch.from_numpy(rows)).numpy()
            return drawn

    return draw


def load(
    model: torch.nn.Sequential,
    task: EngineTask,
    names: tuple[str, str, str, str],
    scale: Callable[[NDArray[np.float32]], NDArray[np.float32]],
) -> None:
    """Copies the task's posterior into a network, in place, so that views of its parameters change too.

    Args:
        model: Made by `sequential`; the weights of its layers have outputs first.
        task: The task with the posterior.
        names: Names of a layer's parameters: mean and scale of the weights, mean and scale of the biases.
        scale: From sigma to the library's parameter, such as its logarithm.
    """
    with torch.no_grad():
        for layer, given in zip(list(model)[::2], task.posterior(), strict=True):
            values = (given.weight_mu, scale(given.weight_sigma), given.bias_mu, scale(given.bias_sigma))
            for name, value in zip(names, values, strict=True):
                getattr(layer, name).copy_(torch.from_numpy(value.T))


def module_calls(model: torch.nn.Module) -> dict[str, Call]:
    """The kinds of call of a module that makes a new draw in each forward pass."""
    return calls_of(lambda rows, samples: torch.stack([model(rows) for _ in range(samples)]))


def calls_of(draw: Callable[[Tensor, int], Tensor]) -> dict[str, Call]:
    """Two kinds of call: mean and std alone, and with percentiles of an observation, from draws with noise.

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
