"""bayesian-torch (Intel): ``dnn_to_bnn``, ``get_kl_loss`` and one forward pass per draw, as in its README."""
# mypy: disable-error-code="import-not-found,import-untyped,misc,no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from bayesian_torch.models.dnn_to_bnn import dnn_to_bnn, get_kl_loss
from torch import Tensor

from benchmarks.peers.engine_task import EngineTask, engine_session, inverse_softplus
from benchmarks.peers.exchange import drive
from benchmarks.peers.network_task import NOISE, NetworkTask
from benchmarks.peers.step_task import PRIOR_SIGMA, Steps, StepTask, step_session
from benchmarks.peers.torch_parts import begin, load, module_calls, module_steps, sequential

if TYPE_CHECKING:
    from benchmarks.peers.engine_task import Call

PARAMETERS = {
    "prior_mu": 0.0,
    "prior_sigma": PRIOR_SIGMA,
    "posterior_mu_init": 0.0,
    "posterior_rho_init": -3.0,
    "type": "Reparameterization",
    "moped_enable": False,
    "moped_delta": 0.5,
}


def model_of(task: NetworkTask, activation: type[torch.nn.Module]) -> Any:
    """The network, converted to a Bayesian one."""
    begin(task)
    model = sequential((torch.nn.Linear(*sizes) for sizes in task.sizes), activation)
    dnn_to_bnn(model, PARAMETERS)
    return model


def steps(task: StepTask) -> Steps:
    """The optimiser steps."""
    model = model_of(task, torch.nn.ReLU)
    squares = torch.nn.MSELoss()

    def loss(rows: Tensor, targets: Tensor) -> Tensor:
        """Negative ELBO in nats per row, up to a constant."""
        cost: Tensor = squares(model(rows), targets) / (2.0 * NOISE**2) + get_kl_loss(model) / task.rows
        return cost

    return module_steps(model, task, loss)


def calls(task: EngineTask) -> dict[str, Call]:
    """The kinds of call."""
    model = model_of(task, torch.nn.SiLU)
    load(model, task, ("mu_weight", "rho_weight", "mu_bias", "rho_bias"), inverse_softplus)
    model.eval()
    return module_calls(model)


if __name__ == "__main__":
    drive(step=step_session(steps), engine=engine_session(calls))
