"""torchbnn: a `Sequential` of ``BayesLinear`` with ``BKLLoss``, as in its demos."""
# mypy: disable-error-code="import-not-found,import-untyped,misc,no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torchbnn

from benchmarks.step_peers.exchange import LEARNING_RATE, NOISE, Steps, StepTask, drive

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PRIOR_SIGMA = 0.1
"""Of its demos: it is also the initial standard deviation of every weight."""


def prepare(task: StepTask) -> Steps:
    """Sets it up."""
    torch.set_num_threads(1)
    torch.manual_seed(task.seed)
    minibatches = [
        (torch.from_numpy(rows), torch.from_numpy(targets).unsqueeze(1))
        for rows, targets in task.minibatches()
    ]
    modules: list[torch.nn.Module] = []
    for inputs, outputs in task.layers:
        modules += (
            torchbnn.BayesLinear(
                prior_mu=0, prior_sigma=PRIOR_SIGMA, in_features=inputs, out_features=outputs
            ),
            torch.nn.ReLU(),
        )
    model = torch.nn.Sequential(*modules[:-1])
    squares, divergence = torch.nn.MSELoss(), torchbnn.BKLLoss(reduction="sum", last_layer_only=False)
    optimiser = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)

    def step(number: int) -> None:
        rows, targets = minibatches[number]
        # In nats per row, up to a constant.
        cost = squares(model(rows), targets) / (2.0 * NOISE**2) + divergence(model) / task.rows
        optimiser.zero_grad()
        cost.backward()
        optimiser.step()

    def draw(rows: NDArray[np.float32]) -> NDArray[np.float32]:
        with torch.no_grad():
            drawn: NDArray[np.float32] = model(torch.from_numpy(rows)).numpy()
            return drawn

    return Steps(len(minibatches), step, draw)


if __name__ == "__main__":
    drive(prepare)
