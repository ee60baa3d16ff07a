"""Pyro: ``SVI.step`` of a network turned Bayesian by `PyroSample`, as in its tutorial on modules.

``AutoDiagonalNormal`` with ``Trace_ELBO``, which the tutorials on regression use. ``AutoNormal`` with
``TraceMeanField_ELBO``, whose KL is closed-form, takes half as long again.
"""
# mypy: disable-error-code="import-not-found,import-untyped,misc,no-untyped-call"

from __future__ import annotations

import pyro
import torch
from pyro import distributions, poutine
from pyro.infer import SVI, Trace_ELBO
from pyro.infer.autoguide import AutoDiagonalNormal
from pyro.nn import PyroModule, PyroSample
from torch import Tensor

from benchmarks.peers.step_task import LEARNING_RATE, NOISE, PRIOR_SIGMA, Steps, StepTask, drive
from benchmarks.peers.torch_parts import begin, drawing

INITIAL_SIGMA = 0.02


class Model(PyroModule):
    """Linear layers with Gaussian priors, ReLU between them, known noise."""

    def __init__(self, task: StepTask) -> None:
        super().__init__()
        self.rows = task.rows
        self.layers = PyroModule[torch.nn.ModuleList](
            [PyroModule[torch.nn.Linear](*sizes) for sizes in task.layers]
        )
        for layer in self.layers:
            for name in ("weight", "bias"):
                shape = getattr(layer, name).shape
                prior = distributions.Normal(0.0, PRIOR_SIGMA).expand(shape).to_event(len(shape))
                setattr(layer, name, PyroSample(prior))

    def forward(self, rows: Tensor, targets: Tensor | None = None) -> Tensor:
        """Function values under one draw, ``[B]``; what the targets say of it."""
        hidden = rows
        for layer in self.layers[:-1]:
            hidden = layer(hidden).relu()
        mean = self.layers[-1](hidden).squeeze(-1)
        with pyro.plate("data", self.rows, subsample=rows):
            pyro.sample("target", distributions.Normal(mean, NOISE), obs=targets)
        values: Tensor = mean
        return values


def prepare(task: StepTask) -> Steps:
    """Sets it up."""
    minibatches = [(rows, targets.squeeze(1)) for rows, targets in begin(task)]
    pyro.set_rng_seed(task.seed)
    model = Model(task)
    # Starts at a draw from the initialisation of PyTorch's own layers: at its default, zero, hidden units are alike.
    start = {
        f"layers.{number}.{name}": parameter.detach()
        for number, sizes in enumerate(task.layers)
        for name, parameter in torch.nn.Linear(*sizes).named_parameters()
    }
    guide = AutoDiagonalNormal(
        model, init_loc_fn=pyro.infer.autoguide.init_to_value(values=start), init_scale=INITIAL_SIGMA
    )
    svi = SVI(model, guide, pyro.optim.Adam({"lr": LEARNING_RATE}), Trace_ELBO())

    def values(rows: Tensor) -> Tensor:
        drawn: Tensor = poutine.condition(model, guide())(rows)
        return drawn

    return Steps(len(minibatches), lambda number: svi.step(*minibatches[number]), drawing(values))


if __name__ == "__main__":
    drive(prepare)
