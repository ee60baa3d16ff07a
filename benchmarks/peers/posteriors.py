"""posteriors: ``vi.diag`` with torchopt's Adam, as in its README; all draws at once by ``torch.vmap``."""
# mypy: disable-error-code="import-not-found,import-untyped,misc,no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import posteriors
import torch
import torchopt
from torch import Tensor
from torch.func import functional_call

from benchmarks.peers.engine_task import EngineTask, engine_session
from benchmarks.peers.exchange import drive
from benchmarks.peers.network_task import NOISE, NetworkTask
from benchmarks.peers.step_task import LEARNING_RATE, PRIOR_SIGMA, Steps, StepTask, step_session
from benchmarks.peers.torch_parts import begin, calls_of, drawing, minibatches, sequential

if TYPE_CHECKING:
    from benchmarks.peers.engine_task import Call

INITIAL_LOG_SIGMA = -3.0
"""As in its tutorials; with the default, 0, the initial network is noise."""


def model_of(task: NetworkTask, activation: type[torch.nn.Module]) -> torch.nn.Sequential:
    """The network."""
    begin(task)
    return sequential((torch.nn.Linear(*sizes) for sizes in task.sizes), activation)


def steps(task: StepTask) -> Steps:
    """The optimiser steps."""
    model, batches = model_of(task, torch.nn.ReLU), minibatches(task)
    start = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}

    def log_posterior(parameters: dict[str, Tensor], batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        rows, targets = batch
        output = functional_call(model, parameters, (rows,))
        prior = posteriors.diag_normal_log_prob(parameters, sd_diag=PRIOR_SIGMA)
        # The log posterior is in nats per row, up to a constant; so the temperature is 1 / N.
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
        state, _ = transform.update(state, batches[number])

    def values(rows: Tensor) -> Tensor:
        drawn: Tensor = functional_call(model, posteriors.vi.diag.sample(state), (rows,))
        return drawn

    return Steps(len(batches), step, drawing(values))


def calls(task: EngineTask) -> dict[str, Call]:
    """The kinds of call."""
    model = model_of(task, torch.nn.SiLU)
    means, log_sigmas = {}, {}
    for number, given in enumerate(task.posterior()):
        for name, mu, sigma in (
            (f"{2 * number}.weight", given.weight_mu, given.weight_sigma),
            (f"{2 * number}.bias", given.bias_mu, given.bias_sigma),
        ):
            means[name] = torch.from_numpy(np.ascontiguousarray(mu.T))
            log_sigmas[name] = torch.from_numpy(np.ascontiguousarray(np.log(sigma).T))
    state: Any = posteriors.vi.diag.init(means, torchopt.adam(), init_log_sds=log_sigmas)

    def draw(rows: Tensor, samples: int) -> Tensor:
        def values(weights: dict[str, Tensor]) -> Tensor:
            drawn: Tensor = functional_call(model, weights, (rows,))
            return drawn

        draws = posteriors.vi.diag.sample(state, sample_shape=torch.Size([samples]))
        return torch.vmap(values)(draws)

    return calls_of(draw)


if __name__ == "__main__":
    drive(step=step_session(steps), engine=engine_session(calls))
