"""NumPyro: ``SVI.update`` and `Predictive` under ``jax.jit``, as in its examples, with an ``AutoNormal`` guide.

``TraceMeanField_ELBO``, whose KL is closed-form, is as fast as ``AutoDiagonalNormal`` with ``Trace_ELBO``, or faster.
NumPyro needs XLA, a compiler, at run time. Answers are compiled again for every B and S; only first calls include that.
"""
# mypy: disable-error-code="import-not-found,import-untyped,misc,no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import numpyro
from jax import numpy as jnp
from numpyro import distributions, handlers
from numpyro.infer import SVI, Predictive, Trace_ELBO, TraceMeanField_ELBO
from numpyro.infer.autoguide import AutoNormal
from numpyro.infer.initialization import init_to_value

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
    percentiles_of,
    step_session,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from benchmarks.peers.networks import Call
    from murho.model.arrays import Floats


INITIAL_SIGMA = 0.02


def sampled(task: NetworkTask) -> dict[str, Any]:
    """Sample the sites of a model: weights ``w0``, ``w1``, … and biases ``b0``, ``b1``, …."""
    weights = {}
    for number, (inputs, outputs) in enumerate(task.sizes):
        for name, shape in ((f"w{number}", (inputs, outputs)), (f"b{number}", (outputs,))):
            prior = distributions.Normal(0.0, PRIOR_SIGMA).expand(shape).to_event(len(shape))
            weights[name] = numpyro.sample(name, prior)
    return weights


def network(task: NetworkTask, weights: Mapping[str, Any], rows: Any, activation: Callable[[Any], Any]) -> Any:
    """Return function values ``[B]``."""
    for number in range(len(task.sizes)):
        if number:
            rows = activation(rows)
        rows = rows @ weights[f"w{number}"] + weights[f"b{number}"]
    return rows[:, 0]


def steps(task: StepTask) -> Steps:
    """Return the optimiser steps."""

    def model(rows: Any, targets: Any) -> None:
        weights = sampled(task)
        with handlers.scale(scale=task.rows / task.batch), numpyro.plate("data", task.batch):
            mean = network(task, weights, rows, jax.nn.relu)
            numpyro.sample("target", distributions.Normal(mean, NOISE), obs=targets)

    generator = np.random.default_rng(task.seed)
    start = {}
    for number, (inputs, outputs) in enumerate(task.sizes):
        start[f"w{number}"] = jnp.asarray(generator.normal(size=(inputs, outputs)) / inputs**0.5, jnp.float32)
        start[f"b{number}"] = jnp.zeros(outputs)
    minibatches = [(jnp.asarray(rows), jnp.asarray(targets)) for rows, targets in task.minibatches()]
    guide = AutoNormal(model, init_loc_fn=init_to_value(values=start), init_scale=INITIAL_SIGMA)
    svi = SVI(model, guide, numpyro.optim.Adam(LEARNING_RATE), TraceMeanField_ELBO())
    update = jax.jit(svi.update)
    state = svi.init(jax.random.PRNGKey(task.seed), *minibatches[0])
    key = jax.random.PRNGKey(task.seed + 1)

    def step(number: int) -> None:
        nonlocal state
        state, _ = update(state, *minibatches[number])

    def draw(rows: Floats) -> Floats:
        nonlocal key
        key, this = jax.random.split(key)
        weights = guide.sample_posterior(this, svi.get_params(state))
        return np.asarray(network(task, weights, jnp.asarray(rows), jax.nn.relu))

    return Steps(len(minibatches), step, draw, lambda: jax.block_until_ready(state))


def calls(task: EngineTask) -> dict[str, Call]:
    """Return the kinds of call."""

    def model(rows: Any, targets: Any = None) -> None:
        mean = numpyro.deterministic("mean", network(task, sampled(task), rows, jax.nn.silu))
        with numpyro.plate("data", len(rows)):
            numpyro.sample("target", distributions.Normal(mean, NOISE), obs=targets)

    values, parameters = {}, {}
    for number, given in enumerate(task.posterior()):
        for name, mu, sigma in (
            (f"w{number}", given.weight_mu, given.weight_sigma),
            (f"b{number}", given.bias_mu, given.bias_sigma),
        ):
            values[name] = parameters[f"{name}_auto_loc"] = jnp.asarray(mu)
            parameters[f"{name}_auto_scale"] = jnp.asarray(sigma)
    guide = AutoNormal(model, init_loc_fn=init_to_value(values=values))
    svi = SVI(model, guide, numpyro.optim.Adam(LEARNING_RATE), Trace_ELBO())
    svi.init(jax.random.PRNGKey(task.seed), jnp.zeros((1, task.inputs)), jnp.zeros(1))
    key = jax.random.PRNGKey(task.seed + 1)

    def new_key() -> Any:
        nonlocal key
        key, this = jax.random.split(key)
        return this

    @cache
    def compiled(samples: int, *, observations: bool) -> Any:
        predictive = Predictive(
            model,
            guide=guide,
            params=parameters,
            num_samples=samples,
            return_sites=["mean", "target"],
        )

        def predict(this: Any, rows: Any) -> Any:
            drawn = predictive(this, rows)
            moments = drawn["mean"].mean(axis=0), drawn["mean"].std(axis=0)
            return (*moments, drawn["target"]) if observations else moments

        return jax.jit(predict)

    def call(rows: Floats, samples: int) -> Mapping[str, NDArray[Any]]:
        mean, std = compiled(samples, observations=False)(new_key(), jnp.asarray(rows))
        return {"mean": np.asarray(mean), "epistemic_std": np.asarray(std)}

    def percentiles(rows: Floats, samples: int) -> Mapping[str, NDArray[Any]]:
        mean, std, targets = compiled(samples, observations=True)(new_key(), jnp.asarray(rows))
        moments = {"mean": np.asarray(mean), "epistemic_std": np.asarray(std)}
        return {**moments, "percentiles": percentiles_of(np.asarray(targets))}

    return {"call": call, "percentiles": percentiles}


if __name__ == "__main__":
    drive(step=step_session(steps), engine=engine_session(calls))
