"""bayesian-torch (Intel): ``dnn_to_bnn`` and ``get_kl_loss``, as in its README."""
# mypy: disable-error-code="import-not-found,import-untyped,misc,no-untyped-call"

from __future__ import annotations

import torch
from bayesian_torch.models.dnn_to_bnn import dnn_to_bnn, get_kl_loss
from torch import Tensor

from benchmarks.peers.step_task import NOISE, PRIOR_SIGMA, Steps, StepTask, drive
from benchmarks.peers.torch_parts import begin, module_steps, sequential

PARAMETERS = {
    "prior_mu": 0.0,
    "prior_sigma": PRIOR_SIGMA,
    "posterior_mu_init": 0.0,
    "posterior_rho_init": -3.0,
    "type": "Reparameterization",
    "moped_enable": False,
    "moped_delta": 0.5,
}


def prepare(task: StepTask) -> Steps:
    """Sets it up."""
    minibatches = begin(task)
    model = sequential(torch.nn.Linear(*sizes) for sizes in task.layers)
    dnn_to_bnn(model, PARAMETERS)
    squares = torch.nn.MSELoss()

    def loss(rows: Tensor, targets: Tensor) -> Tensor:
        """In nats per row, up to a constant."""
        cost: Tensor = squares(model(rows), targets) / (2.0 * NOISE**2) + get_kl_loss(model) / task.rows
        return cost

    return module_steps(model, minibatches, loss)


if __name__ == "__main__":
    drive(prepare)
