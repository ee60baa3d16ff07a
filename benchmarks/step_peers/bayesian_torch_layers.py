"""bayesian-torch (Intel): ``dnn_to_bnn`` and ``get_kl_loss``, as in its README."""
# mypy: disable-error-code="import-not-found,import-untyped,misc,no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from bayesian_torch.models.dnn_to_bnn import dnn_to_bnn, get_kl_loss

from benchmarks.step_peers.exchange import LEARNING_RATE, NOISE, PRIOR_SIGMA, Steps, StepTask, drive

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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
    torch.set_num_threads(1)
    torch.manual_seed(task.seed)
    minibatches = [
        (torch.from_numpy(rows), torch.from_numpy(targets).unsqueeze(1))
        for rows, targets in task.minibatches()
    ]
    modules: list[torch.nn.Module] = []
    for sizes in task.layers:
        modules += (torch.nn.Linear(*sizes), torch.nn.ReLU())
    model = torch.nn.Sequential(*modules[:-1])
    dnn_to_bnn(model, PARAMETERS)
    squares, optimiser = torch.nn.MSELoss(), torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)

    def step(number: int) -> None:
        rows, targets = minibatches[number]
        optimiser.zero_grad()
        # In nats per row, up to a constant.
        loss = squares(model(rows), targets) / (2.0 * NOISE**2) + get_kl_loss(model) / task.rows
        loss.backward()
        optimiser.step()

    def draw(rows: NDArray[np.float32]) -> NDArray[np.float32]:
        with torch.no_grad():
            drawn: NDArray[np.float32] = model(torch.from_numpy(rows)).numpy()
            return drawn

    return Steps(len(minibatches), step, draw)


if __name__ == "__main__":
    drive(prepare)
