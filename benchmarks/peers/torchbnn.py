"""torchbnn: a `Sequential` of ``BayesLinear``, ``BKLLoss`` and one forward pass per draw, as in its demos."""
# mypy: disable-error-code="import-not-found,import-untyped,misc,no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
import torchbnn
from torch import Tensor

from benchmarks.peers.engine_task import EngineTask, engine_session
from benchmarks.peers.exchange import drive
from benchmarks.peers.network_task import NOISE, NetworkTask
from benchmarks.peers.step_task import Steps, StepTask, step_session
from benchmarks.peers.torch_parts import begin, load, module_calls, module_steps, sequential

if TYPE_CHECKING:
    from benchmarks.peers.engine_task import Call

PRIOR_SIGMA = 0.1
"""As in its demos; also the initial standard deviation of every weight."""


def model_of(task: NetworkTask, activation: type[torch.nn.Module]) -> torch.nn.Sequential:
    """The network."""
    begin(task)
    layers = (
        torchbnn.BayesLinear(prior_mu=0, prior_sigma=PRIOR_SIGMA, in_features=inputs, out_features=outputs)
        for inputs, outputs in task.sizes
    )
    return sequential(layers, activation)


def steps(task: StepTask) -> Steps:
    """The optimiser steps."""
    model = model_of(task, torch.nn.ReLU)
    squares, divergence = torch.nn.MSELoss(), torchbnn.BKLLoss(reduction="sum", last_layer_only=False)

    def loss(rows: Tensor, targets: Tensor) -> Tensor:
        """Negative ELBO in nats per row, up to a constant."""
        cost: Tensor = squares(model(rows), targets) / (2.0 * NOISE**2) + divergence(model) / task.rows
        return cost

    return module_steps(model, task, loss)


def calls(task: EngineTask) -> dict[str, Call]:
    """The kinds of call."""
    model = model_of(task, torch.nn.SiLU)
    load(model, task, ("weight_mu", "weight_log_sigma", "bias_mu", "bias_log_sigma"), np.log)
    return module_calls(model)


if __name__ == "__main__":
    drive(step=step_session(steps), engine=engine_session(calls))
