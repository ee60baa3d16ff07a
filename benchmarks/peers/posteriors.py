"""posteriors: ``vi.diag`` with torchopt's Adam, as in its README."""
# mypy: disable-error-code="import-not-found,import-untyped,misc,no-untyped-call"

from __future__ import annotations

from typing import Any

import posteriors
import torch
import torchopt
from torch import Tensor
from torch.func import functional_call

from benchmarks.peers.step_task import LEARNING_RATE, NOISE, PRIOR_SIGMA, Steps, StepTask, drive
from benchmarks.peers.torch_parts import begin, drawing, sequential

INITIAL_LOG_SIGMA = -3.0
"""As in its tutorials; the default, 0, starts as noise."""


def prepare(task: StepTask) -> Steps:
    """Sets it up."""
    minibatches = begin(task)
    model = sequential(torch.nn.Linear(*sizes) for sizes in task.layers)
    start = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}

    def log_posterior(parameters: dict[str, Tensor], batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        rows, targets = batch
        output = functional_call(model, parameters, (rows,))
        prior = posteriors.diag_normal_log_prob(parameters, sd_diag=PRIOR_SIGMA)
        # In nats per row, up to a constant; so the temperature is 1 / N.
        return prior / task.rows - torch.nn.functional.mse_loss(output, targets) / (2.0 * NOISE**2), output

    transform = posteriors.vi.diag.build(
        log_posterior,
        torchopt.adam(lr=LEARNING_RATE),
        temperature=1.0 / task.rows,
        init_log_sds=INITIAL_LOG_SIGMA,
    )
    state: Any = transform.init(start)

    def step(number: int) -> None:
        nonlocal state
        state, _ = transform.update(state, minibatches[number])

    def values(rows: Tensor) -> Tensor:
        drawn: Tensor = functional_call(model, posteriors.vi.diag.sample(state), (rows,))
        return drawn

    return Steps(len(minibatches), step, drawing(values))


if __name__ == "__main__":
    drive(prepare)
