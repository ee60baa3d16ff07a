"""Three libraries of PyTorch, each used as in its README or demos, one draw in each forward pass.

*bayesian-torch* (Intel): ``dnn_to_bnn`` and ``get_kl_loss``. *torchbnn*: a `Sequential` of ``BayesLinear``, and
``BKLLoss``; the prior and the initial standard deviation of every weight are 0.1, as in its demos. *posteriors*:
``vi.diag`` with torchopt's Adam; all draws at once by ``torch.vmap``; with its default, 0, the initial network is
noise, so that the logarithm of sigma begins at -3, as in its tutorials. The name of the library is on the command line.
"""
# mypy: disable-error-code="import-not-found,import-untyped,misc,no-untyped-call"

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import posteriors
import torch
import torchbnn
import torchopt
from bayesian_torch.models.dnn_to_bnn import dnn_to_bnn, get_kl_loss
from torch import Tensor, nn
from torch.func import functional_call

from benchmarks.peers.exchange import drive
from benchmarks.peers.networks import (
    LEARNING_RATE,
    NOISE,
    PRIOR_SIGMA,
    EngineTask,
    NetworkTask,
    Steps,
    StepTask,
    engine_session,
    inverse_softplus,
    percentiles_of,
    step_session,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from benchmarks.peers.networks import Call
    from murho.model.arrays import Floats

PARAMETERS = {
    "prior_mu": 0.0,
    "prior_sigma": PRIOR_SIGMA,
    "posterior_mu_init": 0.0,
    "posterior_rho_init": -3.0,
    "type": "Reparameterization",
    "moped_enable": False,
    "moped_delta": 0.5,
}


def network(task: NetworkTask, activation: type[nn.Module], library: str) -> nn.Sequential:
    """Return the network with the layers of a library."""
    torch.set_num_threads(task.threads)
    torch.manual_seed(task.seed)
    modules: list[nn.Module] = []
    for inputs, outputs in task.sizes:
        if library == "torchbnn":
            layer = torchbnn.BayesLinear(prior_mu=0, prior_sigma=0.1, in_features=inputs, out_features=outputs)
        else:
            layer = nn.Linear(inputs, outputs)
        modules += (layer, activation())
    model = nn.Sequential(*modules[:-1])
    if library == "bayesian-torch":
        dnn_to_bnn(model, PARAMETERS)
    return model


def minibatches(task: StepTask) -> list[tuple[Tensor, Tensor]]:
    """Rows ``[B, D]`` and targets ``[B, 1]`` of each minibatch."""
    return [(torch.from_numpy(rows), torch.from_numpy(targets).unsqueeze(1)) for rows, targets in task.minibatches()]


def drawing(forward: Callable[[Tensor], Tensor]) -> Callable[[Floats], Floats]:
    """Return the argument `draw` of `Steps`, from a forward pass under one draw."""

    @torch.no_grad()
    def draw(rows: Floats) -> Floats:
        return np.asarray(forward(torch.from_numpy(rows)))

    return draw


def steps(task: StepTask) -> Steps:
    """Take optimiser steps of bayesian-torch and torchbnn: Adam on the negative ELBO, nats per row up to a constant."""
    model, batches = network(task, nn.ReLU, LIBRARY), minibatches(task)
    squares, divergence = nn.MSELoss(), torchbnn.BKLLoss(reduction="sum", last_layer_only=False)
    divergence = divergence if LIBRARY == "torchbnn" else get_kl_loss
    optimiser = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)

    def step(number: int) -> None:
        rows, targets = batches[number]
        optimiser.zero_grad()
        (squares(model(rows), targets) / (2.0 * NOISE**2) + divergence(model) / task.rows).backward()
        optimiser.step()

    return Steps(len(batches), step, drawing(model))


def calls(task: EngineTask) -> dict[str, Call]:
    """Return the kinds of call of bayesian-torch and torchbnn, with the task's posterior."""
    model, parts = (
        network(task, nn.SiLU, LIBRARY).eval(),
        ("weight_mu", "weight_log_sigma", "bias_mu", "bias_log_sigma"),
    )
    names = parts if LIBRARY == "torchbnn" else ("mu_weight", "rho_weight", "mu_bias", "rho_bias")
    scale = np.log if LIBRARY == "torchbnn" else inverse_softplus
    with torch.no_grad():
        for layer, given in zip(list(model)[::2], task.posterior(), strict=True):
            values = (given.weight_mu, scale(given.weight_sigma), given.bias_mu, scale(given.bias_sigma))
            for name, value in zip(names, values, strict=True):
                getattr(layer, name).copy_(torch.from_numpy(value.T))
    return calls_of(lambda rows, samples: torch.stack([model(rows) for _ in range(samples)]))


def posteriors_steps(task: StepTask) -> Steps:
    """Return the optimiser steps of posteriors."""
    model, batches = network(task, nn.ReLU, LIBRARY), minibatches(task)
    start = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}

    def log_posterior(parameters: dict[str, Tensor], batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        output = functional_call(model, parameters, (batch[0],))
        prior = posteriors.diag_normal_log_prob(parameters, sd_diag=PRIOR_SIGMA)
        # The log posterior is in nats per row, up to a constant; so the temperature is 1 / N.
        return prior / task.rows - nn.functional.mse_loss(output, batch[1]) / (2.0 * NOISE**2), output

    adam = torchopt.adam(lr=LEARNING_RATE)
    transform = posteriors.vi.diag.build(log_posterior, adam, temperature=1.0 / task.rows, init_log_sds=-3.0)
    state: Any = transform.init(start)

    def step(number: int) -> None:
        nonlocal state
        state, _ = transform.update(state, batches[number])

    draw = drawing(lambda rows: functional_call(model, posteriors.vi.diag.sample(state), (rows,)))
    return Steps(len(batches), step, draw)


def posteriors_calls(task: EngineTask) -> dict[str, Call]:
    """Return the kinds of call of posteriors."""
    model, means, log_sigmas = network(task, nn.SiLU, LIBRARY), {}, {}
    for number, given in enumerate(task.posterior()):
        for name, mu, sigma in (
            (f"{2 * number}.weight", given.weight_mu, given.weight_sigma),
            (f"{2 * number}.bias", given.bias_mu, given.bias_sigma),
        ):
            means[name] = torch.from_numpy(np.ascontiguousarray(mu.T))
            log_sigmas[name] = torch.from_numpy(np.ascontiguousarray(np.log(sigma).T))
    state: Any = posteriors.vi.diag.init(means, torchopt.adam(), init_log_sds=log_sigmas)

    def draw(rows: Tensor, samples: int) -> Tensor:
        drawn = posteriors.vi.diag.sample(state, sample_shape=torch.Size([samples]))
        values: Tensor = torch.vmap(lambda weights: functional_call(model, weights, (rows,)))(drawn)
        return values

    return calls_of(draw)


def calls_of(draw: Callable[[Tensor, int], Tensor]) -> dict[str, Call]:
    """Two kinds of call: mean and std alone, and with percentiles of an observation, from draws with noise.

    Args:
        draw: Function values ``[S, B, 1]`` of rows ``[B, D]`` under S draws.
    """

    @torch.no_grad()
    def call(rows: Floats, samples: int, *, percentiles: bool = False) -> Mapping[str, NDArray[Any]]:
        draws = draw(torch.from_numpy(rows), samples)[..., 0]
        found = {"mean": draws.mean(dim=0).numpy(), "epistemic_std": draws.std(dim=0, correction=0).numpy()}
        if percentiles:
            found["percentiles"] = percentiles_of((draws + NOISE * torch.randn_like(draws)).numpy())
        return found

    return {"call": call, "percentiles": lambda rows, samples: call(rows, samples, percentiles=True)}


if __name__ == "__main__":
    LIBRARY = sys.argv[2]
    own = (posteriors_steps, posteriors_calls) if LIBRARY == "posteriors" else (steps, calls)
    drive(step=step_session(own[0]), engine=engine_session(own[1]))
