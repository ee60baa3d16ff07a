"""The answer of a classifier: plain data, shared with the service and the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from murho.model.engines.answer_fields import COVERAGE, LEVELS, AnswerField, Axis, Place, Unit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["CLASS_FIELDS", "ClassMonteCarloError", "ClassPrediction"]

_CLASSES = (Axis.ROWS, Axis.CLASSES)

CLASS_FIELDS = (
    AnswerField(
        "prediction", (Axis.ROWS,), Unit.CLASS, "The likeliest class.", column="prediction", without_draws=True
    ),
    AnswerField(
        "probabilities",
        _CLASSES,
        Unit.PROBABILITY,
        "Probability of each class, in the order of classes; they sum to 1.",
        column="p_{classes}",
        without_draws=True,
    ),
    AnswerField(
        "epistemic_std",
        _CLASSES,
        Unit.PROBABILITY,
        "Standard deviation of a class's probability over draws.",
        column="epistemic_std_{classes}",
        place=Place.NEXT,
    ),
    AnswerField("entropy", (Axis.ROWS,), Unit.NATS, "Entropy of the probabilities, in nats.", column="entropy"),
    AnswerField(
        "epistemic_entropy",
        (Axis.ROWS,),
        Unit.NATS,
        "Part of the entropy: mutual information of class and weights, in nats.",
        column="epistemic_entropy",
    ),
    AnswerField(
        "percentiles",
        (*_CLASSES, Axis.LEVELS),
        Unit.PROBABILITY,
        "Percentiles of a class's probability over draws.",
        column="p{levels}_{classes}",
        place=Place.NEXT,
        asked=lambda options: bool(options.percentiles) or options.samples == 0,
        detail=LEVELS,
    ),
    AnswerField(
        "prediction_set",
        _CLASSES,
        Unit.CLASS_SET,
        "Classes that hold the true one with the probability coverage; never empty.",
        column="prediction_set",
        detail=COVERAGE,
    ),
    AnswerField(
        "draws",
        (Axis.ROWS, Axis.SAMPLES, Axis.CLASSES),
        Unit.PROBABILITY,
        "Probabilities under every draw.",
        column="draws",
        place=Place.LAST,
        asked=lambda options: options.draws,
    ),
    AnswerField(
        "mc_error",
        about="Standard errors for the finite number of draws.",
        place=Place.NEXT,
        asked=lambda options: options.mc_error,
        parts=(AnswerField("probabilities", _CLASSES, Unit.PROBABILITY, column="mc_error_{classes}"),),
    ),
)
"""The fields of the answer about a class."""


@dataclass(frozen=True, slots=True)
class ClassMonteCarloError:
    """Monte Carlo standard errors of an answer.

    Attributes:
        probabilities: ``[B, C]``.
    """

    probabilities: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ClassPrediction:
    """An answer; float64 unless noted otherwise.

    Attributes:
        samples: S.
        seed: Seed of the draws.
        calibrated: Whether everything in the answer is calibrated, or all raw.
        classes: Names of the C classes, sorted.
        prediction: Index of the likeliest class, ``[B]``, integer.
        probabilities: ``[B, C]``, sums of 1.
        epistemic_std: Standard deviation of a class's probability over draws, ``[B, C]``. None if S is 0, as are all
            the following.
        entropy: Entropy of the probabilities, nats, ``[B]``.
        epistemic_entropy: Mutual information of class and weights, nats, ``[B]``.
        percentiles: Percentiles of a class's probability over draws, ``[B, C, K]``.
        prediction_set: Whether each class is in the row's prediction set, ``[B, C]``, bool.
        draws: Probabilities under each draw, ``[B, S, C]``; None unless requested.
        mc_error: Monte Carlo standard errors; None unless requested.
        outside: Whether each row lies beyond the training rows, ``[B]``; None: not known.
        warned: See `model.engines.prediction.Prediction`.
    """

    answer_fields: ClassVar[tuple[AnswerField, ...]] = CLASS_FIELDS

    samples: int
    seed: int
    calibrated: bool
    classes: tuple[str, ...]
    prediction: NDArray[np.int64]
    probabilities: NDArray[np.float64]
    epistemic_std: NDArray[np.float64] | None = None
    entropy: NDArray[np.float64] | None = None
    epistemic_entropy: NDArray[np.float64] | None = None
    percentiles: NDArray[np.float64] | None = None
    prediction_set: NDArray[np.bool_] | None = None
    draws: NDArray[np.float64] | None = None
    mc_error: ClassMonteCarloError | None = None
    outside: NDArray[np.bool_] | None = None
    warned: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        """B."""
        return len(self.prediction)
