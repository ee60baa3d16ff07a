"""blitz (blitz-bayesian-pytorch): ``BayesianLinear`` and ``sample_elbo``, as in its example of a regression.

Its KL is a one-draw estimate; its prior a mixture of two Gaussians, here of one, as is its default.
"""
# mypy: disable-error-code="import-not-found,import-untyped,misc,no-untyped-call"

from __future__ import annotations

from typing import Any

import torch
from blitz.modules import BayesianLinear
from blitz.utils import variational_estimator
from torch import Tensor

from benchmarks.peers.step_task import NOISE, Steps, StepTask, drive
from benchmarks.peers.torch_parts import begin, module_steps, sequential

PRIOR_SIGMA = 0.4
INITIAL_RHO = -4.0


@variational_estimator
class Model(torch.nn.Module):
    """Its layers, ReLU between them."""

    def __init__(self, task: StepTask) -> None:
        super().__init__()
        self.layers = sequential(
            BayesianLinear(*sizes, prior_sigma_1=PRIOR_SIGMA, prior_pi=1.0, posterior_rho_init=INITIAL_RHO)
            for sizes in task.layers
        )

    def forward(self, rows: Tensor) -> Tensor:
        """Function values under one draw, ``[B, 1]``."""
        values: Tensor = self.layers(rows)
        return values


def prepare(task: StepTask) -> Steps:
    """Sets it up."""
    minibatches = begin(task)
    model: Any = Model(task)
    squares = torch.nn.MSELoss()

    def loss(rows: Tensor, targets: Tensor) -> Tensor:
        # The squared error is 2 NOISE^2 times the log likelihood, and so is the weight of the KL.
        cost: Tensor = model.sample_elbo(
            inputs=rows,
            labels=targets,
            criterion=squares,
            sample_nbr=1,
            complexity_cost_weight=2.0 * NOISE**2 / task.rows,
        )
        return cost

    return module_steps(model, minibatches, loss)


if __name__ == "__main__":
    drive(prepare)
