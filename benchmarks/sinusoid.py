"""A noisy sinusoid: the epistemic band must open where there are no data.

``python -m benchmarks.sinusoid`` fits 32 points of ``10 sin(2 pi x)`` on [-0.5, 0.5] with known noise of standard
deviation 1. The network is 1-20-20-1 ReLU under a scale mixture prior; it answers for three times the training range.
Everything is in raw units and the free energy is exact: all rows in one minibatch, the KL summed over the weights,
temperature 1.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.regression import System
from benchmarks.report import command
from murho.model.bbb.fit import FitOptions
from murho.model.bbb.priors import ScaleMixturePrior

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["function", "main", "system"]

NOISE = 1.0


def function(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """``10 sin(2 pi x)``."""
    return 10.0 * np.sin(2.0 * np.pi * x)


def system(seed: int) -> System:
    """The system; the seed determines the noise of the 32 targets, the fit and the draws."""
    inputs = np.linspace(-0.5, 0.5, 32)
    noise = np.random.default_rng(seed).normal(scale=NOISE, size=inputs.shape)
    return System(
        name="sinusoid",
        title="Sinusoid: a band that opens where there are no data",
        function=function,
        inputs=inputs,
        targets=function(inputs) + noise,
        prior=ScaleMixturePrior(pi=0.5, sigma1=1.5, sigma2=0.1),
        noise=NOISE,
        hidden=(20, 20),
        activation="relu",
        options=FitOptions(
            kl_weights="uniform",
            draws_per_step=8,
            learning_rate=0.3,
            batch_size=len(inputs),
            epochs=5000,
            warm_up_steps=2500,
            seed=seed,
            patience=None,
        ),
        samples=500,
        grid=np.linspace(-1.5, 1.5, 301),
        shown_at=(-1.5, -1.0, -0.5, -0.25, 0.0, 0.25, 0.5, 1.0, 1.5),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    return command(system, "sinusoid", "A noisy sinusoid: does the band open outside of the data?", arguments)


if __name__ == "__main__":
    sys.exit(main())
