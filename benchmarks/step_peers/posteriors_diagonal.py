"""posteriors: ``vi.diag`` with torchopt's Adam, as in its README."""
# mypy: disable-error-code="import-not-found,import-untyped,misc,no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import posteriors
import torch
import torchopt
from torch import Tensor
from torch.func import functional_call

from benchmarks.step_peers.exchange import LEARNING_RATE, NOISE, PRIOR_SIGMA, Steps, StepTask, drive

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

INITIAL_LOG_SIGMA = -3.0
"""As in its tutorials; the default, 0, starts as noise."""


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

    def draw(rows: NDArray[np.float32]) -> NDArray[np.float32]:
        with torch.no_grad():
            drawn = functional_call(model, posteriors.vi.diag.sample(state), (torch.from_numpy(rows),))
            return drawn.numpy()  # type: ignore[no-any-return]

    return Steps(len(minibatches), step, draw)


if __name__ == "__main__":
    drive(prepare)
