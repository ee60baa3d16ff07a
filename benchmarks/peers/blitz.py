"""blitz (blitz-bayesian-pytorch): ``BayesianLinear``, ``sample_elbo`` and ``mfvi_forward``, as in its examples.

Its KL is estimated from one draw, and every forward pass computes log prior and log posterior. Its prior is a mixture
of two Gaussians; here, as by default, of one. ``mfvi_forward`` is its own method for mean and std over draws.
"""
# mypy: disable-error-code="import-not-found,import-untyped,misc,no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from blitz.modules import BayesianLinear
from blitz.utils import variational_estimator
from torch import Tensor

from benchmarks.peers.engine_task import EngineTask, engine_session, inverse_softplus
from benchmarks.peers.exchange import drive
from benchmarks.peers.network_task import NOISE, NetworkTask
from benchmarks.peers.step_task import Steps, StepTask, step_session
from benchmarks.peers.torch_parts import begin, load, module_calls, module_steps, sequential

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from benchmarks.peers.engine_task import Call

PRIOR_SIGMA = 0.4
INITIAL_RHO = -4.0


@variational_estimator
class Model(torch.nn.Module):
    """Bayesian linear layers with an activation between them."""

    def __init__(self, task: NetworkTask, activation: type[torch.nn.Module]) -> None:
        super().__init__()
        layers = (
            BayesianLinear(*sizes, prior_sigma_1=PRIOR_SIGMA, prior_pi=1.0, posterior_rho_init=INITIAL_RHO)
            for sizes in task.sizes
        )
        self.layers = sequential(layers, activation)

    def forward(self, rows: Tensor) -> Tensor:
        """Function values under one draw, ``[B, 1]``."""
        values: Tensor = self.layers(rows)
        return values


def steps(task: StepTask) -> Steps:
    """The optimiser steps."""
    begin(task)
    model: Any = Model(task, torch.nn.ReLU)
    squares = torch.nn.MSELoss()

    def loss(rows: Tensor, targets: Tensor) -> Tensor:
        # The squared error is 2 NOISE^2 times the negative log likelihood, so the KL has the same factor.
        cost: Tensor = model.sample_elbo(
            inputs=rows,
            labels=targets,
            criterion=squares,
            sample_nbr=1,
            complexity_cost_weight=2.0 * NOISE**2 / task.rows,
        )
        return cost

    return module_steps(model, task, loss)


def calls(task: EngineTask) -> dict[str, Call]:
    """The kinds of call."""
    begin(task)
    model: Any = Model(task, torch.nn.SiLU)
    load(model.layers, task, ("weight_mu", "weight_rho", "bias_mu", "bias_rho"), inverse_softplus)

    def call(rows: NDArray[np.float32], samples: int) -> Mapping[str, NDArray[Any]]:
        with torch.no_grad():
            mean, std = model.mfvi_forward(torch.from_numpy(rows), sample_nbr=samples)
        return {"mean": mean[:, 0].numpy(), "epistemic_std": std[:, 0].numpy()}

    return {**module_calls(model), "call": call}  # percentiles as in the confidence intervals of its README


if __name__ == "__main__":
    drive(step=step_session(steps), engine=engine_session(calls))
