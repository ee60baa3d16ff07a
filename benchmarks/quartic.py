"""Six points of a quartic: a wide prior, little noise, and predictions far beyond the data.

``python -m benchmarks.quartic`` fits ``y = -x^4 + 3 x^2 + 1`` at -2, -1.8, -1, 1, 1.8 and 2, with known noise of
standard deviation 0.1. The network is 1-32-1 sigmoid under the prior N(0, sd 10); it answers for [-5, 5]. Everything is
in raw units and the free energy is exact, at temperature 1.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.regression import System
from benchmarks.report import command
from murho.model.bbb.fit import FitOptions
from murho.model.bbb.priors import GaussianPrior

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["function", "main", "system"]

NOISE = 0.1


def function(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """``-x^4 + 3 x^2 + 1``."""
    return -(x**4) + 3.0 * x**2 + 1.0


def system(seed: int) -> System:
    """The system; its targets are exact function values, the seed is for the fit and the draws."""
    inputs = np.array([-2.0, -1.8, -1.0, 1.0, 1.8, 2.0])
    return System(
        name="quartic",
        title="Quartic: six points, and a long way beyond them",
        function=function,
        inputs=inputs,
        targets=function(inputs),
        prior=GaussianPrior(sigma=10.0),
        noise=NOISE,
        hidden=(32,),
        activation="sigmoid",
        options=FitOptions(
            kl_weights="uniform",
            draws_per_step=16,
            learning_rate=0.2,
            batch_size=len(inputs),
            epochs=5000,
            warm_up_steps=2500,
            seed=seed,
            patience=None,
        ),
        samples=100,
        grid=np.linspace(-5.0, 5.0, 401),
        noise_is_visible=False,
        shown_at=(-5.0, -4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    return command(system, "quartic", "Six points of a quartic, and a long way beyond them.", arguments)


if __name__ == "__main__":
    sys.exit(main())
