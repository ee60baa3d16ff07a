"""NumPyro: ``SVI.update`` under ``jax.jit``, as its examples with minibatches do.

``AutoNormal`` with ``TraceMeanField_ELBO``, whose KL is closed-form: no slower than ``AutoDiagonalNormal`` with
``Trace_ELBO``. It needs XLA, a compiler, at run time; compiling is not timed.
"""
# mypy: disable-error-code="import-not-found,import-untyped,misc,no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import numpyro
from jax import numpy as jnp
from numpyro import distributions, handlers
from numpyro.infer import SVI, TraceMeanField_ELBO
from numpyro.infer.autoguide import AutoNormal
from numpyro.infer.initialization import init_to_value

from benchmarks.peers.step_task import LEARNING_RATE, NOISE, PRIOR_SIGMA, Steps, StepTask, drive

if TYPE_CHECKING:
    from numpy.typing import NDArray

INITIAL_SIGMA = 0.02


def prepare(task: StepTask) -> Steps:
    """Sets it up."""
    last = len(task.layers) - 1

    def network(weights: dict[str, Any], rows: Any) -> Any:
        for number in range(last + 1):
            rows = rows @ weights[f"w{number}"] + weights[f"b{number}"]
            if number < last:
                rows = jax.nn.relu(rows)
        return rows[:, 0]

    def model(rows: Any, targets: Any) -> None:
        weights = {}
        for number, (inputs, outputs) in enumerate(task.layers):
            for name, shape in ((f"w{number}", (inputs, outputs)), (f"b{number}", (outputs,))):
                prior = distributions.Normal(0.0, PRIOR_SIGMA).expand(shape).to_event(len(shape))
                weights[name] = numpyro.sample(name, prior)
        with handlers.scale(scale=task.rows / task.batch), numpyro.plate("data", task.batch):
            numpyro.sample("target", distributions.Normal(network(weights, rows), NOISE), obs=targets)

    generator = np.random.default_rng(task.seed)
    start = {}
    for number, (inputs, outputs) in enumerate(task.layers):
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

    def draw(rows: NDArray[np.float32]) -> NDArray[np.float32]:
        nonlocal key
        key, this = jax.random.split(key)
        weights = guide.sample_posterior(this, svi.get_params(state))
        return np.asarray(network(weights, jnp.asarray(rows)))

    return Steps(len(minibatches), step, draw, lambda: jax.block_until_ready(state))


if __name__ == "__main__":
    drive(prepare)
