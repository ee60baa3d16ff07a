"""Pyro: ``SVI.step`` of a network made Bayesian by `PyroSample`, and `Predictive`, as in its tutorials.

The guide is ``AutoDiagonalNormal`` with ``Trace_ELBO``, as in the tutorials on regression. ``AutoNormal`` with
``TraceMeanField_ELBO``, whose KL is closed-form, takes 1.5 times as long.

`Predictive` with ``parallel=True`` is documented to be faster. It needs a model whose products have a dimension of
draws. `PyroModule` of `torch.nn.Linear` has none, so the products are written out.
"""
# mypy: disable-error-code="import-not-found,import-untyped,misc,no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING

import pyro
import torch
from pyro import distributions, poutine
from pyro.infer import SVI, Predictive, Trace_ELBO
from pyro.infer.autoguide import AutoDiagonalNormal
from pyro.nn import PyroModule, PyroSample
from torch import Tensor
from torch.nn import functional

from benchmarks.peers.engine_task import EngineTask, engine_session
from benchmarks.peers.exchange import drive
from benchmarks.peers.network_task import NOISE
from benchmarks.peers.step_task import LEARNING_RATE, PRIOR_SIGMA, Steps, StepTask, step_session
from benchmarks.peers.torch_parts import begin, calls_of, drawing, minibatches

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from benchmarks.peers.engine_task import Call

INITIAL_SIGMA = 0.02


class Model(PyroModule):
    """Linear layers with Gaussian priors, ReLU between them, known noise."""

    def __init__(self, task: StepTask) -> None:
        super().__init__()
        self.rows = task.rows
        self.layers = PyroModule[torch.nn.ModuleList]([PyroModule[torch.nn.Linear](*sizes) for sizes in task.sizes])
        for layer in self.layers:
            for name in ("weight", "bias"):
                shape = getattr(layer, name).shape
                prior = distributions.Normal(0.0, PRIOR_SIGMA).expand(shape).to_event(len(shape))
                setattr(layer, name, PyroSample(prior))

    def forward(self, rows: Tensor, targets: Tensor | None = None) -> Tensor:
        """Function values under one draw, ``[B]``; also conditions on the targets, if given."""
        hidden = rows
        for layer in self.layers[:-1]:
            hidden = layer(hidden).relu()
        mean = self.layers[-1](hidden).squeeze(-1)
        with pyro.plate("data", self.rows, subsample=rows):
            pyro.sample("target", distributions.Normal(mean, NOISE), obs=targets)
        values: Tensor = mean
        return values


def steps(task: StepTask) -> Steps:
    """The optimiser steps."""
    begin(task)
    batches = [(rows, targets.squeeze(1)) for rows, targets in minibatches(task)]
    pyro.set_rng_seed(task.seed)
    model = Model(task)
    # Means start at PyTorch's own initialisation of linear layers: at the default, zero, all hidden units are the same.
    start = {
        f"layers.{number}.{name}": parameter.detach()
        for number, sizes in enumerate(task.sizes)
        for name, parameter in torch.nn.Linear(*sizes).named_parameters()
    }
    guide = AutoDiagonalNormal(
        model, init_loc_fn=pyro.infer.autoguide.init_to_value(values=start), init_scale=INITIAL_SIGMA
    )
    svi = SVI(model, guide, pyro.optim.Adam({"lr": LEARNING_RATE}), Trace_ELBO())

    def values(rows: Tensor) -> Tensor:
        drawn: Tensor = poutine.condition(model, guide())(rows)
        return drawn

    return Steps(len(batches), lambda number: svi.step(*batches[number]), drawing(values))


def calls(task: EngineTask) -> dict[str, Call]:
    """The kinds of call, by the site ``_RETURN``."""
    begin(task)
    pyro.clear_param_store()

    def model(rows: Tensor, targets: Tensor | None = None) -> Tensor:
        hidden = rows
        for number, (inputs, outputs) in enumerate(task.sizes):
            if number:
                hidden = functional.silu(hidden)
            prior = distributions.Normal(0.0, PRIOR_SIGMA)
            weight = pyro.sample(f"w{number}", prior.expand([inputs, outputs]).to_event(2))
            bias = pyro.sample(f"b{number}", prior.expand([outputs]).to_event(1))
            hidden = hidden @ weight + bias.unsqueeze(-2)
        mean = hidden[..., 0]
        with pyro.plate("data", rows.shape[0]):
            pyro.sample("target", distributions.Normal(mean, NOISE), obs=targets)
        return mean

    guide = AutoDiagonalNormal(model)
    guide(torch.zeros(1, task.inputs), torch.zeros(1))  # sets the guide up, with targets, so that they are not latent
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
        predictive = Predictive(model, guide=guide, num_samples=samples, return_sites=("_RETURN",), parallel=parallel)
        drawn: Tensor = predictive(rows)["_RETURN"]
        return drawn

    return calls_of(draw)


if __name__ == "__main__":
    drive(step=step_session(steps), engine=engine_session(calls))
