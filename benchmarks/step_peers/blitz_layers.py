"""blitz (blitz-bayesian-pytorch): ``BayesianLinear`` and ``sample_elbo``, as in its example of a regression.

Its KL is a one-draw estimate; its prior a mixture of two Gaussians, here of one, as is its default.
"""
# mypy: disable-error-code="import-not-found,import-untyped,misc,no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from blitz.modules import BayesianLinear
from blitz.utils import variational_estimator
from torch import Tensor

from benchmarks.step_peers.exchange import LEARNING_RATE, NOISE, Steps, StepTask, drive

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PRIOR_SIGMA = 0.4
INITIAL_RHO = -4.0


@variational_estimator
class Model(torch.nn.Module):
    """Its layers, ReLU between them."""

    def __init__(self, task: StepTask) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(
            BayesianLinear(*sizes, prior_sigma_1=PRIOR_SIGMA, prior_pi=1.0, posterior_rho_init=INITIAL_RHO)
            for sizes in task.layers
        )

    def forward(self, rows: Tensor) -> Tensor:
        """Function values under one draw, ``[B, 1]``."""
        for layer in self.layers[:-1]:
            rows = torch.relu(layer(rows))
        values: Tensor = self.layers[-1](rows)
        return values


def prepare(task: StepTask) -> Steps:
    """Sets it up."""
    torch.set_num_threads(1)
    torch.manual_seed(task.seed)
    minibatches = [
        (torch.from_numpy(rows), torch.from_numpy(targets).unsqueeze(1))
        for rows, targets in task.minibatches()
    ]
    model: Any = Model(task)
    squares, optimiser = torch.nn.MSELoss(), torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)

    def step(number: int) -> None:
        rows, targets = minibatches[number]
        optimiser.zero_grad()
        # The squared error is 2 NOISE^2 times the log likelihood, and so is the weight of the KL.
        loss = model.sample_elbo(
            inputs=rows,
            labels=targets,
            criterion=squares,
            sample_nbr=1,
            complexity_cost_weight=2.0 * NOISE**2 / task.rows,
        )
        loss.backward()
        optimiser.step()

    def draw(rows: NDArray[np.float32]) -> NDArray[np.float32]:
        with torch.no_grad():
            drawn: NDArray[np.float32] = model(torch.from_numpy(rows)).numpy()
            return drawn

    return Steps(len(minibatches), step, draw)


if __name__ == "__main__":
    drive(prepare)
