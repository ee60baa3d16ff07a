"""TensorFlow Probability: ``DenseReparameterization`` layers, the KL among the model's losses, as in its documentation.

The step is a ``tf.function``, TensorFlow's own way to train in a loop; Keras's ``fit`` adds to it, and its
``train_on_batch`` takes ten times as long. Biases are variational too, which is not their default.
"""
# mypy: disable-error-code="import-not-found,import-untyped,misc,no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf
import tensorflow_probability as tfp
import tf_keras

from benchmarks.peers.step_task import INPUTS, LEARNING_RATE, NOISE, Steps, StepTask, drive

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def prepare(task: StepTask) -> Steps:
    """Sets it up."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.random.set_seed(task.seed)
    minibatches = [(tf.constant(rows), tf.constant(targets)) for rows, targets in task.minibatches()]

    def divergence(posterior: Any, prior: Any, _: Any) -> Any:
        return tfp.distributions.kl_divergence(posterior, prior) / task.rows

    last = len(task.layers) - 1
    model = tf_keras.Sequential(
        [
            tfp.layers.DenseReparameterization(
                outputs,
                activation="relu" if number < last else None,
                kernel_divergence_fn=divergence,
                bias_posterior_fn=tfp.layers.default_mean_field_normal_fn(),
                bias_prior_fn=tfp.layers.default_multivariate_normal_fn,
                bias_divergence_fn=divergence,
            )
            for number, (_, outputs) in enumerate(task.layers)
        ]
    )
    model.build((None, INPUTS))
    optimiser = tf_keras.optimizers.Adam(LEARNING_RATE)

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow is not installed here
    def step(rows: Any, targets: Any) -> Any:
        with tf.GradientTape() as tape:
            error = tf.reduce_mean(tf.square(model(rows, training=True)[:, 0] - targets))
            # In nats per row, up to a constant.
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


if __name__ == "__main__":
    drive(prepare)
