"""TensorFlow Probability: ``DenseReparameterization`` layers, one call per draw, as in its documentation.

Steps and calls are ``tf.function``s. For steps that is TensorFlow's own way to train in a loop: Keras's ``fit`` adds to
its time, and ``train_on_batch`` takes ten times as long. A call without ``tf.function`` takes some fifty times as long.
Biases are variational too, unlike the default.
"""
# mypy: disable-error-code="import-not-found,import-untyped,misc,no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf
import tensorflow_probability as tfp
import tf_keras

from benchmarks.peers.engine_task import EngineTask, engine_session, inverse_softplus, percentiles_of
from benchmarks.peers.exchange import drive
from benchmarks.peers.network_task import NOISE, NetworkTask
from benchmarks.peers.step_task import LEARNING_RATE, Steps, StepTask, step_session

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from benchmarks.peers.engine_task import Call


def model_of(task: NetworkTask, activation: str, **options: Any) -> Any:
    """The network, with options for its layers."""
    tf.config.threading.set_intra_op_parallelism_threads(task.threads)
    tf.config.threading.set_inter_op_parallelism_threads(task.threads)
    tf.random.set_seed(task.seed)
    last = len(task.sizes) - 1
    model = tf_keras.Sequential(
        [
            tfp.layers.DenseReparameterization(
                outputs,
                activation=activation if number < last else None,
                bias_posterior_fn=tfp.layers.default_mean_field_normal_fn(),
                bias_prior_fn=tfp.layers.default_multivariate_normal_fn,
                **options,
            )
            for number, (_, outputs) in enumerate(task.sizes)
        ]
    )
    model.build((None, task.inputs))
    return model


def steps(task: StepTask) -> Steps:
    """The optimiser steps; the KL is among the model's losses."""

    def divergence(posterior: Any, prior: Any, _: Any) -> Any:
        return tfp.distributions.kl_divergence(posterior, prior) / task.rows

    model = model_of(task, "relu", kernel_divergence_fn=divergence, bias_divergence_fn=divergence)
    minibatches = [(tf.constant(rows), tf.constant(targets)) for rows, targets in task.minibatches()]
    optimiser = tf_keras.optimizers.Adam(LEARNING_RATE)

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow is not installed here
    def step(rows: Any, targets: Any) -> Any:
        with tf.GradientTape() as tape:
            error = tf.reduce_mean(tf.square(model(rows, training=True)[:, 0] - targets))
            # Negative ELBO in nats per row, up to a constant.
            loss = error / (2.0 * NOISE**2) + tf.add_n(model.losses)
        variables = model.trainable_variables
        optimiser.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    def draw(rows: NDArray[np.float32]) -> NDArray[np.float32]:
        drawn: NDArray[np.float32] = model(tf.constant(rows)).numpy()
        return drawn

    loss: Any = None

    def one(number: int) -> None:
        nonlocal loss
        loss = step(*minibatches[number])

    return Steps(len(minibatches), one, draw, lambda: loss.numpy())


def calls(task: EngineTask) -> dict[str, Call]:
    """The kinds of call."""
    model = model_of(task, "silu")
    for layer, given in zip(model.layers, task.posterior(), strict=True):
        values = {
            "kernel_posterior_loc": given.weight_mu,
            "kernel_posterior_untransformed_scale": inverse_softplus(given.weight_sigma),
            "bias_posterior_loc": given.bias_mu,
            "bias_posterior_untransformed_scale": inverse_softplus(given.bias_sigma),
        }
        for variable in layer.trainable_variables:
            variable.assign(values.pop(variable.name.rpartition("/")[2].partition(":")[0]))
        if values:
            raise AssertionError(f"these found no variable: {', '.join(values)}")

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow is not installed here
    def one(rows: Any) -> Any:
        return model(rows)

    def draw(rows: NDArray[np.float32], samples: int) -> Any:
        inputs = tf.constant(rows)
        return tf.stack([one(inputs) for _ in range(samples)])[..., 0]

    def moments(draws: Any) -> dict[str, NDArray[Any]]:
        return {
            "mean": tf.reduce_mean(draws, axis=0).numpy(),
            "epistemic_std": tf.math.reduce_std(draws, axis=0).numpy(),
        }

    def call(rows: NDArray[np.float32], samples: int) -> Mapping[str, NDArray[Any]]:
        return moments(draw(rows, samples))

    def percentiles(rows: NDArray[np.float32], samples: int) -> Mapping[str, NDArray[Any]]:
        draws = draw(rows, samples)
        observations = draws + NOISE * tf.random.normal(draws.shape)
        return {**moments(draws), "percentiles": percentiles_of(observations.numpy())}

    return {"call": call, "percentiles": percentiles}


if __name__ == "__main__":
    drive(step=step_session(steps), engine=engine_session(calls))
