"""The options of a prediction, its answer and the fields of an answer: plain data, shared by all that ask and answer.

Each kind of prediction has a table of its fields: what each array is called, its axes, its unit, and when it is asked
for. Whatever writes answers (JSON, tables, `/openapi.json`, the command line) or checks them goes over that table, and
does not know whether the target is a number or a class.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, fields
from enum import IntEnum, StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, cast

from typing_extensions import TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from murho.model.arrays import Array, Bools, Doubles, Ints, Places
    from murho.model.calibration.conformal import ConformalMap


class Axis(StrEnum):
    """What an axis of an array counts."""

    ROWS = "rows"
    CLASSES = "classes"
    LEVELS = "levels"
    THRESHOLDS = "thresholds"
    SAMPLES = "samples"


class Unit(StrEnum):
    """What the values of an array are."""

    TARGET = "target"
    """Numbers in the target's unit."""
    PROBABILITY = "probability"
    NATS = "nats"
    CLASS = "class"
    """Indices of classes, whole numbers."""
    CLASS_SET = "set of classes"
    """Whether each class, the last axis, is in a set; truth values."""
    TRUTH = "truth value"


NUMBER_UNITS = frozenset({Unit.TARGET, Unit.PROBABILITY, Unit.NATS})


class Place(IntEnum):
    """Where the columns of a field stand in a table."""

    FIRST = 0
    """Among the columns that `murho predict` writes."""
    NEXT = 1
    LAST = 2
    """A list in each row."""


@dataclass(frozen=True, slots=True)
class Detail:
    """What the answer says with a field: the percentile levels, for example.

    Attributes:
        name: Its key in the answer.
        option: The field of `PredictOptions` that has it.
        listed: Whether it is a list of numbers, or one number.
        whole: Whether whole numbers are written without a fraction.
    """

    name: str
    option: str
    listed: bool = True
    whole: bool = False


LEVELS = Detail("levels", "percentiles", whole=True)
THRESHOLDS = Detail("thresholds", "thresholds")
COVERAGE = Detail("coverage", "coverage", listed=False)


@dataclass(frozen=True, slots=True, eq=False)
class AnswerField:
    """One array of an answer, or a few that belong together. It is equal to itself alone.

    Attributes:
        name: Its attribute in the prediction, and its key in the JSON answer.
        axes: What its axes count; the first are the rows. Empty for a field of parts.
        unit: What its values are.
        about: What it is, for people.
        column: Name of its columns in a table: a pattern with the axes that each column has one entry of, such as
            ``p{levels}``; empty: its name.
        place: Where its columns stand.
        option: The field of `PredictOptions` that asks for it; empty: every answer has it, if only as null.
        without_draws: Whether it is known without draws; if not it is null with ``samples=0``.
        detail: What the answer says with it; the values are then under ``values``.
        parts: The fields of an object within the prediction, such as Monte Carlo errors.
    """

    name: str
    axes: tuple[Axis, ...] = ()
    unit: Unit = Unit.TARGET
    about: str = ""
    column: str = ""
    place: Place = Place.FIRST
    option: str = ""
    without_draws: bool = False
    detail: Detail | None = None
    parts: tuple[AnswerField, ...] = ()
    numeric: bool = field(init=False)
    """Whether its values are numbers. Every answer asks that, and an enumeration is slow to look up."""

    def __post_init__(self) -> None:
        """Note whether the values are numbers."""
        object.__setattr__(self, "numeric", self.unit in NUMBER_UNITS)

    def is_in(self, options: PredictOptions) -> bool:
        """Whether the answer to some options has it."""
        return not self.option or bool(getattr(options, self.option))


def arrays_of(prediction: AnyPrediction) -> list[Array]:
    """Return the arrays of a prediction's fields, and its grid."""
    arrays: list[Array] = []
    for each in prediction.answer_fields:
        value = getattr(prediction, each.name)
        if value is not None:
            arrays += [getattr(value, part.name) for part in each.parts] if each.parts else [value]
    return arrays if prediction.grid is None else [*arrays, prediction.grid]


EXTRAPOLATION = AnswerField(
    "extrapolation",
    (Axis.ROWS,),
    Unit.TRUTH,
    "Whether the row is unlike the training rows, so that no held-out row speaks for its calibration.",
    without_draws=True,
)
"""Of every answer; it has no column in a table."""
DEFAULT_SAMPLES = 256
DEFAULT_PERCENTILES = (5.0, 50.0, 95.0)
DEFAULT_COVERAGE = 0.9


@dataclass(frozen=True, slots=True, eq=False)
class AdaptedBands:
    """What outcomes have taught about a model's bands; one object a state, told apart by identity.

    Attributes:
        drift_map: The map of outcomes (`model.calibration.adaptation`), before the checkpoint's calibration.
        outcomes: Number of outcomes behind it.
        state: Name of the state.
    """

    drift_map: ConformalMap
    outcomes: int
    state: str


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
        noise_moments: Whether to add what totals are made of: `functions` and, of a number, the moments of the noise;
            with draws.
        adapted: How outcomes move calibrated answers of numbers; None: the checkpoint's calibration holds.
        why: Whether to say what the known cells of each row add to its answer (`model.evaluation.why`).
        worth_asking: Whether to say which missing cells are worth asking for (`model.evaluation.why`).
        grid: Levels of the answer's `grid`, by which outcomes will be scored; of numbers, with draws and noise.
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
    noise_moments: bool = False
    adapted: AdaptedBands | None = None
    why: bool = False
    worth_asking: bool = False
    grid: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """Consecutive rows of a batch, and what is asked about them.

    Attributes:
        rows: The rows, ``slice(start, stop)``.
        options: Options of the request, already validated.
        max_warnings: The most values unlike the training rows to tell with the answer.
    """

    rows: slice
    options: PredictOptions
    max_warnings: int = 0


_LEVELS = (Axis.ROWS, Axis.LEVELS)

NUMBER_FIELDS = (
    AnswerField("mean", (Axis.ROWS,), without_draws=True),
    AnswerField(
        "std",
        (Axis.ROWS,),
        about="Standard deviation of the distribution that the percentiles describe; its square is epistemic_std² + "
        "aleatoric_std².",
    ),
    AnswerField(
        "epistemic_std",
        (Axis.ROWS,),
        about="Part of std: spread of the function values over draws. Calibration leaves the proportion of both parts "
        "as it is.",
    ),
    AnswerField("aleatoric_std", (Axis.ROWS,), about="Part of std: spread of the observation noise."),
    AnswerField(
        "percentiles",
        _LEVELS,
        about="Percentiles of the predictive distribution, in the target's unit.",
        column="p{levels}",
        option="percentiles",
        detail=LEVELS,
    ),
    AnswerField(
        "exceedance",
        (Axis.ROWS, Axis.THRESHOLDS),
        Unit.PROBABILITY,
        "Probabilities that the target exceeds thresholds.",
        column="exceedance_{thresholds}",
        place=Place.NEXT,
        option="thresholds",
        detail=THRESHOLDS,
    ),
    AnswerField(
        "draws",
        (Axis.ROWS, Axis.SAMPLES),
        about="Function value of every draw.",
        place=Place.LAST,
        option="draws",
    ),
    AnswerField(
        "mc_error",
        about="Standard errors for the finite number of draws, in the target's unit.",
        place=Place.NEXT,
        option="mc_error",
        parts=(
            AnswerField("mean", (Axis.ROWS,), column="mean_mc_error"),
            AnswerField("std", (Axis.ROWS,), column="std_mc_error"),
            AnswerField("percentiles", _LEVELS, column="p{levels}_mc_error", option="percentiles"),
        ),
    ),
)
"""The fields of the answer about a number."""


@dataclass(frozen=True, slots=True)
class MonteCarloError:
    """Monte Carlo standard errors of an answer about a number, in the target's own unit, or about a class; float64.

    Attributes:
        mean: Of the mean, ``[B]``; None for classes, as are the next two.
        std: Of std, ``[B]``.
        percentiles: Of the percentiles, ``[B, K]``.
        probabilities: Of the probabilities, ``[B, C]``; None for numbers.
    """

    mean: Doubles | None = None
    std: Doubles | None = None
    percentiles: Doubles | None = None
    probabilities: Doubles | None = None


@dataclass(frozen=True, slots=True)
class Predicted:
    """What answers about numbers and about classes have alike.

    Attributes:
        samples: S.
        seed: Seed of the draws.
        calibrated: Whether all that describes the distribution is calibrated, or all raw.
        extrapolation: Whether each row is unlike the training rows, or has a value far outside its training range,
            ``[B]``.
        percentiles: ``[B, K]``, or of a class's probability over draws ``[B, C, K]``; None if S is 0.
        draws: Function values, ``[B, S]``, or probabilities under each draw, ``[B, S, C]``; None unless requested.
        functions: As draws, but averaged over what missing cells may be; None unless ``noise_moments`` are requested.
        mc_error: Monte Carlo standard errors; None unless requested, and for fewer than two draws.
        outlier: Whether each row is unlike the training rows (`model.encoding.encoder.Encoded`), ``[B]``; None: not
            known.
        has_warnings: Whether there is something to tell of each row, ``[B]``, likewise.
        grid: Percentiles at the levels of `PredictOptions.grid`, ``[B, G]``, besides all that was asked for.
    """

    samples: int
    seed: int
    calibrated: bool
    _: KW_ONLY
    extrapolation: Bools
    percentiles: Doubles | None = None
    draws: Doubles | None = None
    functions: Doubles | None = None
    mc_error: MonteCarloError | None = None
    outlier: Bools | None = None
    has_warnings: Bools | None = None
    grid: Doubles | None = None


@dataclass(frozen=True, slots=True)
class Prediction(Predicted):
    """An answer; every number in the target's own unit, float64.

    Attributes:
        mean: ``[B]``.
        std: Standard deviation, ``[B]``: the root of ``epistemic_std^2 + aleatoric_std^2``. None if S is 0, as are the
            next three.
        epistemic_std: Spread of the function values over draws, ``[B]``.
        aleatoric_std: Spread of the observation noise, ``[B]``.
        exceedance: ``[B, T]`` for T thresholds; None also if there are no thresholds.
        variances: Raw variance of the noise under each draw, without the wide component, ``[B, S]``; None unless
            requested.
        third: Mean over draws of the third central moment of this noise, ``[B]``; None unless requested.
    """

    answer_fields: ClassVar[tuple[AnswerField, ...]] = NUMBER_FIELDS
    classes: ClassVar[tuple[str, ...] | None] = None

    mean: Doubles
    std: Doubles | None = None
    epistemic_std: Doubles | None = None
    aleatoric_std: Doubles | None = None
    exceedance: Doubles | None = None
    variances: Doubles | None = None
    third: Doubles | None = None

    def __len__(self) -> int:
        """B."""
        return len(self.mean)


_CLASSES = (Axis.ROWS, Axis.CLASSES)

CLASS_FIELDS = (
    AnswerField("prediction", (Axis.ROWS,), Unit.CLASS, "The likeliest class.", without_draws=True),
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
    AnswerField("entropy", (Axis.ROWS,), Unit.NATS, "Entropy of the probabilities, in nats."),
    AnswerField(
        "epistemic_entropy",
        (Axis.ROWS,),
        Unit.NATS,
        "Part of the entropy: mutual information of class and weights, in nats.",
    ),
    AnswerField(
        "percentiles",
        (*_CLASSES, Axis.LEVELS),
        Unit.PROBABILITY,
        "Percentiles of a class's probability over draws.",
        column="p{levels}_{classes}",
        place=Place.NEXT,
        option="percentiles",
        detail=LEVELS,
    ),
    AnswerField(
        "prediction_set",
        _CLASSES,
        Unit.CLASS_SET,
        "Classes that contain the true one with the probability coverage; never empty.",
        detail=COVERAGE,
    ),
    AnswerField(
        "draws",
        (Axis.ROWS, Axis.SAMPLES, Axis.CLASSES),
        Unit.PROBABILITY,
        "Probabilities under every draw.",
        place=Place.LAST,
        option="draws",
    ),
    AnswerField(
        "mc_error",
        about="Standard errors for the finite number of draws.",
        place=Place.NEXT,
        option="mc_error",
        parts=(AnswerField("probabilities", _CLASSES, Unit.PROBABILITY, column="mc_error_{classes}"),),
    ),
)
"""The fields of the answer about a class."""


@dataclass(frozen=True, slots=True)
class ClassPrediction(Predicted):
    """An answer; float64 unless noted otherwise.

    Attributes:
        classes: Names of the C classes, sorted.
        prediction: Index of the likeliest class, ``[B]``, integer.
        probabilities: ``[B, C]``, sums of 1.
        epistemic_std: Standard deviation of a class's probability over draws, ``[B, C]``. None if S is 0, as are all
            the following.
        entropy: Entropy of the probabilities, nats, ``[B]``.
        epistemic_entropy: Mutual information of class and weights, nats, ``[B]``.
        prediction_set: Whether each class is in the row's prediction set, ``[B, C]``, bool.
    """

    answer_fields: ClassVar[tuple[AnswerField, ...]] = CLASS_FIELDS

    classes: tuple[str, ...]
    prediction: Ints
    probabilities: Doubles
    epistemic_std: Doubles | None = None
    entropy: Doubles | None = None
    epistemic_entropy: Doubles | None = None
    prediction_set: Bools | None = None

    def __len__(self) -> int:
        """B."""
        return len(self.prediction)


AnyPrediction: TypeAlias = Prediction | ClassPrediction
PredictionT = TypeVar("PredictionT", bound=AnyPrediction, default=Any)
"""What a posterior answers: about numbers or about classes, where that is known."""


def in_one(parts: Sequence[PredictionT], numbers: Places | None = None) -> PredictionT:
    """Join the predictions of groups of rows.

    Args:
        parts: Predictions of some rows each.
        numbers: Numbers of their rows, by which the result is sorted; None: one part's rows after the other's.
    """
    if len(parts) == 1:
        return parts[0]
    import numpy as np  # here: the command line tells its options without it

    from murho.model.arrays import with_arrays

    order = slice(None) if numbers is None else numbers.argsort()
    return with_arrays(lambda arrays: np.concatenate(arrays)[order], parts)


def rows_of(prediction: PredictionT, rows: slice | Places) -> PredictionT:
    """Return some rows of a prediction; as views, if they are a slice."""
    facts, arrays = disassemble(prediction)
    return cast("PredictionT", assemble(facts, {name: array[rows] for name, array in arrays.items()}))


def disassemble(prediction: AnyPrediction) -> tuple[tuple[int, int, bool, tuple[str, ...] | None], dict[str, Array]]:
    """Return a prediction as its samples, seed, whether it is calibrated, its classes; and its arrays by name."""
    facts = prediction.samples, prediction.seed, prediction.calibrated, prediction.classes
    arrays = {}
    for name in _ARRAYS[type(prediction)]:
        if (value := getattr(prediction, name)) is not None:
            arrays[name] = value
    if prediction.mc_error is not None:
        for name in MonteCarloError.__slots__:
            if (value := getattr(prediction.mc_error, name)) is not None:
                arrays[f"{_OF_ERROR}{name}"] = value
    return facts, arrays


def assemble(facts: tuple[int, int, bool, tuple[str, ...] | None], arrays: dict[str, Array]) -> AnyPrediction:
    """Return the prediction that `disassemble` took apart."""
    samples, seed, calibrated, classes = facts
    if errors := [name for name in arrays if name.startswith(_OF_ERROR)]:
        error = MonteCarloError(**{name.removeprefix(_OF_ERROR): arrays[name] for name in errors})
        rest: dict[str, Any] = {name: array for name, array in arrays.items() if name not in errors}
        rest["mc_error"] = error
    else:
        rest = arrays
    if classes is None:
        return Prediction(samples, seed, calibrated, **rest)
    return ClassPrediction(samples, seed, calibrated, classes=classes, **rest)


_OF_ERROR = "mc_error."


_NO_ARRAYS = frozenset({"samples", "seed", "calibrated", "classes", "mc_error"})
_ARRAYS = {
    kind: tuple(each.name for each in fields(kind) if each.name not in _NO_ARRAYS)
    for kind in (Prediction, ClassPrediction)
}


@lru_cache(256)  # most requests ask for the same
def level_hint(levels: tuple[float, ...]) -> str | None:
    """Return what to say where all levels are below 1: they are answered as they are, for 0.5 % is a level, too.

    Args:
        levels: Percentile levels, strictly between 0 and 100.

    Returns:
        A sentence for people, or None.
    """
    if not levels or max(levels) >= 1.0:
        return None
    meant = ", ".join(f"{100.0 * level:g}" for level in levels)
    given = ", ".join(f"{level:g}" for level in levels)
    return f"Levels are per cent, and {given} are all below 1 %. If they are meant as shares, ask for {meant}."
