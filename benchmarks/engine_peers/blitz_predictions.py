"""blitz (blitz-bayesian-pytorch): ``mfvi_forward``, its own method for a mean and a standard deviation over draws.

Its layers compute log prior and log posterior in every forward pass.
"""
# mypy: disable-error-code="import-not-found,import-untyped,misc,no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from blitz.modules import BayesianLinear
from blitz.utils import variational_estimator
from torch import Tensor

from benchmarks.peers.engine_task import drive, inverse_softplus
from benchmarks.peers.engine_torch_parts import begin, calls_of, loaded, with_activations

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from benchmarks.peers.engine_task import Call, EngineTask


@variational_estimator
class Model(torch.nn.Module):
    """Its layers, an activation between them."""

    def __init__(self, task: EngineTask) -> None:
        super().__init__()
        self.layers = with_activations(BayesianLinear(*sizes) for sizes in task.sizes)

    def forward(self, rows: Tensor) -> Tensor:
        """Function values under one draw, ``[B, 1]``."""
        values: Tensor = self.layers(rows)
        return values


def prepare(task: EngineTask) -> dict[str, Call]:
    """Sets it up."""
    begin(task)
    model: Any = Model(task)
    for layer, given in zip(model.layers[0::2], task.posterior(), strict=True):
        # In place: the layers' samplers share the memory of these parameters.
        loaded(layer.weight_mu, given.weight_mu)
        loaded(layer.weight_rho, inverse_softplus(given.weight_sigma))
        loaded(layer.bias_mu, given.bias_mu)
        loaded(layer.bias_rho, inverse_softplus(given.bias_sigma))

    def call(rows: NDArray[np.float32], samples: int) -> Mapping[str, NDArray[Any]]:
        with torch.no_grad():
            mean, std = model.mfvi_forward(torch.from_numpy(rows), sample_nbr=samples)
        return {"mean": mean[:, 0].numpy(), "epistemic_std": std[:, 0].numpy()}

    def draw(rows: Tensor, samples: int) -> Tensor:  # as in its README, for a confidence interval
        return torch.stack([model(rows) for _ in range(samples)])

    return {**calls_of(draw), "call": call}


if __name__ == "__main__":
    drive(prepare)
