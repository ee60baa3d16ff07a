"""TensorFlow Probability: ``DenseReparameterization`` layers, one call a draw, as in its documentation.

The call is a ``tf.function``: without it, it takes some fifty times as long. Biases are variational too, which is
not their default.
"""
# mypy: disable-error-code="import-not-found,import-untyped,misc,no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf
import tensorflow_probability as tfp
import tf_keras

from benchmarks.peers.engine_task import INPUTS, NOISE, drive, inverse_softplus, percentiles_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from benchmarks.peers.engine_task import Call, EngineTask


def prepare(task: EngineTask) -> dict[str, Call]:
    """Sets it up."""
    tf.config.threading.set_intra_op_parallelism_threads(task.threads)
    tf.config.threading.set_inter_op_parallelism_threads(task.threads)
    tf.random.set_seed(task.seed)
    last = len(task.sizes) - 1
    model = tf_keras.Sequential(
        [
            tfp.layers.DenseReparameterization(
                outputs,
                activation="silu" if number < last else None,
                bias_posterior_fn=tfp.layers.default_mean_field_normal_fn(),
                bias_prior_fn=tfp.layers.default_multivariate_normal_fn,
            )
            for number, (_, outputs) in enumerate(task.sizes)
        ]
    )
    model.build((None, INPUTS))
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
    drive(prepare)
