"""torchbnn: a `Sequential` of ``BayesLinear``, then one forward pass a draw, as in its demos."""
# mypy: disable-error-code="import-not-found,import-untyped,misc,no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
import torchbnn
from torch import Tensor

from benchmarks.peers.engine_task import drive
from benchmarks.peers.engine_torch_parts import begin, calls_of, loaded, with_activations

if TYPE_CHECKING:
    from benchmarks.peers.engine_task import Call, EngineTask


def prepare(task: EngineTask) -> dict[str, Call]:
    """Sets it up."""
    begin(task)
    layers = []
    for (inputs, outputs), given in zip(task.sizes, task.posterior(), strict=True):
        layer = torchbnn.BayesLinear(prior_mu=0, prior_sigma=0.1, in_features=inputs, out_features=outputs)
        loaded(layer.weight_mu, given.weight_mu)
        loaded(layer.weight_log_sigma, np.log(given.weight_sigma))
        loaded(layer.bias_mu, given.bias_mu)
        loaded(layer.bias_log_sigma, np.log(given.bias_sigma))
        layers.append(layer)
    model = with_activations(layers)

    def draw(rows: Tensor, samples: int) -> Tensor:
        return torch.stack([model(rows) for _ in range(samples)])

    return calls_of(draw)


if __name__ == "__main__":
    drive(prepare)
