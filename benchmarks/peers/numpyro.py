"""NumPyro: `Predictive` under ``jax.jit``, as in its examples, with an ``AutoNormal`` guide.

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
from numpyro import distributions
from numpyro.infer import SVI, Predictive, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal
from numpyro.infer.initialization import init_to_value

from benchmarks.peers.exchange import drive
from benchmarks.peers.networks import (
    NOISE,
    PRIOR_SIGMA,
    EngineTask,
    engine_session,
    percentiles_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from benchmarks.peers.networks import Call


def sampled(task: EngineTask) -> dict[str, Any]:
    """Samples the sites of a model: weights ``w0``, ``w1``, … and biases ``b0``, ``b1``, …."""
    weights = {}
    for number, (inputs, outputs) in enumerate(task.sizes):
        for name, shape in ((f"w{number}", (inputs, outputs)), (f"b{number}", (outputs,))):
            prior = distributions.Normal(0.0, PRIOR_SIGMA).expand(shape).to_event(len(shape))
            weights[name] = numpyro.sample(name, prior)
    return weights


def network(task: EngineTask, weights: Mapping[str, Any], rows: Any) -> Any:
    """Function values ``[B]``."""
    for number in range(len(task.sizes)):
        if number:
            rows = jax.nn.silu(rows)
        rows = rows @ weights[f"w{number}"] + weights[f"b{number}"]
    return rows[:, 0]


def calls(task: EngineTask) -> dict[str, Call]:
    """The kinds of call."""

    def model(rows: Any, targets: Any = None) -> None:
        mean = numpyro.deterministic("mean", network(task, sampled(task), rows))
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
    svi = SVI(model, guide, numpyro.optim.Adam(1e-2), Trace_ELBO())
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

    def call(rows: NDArray[np.float32], samples: int) -> Mapping[str, NDArray[Any]]:
        mean, std = compiled(samples, observations=False)(new_key(), jnp.asarray(rows))
        return {"mean": np.asarray(mean), "epistemic_std": np.asarray(std)}

    def percentiles(rows: NDArray[np.float32], samples: int) -> Mapping[str, NDArray[Any]]:
        mean, std, targets = compiled(samples, observations=True)(new_key(), jnp.asarray(rows))
        moments = {"mean": np.asarray(mean), "epistemic_std": np.asarray(std)}
        return {**moments, "percentiles": percentiles_of(np.asarray(targets))}

    return {"call": call, "percentiles": percentiles}


if __name__ == "__main__":
    drive(engine=engine_session(calls))
