"""torchbnn: a `Sequential` of ``BayesLinear`` with ``BKLLoss``, as in its demos."""
# mypy: disable-error-code="import-not-found,import-untyped,misc,no-untyped-call"

from __future__ import annotations

import torch
import torchbnn
from torch import Tensor

from benchmarks.peers.step_task import NOISE, Steps, StepTask, drive
from benchmarks.peers.torch_parts import begin, module_steps, sequential

PRIOR_SIGMA = 0.1
"""Of its demos: it is also the initial standard deviation of every weight."""


def prepare(task: StepTask) -> Steps:
    """Sets it up."""
    minibatches = begin(task)
    model = sequential(
        torchbnn.BayesLinear(prior_mu=0, prior_sigma=PRIOR_SIGMA, in_features=inputs, out_features=outputs)
        for inputs, outputs in task.layers
    )
    squares, divergence = torch.nn.MSELoss(), torchbnn.BKLLoss(reduction="sum", last_layer_only=False)

    def loss(rows: Tensor, targets: Tensor) -> Tensor:
        """In nats per row, up to a constant."""
        cost: Tensor = squares(model(rows), targets) / (2.0 * NOISE**2) + divergence(model) / task.rows
        return cost

    return module_steps(model, minibatches, loss)


if __name__ == "__main__":
    drive(prepare)
