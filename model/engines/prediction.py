"""The options of a prediction and its answer: plain data, shared with the service and the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from murho.model.engines.answer_fields import LEVELS, THRESHOLDS, AnswerField, Axis, Place, Unit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from murho.model.engines.monte_carlo_error import MonteCarloError

__all__ = [
    "DEFAULT_COVERAGE",
    "DEFAULT_PERCENTILES",
    "DEFAULT_SAMPLES",
    "NUMBER_FIELDS",
    "PredictOptions",
    "Prediction",
    "Question",
]

DEFAULT_SAMPLES = 256
DEFAULT_PERCENTILES = (5.0, 50.0, 95.0)
DEFAULT_COVERAGE = 0.9


@dataclass(frozen=True, slots=True)
class PredictOptions:
    """Options of a prediction.

    Attributes:
        samples: S, the number of draws; 0 requests the mu-only mean.
        percentiles: Levels, strictly between 0 and 100.
        seed: Seed of the draws; None: the checkpoint's default.
        noise: Whether to describe a new observation, or the function alone.
        thresholds: Values of the target; the answer gives the probability of exceeding each.
        draws: Whether to add the function value of every draw.
        calibrated: Whether std, its parts, percentiles and exceedance are to be calibrated, if the checkpoint has a
            calibration and the answer describes a new observation.
        mc_error: Whether to add Monte Carlo standard errors.
        coverage: Coverage of prediction sets, strictly between 0 and 1; for classes alone.
    """

    samples: int = DEFAULT_SAMPLES
    percentiles: tuple[float, ...] = DEFAULT_PERCENTILES
    seed: int | None = None
    noise: bool = True
    thresholds: tuple[float, ...] = ()
    draws: bool = False
    calibrated: bool = True
    mc_error: bool = False
    coverage: float = DEFAULT_COVERAGE


@dataclass(frozen=True, slots=True)
class Question:
    """Consecutive rows of a batch, and what is asked about them.

    Attributes:
        rows: The rows, ``slice(start, stop)``.
        options: Options of the request, already validated.
    """

    rows: slice
    options: PredictOptions


_LEVELS = (Axis.ROWS, Axis.LEVELS)

NUMBER_FIELDS = (
    AnswerField("mean", (Axis.ROWS,), column="mean", without_draws=True),
    AnswerField(
        "std",
        (Axis.ROWS,),
        about="Standard deviation of the distribution that the percentiles describe; its square is epistemic_std² + "
        "aleatoric_std².",
        column="std",
    ),
    AnswerField(
        "epistemic_std",
        (Axis.ROWS,),
        about="Part of std: spread of the function values over draws. Calibration leaves the proportion of both parts "
        "as it is.",
        column="epistemic_std",
    ),
    AnswerField(
        "aleatoric_std", (Axis.ROWS,), about="Part of std: spread of the observation noise.", column="aleatoric_std"
    ),
    AnswerField(
        "percentiles",
        _LEVELS,
        about="Percentiles of the predictive distribution, in the target's unit.",
        column="p{levels}",
        asked=lambda options: bool(options.percentiles) or options.samples == 0,
        detail=LEVELS,
    ),
    AnswerField(
        "exceedance",
        (Axis.ROWS, Axis.THRESHOLDS),
        Unit.PROBABILITY,
        "Probabilities that the target exceeds thresholds.",
        column="exceedance_{thresholds}",
        place=Place.NEXT,
        asked=lambda options: bool(options.thresholds),
        detail=THRESHOLDS,
    ),
    AnswerField(
        "draws",
        (Axis.ROWS, Axis.SAMPLES),
        about="Function value of every draw.",
        column="draws",
        place=Place.LAST,
        asked=lambda options: options.draws,
    ),
    AnswerField(
        "mc_error",
        about="Standard errors for the finite number of draws, in the target's unit.",
        place=Place.NEXT,
        asked=lambda options: options.mc_error,
        parts=(
            AnswerField("mean", (Axis.ROWS,), column="mean_mc_error"),
            AnswerField("std", (Axis.ROWS,), column="std_mc_error"),
            AnswerField(
                "percentiles", _LEVELS, column="p{levels}_mc_error", asked=lambda options: bool(options.percentiles)
            ),
        ),
    ),
)
"""The fields of the answer about a number."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """An answer; every number in the target's own unit, float64.

    Attributes:
        samples: S.
        seed: Seed of the draws.
        calibrated: Whether std, its parts, percentiles and exceedance are calibrated, or all raw.
        mean: ``[B]``.
        std: Standard deviation, ``[B]``: the root of ``epistemic_std^2 + aleatoric_std^2``. None if S is 0, as are the
            next four.
        epistemic_std: Spread of the function values over draws, ``[B]``.
        aleatoric_std: Spread of the observation noise, ``[B]``.
        percentiles: ``[B, K]``.
        exceedance: ``[B, T]`` for T thresholds; None also if there are no thresholds.
        draws: Function values, ``[B, S]``; None unless requested.
        mc_error: Monte Carlo standard errors; None unless requested, and if S is 0.
        outside: Whether each row lies beyond the training rows (`model.encoding.training_range`), ``[B]``; None: not
            known.
        warned: The rows of which `model.encoding.input_warnings` may have something to say, ``[B]``: it lists nothing
            of any other row. These are the rows outside, those with imputed cells, and those with a value that is
            listed although the row is not outside (`model.encoding.input_warnings.listed_rows`). None: not known.
    """

    answer_fields: ClassVar[tuple[AnswerField, ...]] = NUMBER_FIELDS
    classes: ClassVar[tuple[str, ...] | None] = None

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
    warned: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        """B."""
        return len(self.mean)
