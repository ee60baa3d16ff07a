"""Three libraries of PyTorch, each used as in its README or demos, one draw in each forward pass.

*bayesian-torch* (Intel): ``dnn_to_bnn``. *torchbnn*: a `Sequential` of ``BayesLinear``. *posteriors*: ``vi.diag``, all
draws at once by ``torch.vmap``. The name of the library is on the command line.
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
from bayesian_torch.models.dnn_to_bnn import dnn_to_bnn
from torch import Tensor, nn
from torch.func import functional_call

from benchmarks.peers.exchange import drive
from benchmarks.peers.networks import (
    NOISE,
    PRIOR_SIGMA,
    EngineTask,
    engine_session,
    inverse_softplus,
    percentiles_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from benchmarks.peers.networks import Call

PARAMETERS = {
    "prior_mu": 0.0,
    "prior_sigma": PRIOR_SIGMA,
    "posterior_mu_init": 0.0,
    "posterior_rho_init": -3.0,
    "type": "Reparameterization",
    "moped_enable": False,
    "moped_delta": 0.5,
}


def network(task: EngineTask) -> nn.Sequential:
    """The network with the layers of a library."""
    torch.set_num_threads(task.threads)
    torch.manual_seed(task.seed)
    modules: list[nn.Module] = []
    for inputs, outputs in task.sizes:
        if LIBRARY == "torchbnn":
            layer = torchbnn.BayesLinear(prior_mu=0, prior_sigma=0.1, in_features=inputs, out_features=outputs)
        else:
            layer = nn.Linear(inputs, outputs)
        modules += (layer, nn.SiLU())
    model = nn.Sequential(*modules[:-1])
    if LIBRARY == "bayesian-torch":
        dnn_to_bnn(model, PARAMETERS)
    return model


def calls(task: EngineTask) -> dict[str, Call]:
    """The kinds of call of bayesian-torch and torchbnn, with the task's posterior."""
    model, parts = (
        network(task).eval(),
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


def posteriors_calls(task: EngineTask) -> dict[str, Call]:
    """The kinds of call of posteriors."""
    model, means, log_sigmas = network(task), {}, {}
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
    def call(rows: NDArray[np.float32], samples: int, *, percentiles: bool = False) -> Mapping[str, NDArray[Any]]:
        draws = draw(torch.from_numpy(rows), samples)[..., 0]
        found = {"mean": draws.mean(dim=0).numpy(), "epistemic_std": draws.std(dim=0, correction=0).numpy()}
        if percentiles:
            found["percentiles"] = percentiles_of((draws + NOISE * torch.randn_like(draws)).numpy())
        return found

    return {"call": call, "percentiles": lambda rows, samples: call(rows, samples, percentiles=True)}


if __name__ == "__main__":
    LIBRARY = sys.argv[2]
    drive(engine=engine_session(posteriors_calls if LIBRARY == "posteriors" else calls))
