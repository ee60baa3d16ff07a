"""bayesian-torch (Intel): ``dnn_to_bnn``, then one forward pass a draw, as in its README."""
# mypy: disable-error-code="import-not-found,import-untyped,misc,no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from bayesian_torch.models.dnn_to_bnn import dnn_to_bnn
from torch import Tensor

from benchmarks.peers.engine_task import drive, inverse_softplus
from benchmarks.peers.engine_torch_parts import begin, calls_of, loaded, with_activations

if TYPE_CHECKING:
    from benchmarks.peers.engine_task import Call, EngineTask

PARAMETERS = {
    "prior_mu": 0.0,
    "prior_sigma": 1.0,
    "posterior_mu_init": 0.0,
    "posterior_rho_init": -3.0,
    "type": "Reparameterization",
    "moped_enable": False,
    "moped_delta": 0.5,
}


def prepare(task: EngineTask) -> dict[str, Call]:
    """Sets it up."""
    begin(task)
    model: Any = with_activations(torch.nn.Linear(*sizes) for sizes in task.sizes)
    dnn_to_bnn(model, PARAMETERS)
    for layer, given in zip(model[0::2], task.posterior(), strict=True):
        loaded(layer.mu_weight, given.weight_mu)
        loaded(layer.rho_weight, inverse_softplus(given.weight_sigma))
        loaded(layer.mu_bias, given.bias_mu)
        loaded(layer.rho_bias, inverse_softplus(given.bias_sigma))
    model.eval()

    def draw(rows: Tensor, samples: int) -> Tensor:
        return torch.stack([model(rows) for _ in range(samples)])

    return calls_of(draw)


if __name__ == "__main__":
    drive(prepare)
