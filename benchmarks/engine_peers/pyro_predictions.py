"""Pyro: `Predictive` with an ``AutoDiagonalNormal`` guide and the site ``_RETURN``, as in its tutorial on regression.

``parallel=True`` is said to be faster. It takes a model whose products know of a dimension of draws: `PyroModule` of
`torch.nn.Linear` does not, so they are written out.
"""
# mypy: disable-error-code="import-not-found,import-untyped,misc,no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING

import pyro
import torch
from pyro import distributions
from pyro.infer import Predictive
from pyro.infer.autoguide import AutoDiagonalNormal
from torch import Tensor
from torch.nn import functional

from benchmarks.peers.engine_task import INPUTS, NOISE, drive
from benchmarks.peers.engine_torch_parts import begin, calls_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from benchmarks.peers.engine_task import Call, EngineTask


def prepare(task: EngineTask) -> dict[str, Call]:
    """Sets it up."""
    begin(task)
    pyro.clear_param_store()

    def model(rows: Tensor, targets: Tensor | None = None) -> Tensor:
        hidden = rows
        for number, (inputs, outputs) in enumerate(task.sizes):
            if number:
                hidden = functional.silu(hidden)
            prior = distributions.Normal(0.0, 1.0)
            weight = pyro.sample(f"w{number}", prior.expand([inputs, outputs]).to_event(2))
            bias = pyro.sample(f"b{number}", prior.expand([outputs]).to_event(1))
            hidden = hidden @ weight + bias.unsqueeze(-2)
        mean = hidden[..., 0]
        with pyro.plate("data", rows.shape[0]):
            pyro.sample("target", distributions.Normal(mean, NOISE), obs=targets)
        return mean

    guide = AutoDiagonalNormal(model)
    guide(torch.zeros(1, INPUTS), torch.zeros(1))  # sets it up: with targets, which are no latent site
    means: dict[str, NDArray[np.float32]] = {}
    sigmas: dict[str, NDArray[np.float32]] = {}
    for number, given in enumerate(task.posterior()):
        means |= {f"w{number}": given.weight_mu, f"b{number}": given.bias_mu}
        sigmas |= {f"w{number}": given.weight_sigma, f"b{number}": given.bias_sigma}
    sites = [name for name, _ in guide.prototype_trace.iter_stochastic_nodes()]
    guide.loc.data = torch.cat([torch.from_numpy(means[name]).flatten() for name in sites])
    guide.scale = torch.cat([torch.from_numpy(sigmas[name]).flatten() for name in sites])
    parallel = task.variant == "parallel"

    def draw(rows: Tensor, samples: int) -> Tensor:
        predictive = Predictive(
            model, guide=guide, num_samples=samples, return_sites=("_RETURN",), parallel=parallel
        )
        drawn: Tensor = predictive(rows)["_RETURN"]
        return drawn

    return calls_of(draw)


if __name__ == "__main__":
    drive(prepare)
