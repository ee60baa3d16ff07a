"""What is asked of a posterior, and its answer: plain data, known to the service and the command line too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from murho.model.engines.monte_carlo_error import MonteCarloError

__all__ = ["DEFAULT_PERCENTILES", "DEFAULT_SAMPLES", "PredictOptions", "Prediction"]

DEFAULT_SAMPLES = 256
DEFAULT_PERCENTILES = (5.0, 50.0, 95.0)


@dataclass(frozen=True, slots=True)
class PredictOptions:
    """What to answer.

    Attributes:
        samples: S, the number of draws; 0 asks for the mu-only mean.
        percentiles: Levels, strictly between 0 and 100.
        seed: Seed of the draws; the checkpoint's own by default.
        noise: Whether to describe a new observation, or the function alone.
        thresholds: Values of the target, for each of which to give the probability of exceeding it.
        draws: Whether to add the function value of every draw.
        calibrated: Whether percentiles and exceedance go through the checkpoint's calibration, if it has one.
        mc_error: Whether to add the standard errors that the answer has for the finite number of draws.
    """

    samples: int = DEFAULT_SAMPLES
    percentiles: tuple[float, ...] = DEFAULT_PERCENTILES
    seed: int | None = None
    noise: bool = True
    thresholds: tuple[float, ...] = ()
    draws: bool = False
    calibrated: bool = True
    mc_error: bool = False


@dataclass(frozen=True, slots=True)
class Prediction:
    """An answer; every number in the target's own unit, float64.

    Attributes:
        samples: S.
        seed: Seed of the draws.
        calibrated: Whether percentiles and exceedance went through the checkpoint's calibration.
        mean: ``[B]``.
        std: Standard deviation of the predictive, ``[B]``; None if S is 0, as are the next four.
        epistemic_std: Spread of the function values over draws, ``[B]``.
        aleatoric_std: Spread of the observation noise, ``[B]``.
        percentiles: ``[B, K]``.
        exceedance: ``[B, T]`` for T thresholds; None also if there are no thresholds.
        draws: Function values, ``[B, S]``; None unless asked for.
        mc_error: Standard errors for the finite number of draws; None unless asked for, and if S is 0.
        outside: Whether each row lies beyond the training rows (see `model.encoding.training_range`), ``[B]``; None:
        not known.
    """

    samples: int
    seed: int
    calibrated: bool
    mean: NDArray[np.float64]
    std: NDArray[np.float64] | None = None
    epistemic_std: NDArray[np.float64] | None = None
    aleatoric_std: NDArray[np.float64] | None = None
    percentiles: NDArray[np.float64] | None = None
    exceedance: NDArray[np.float64] | None = None
    draws: NDArray[np.float64] | None = None
    mc_error: MonteCarloError | None = None
    outside: NDArray[np.bool_] | None = None
