"""Regression and classification: the task of a target, and the limits of a number. A new kind of target is a new task.

A `Task` names the observation models of the search, and scores fits.
`model.training.rows` chooses between the tasks.

Limits are as the user gives them, or caps found in the data. A cap shows as a value at the end of the range that is
repeated as no other value near it: a survey that writes 500,000 for everything above, a gauge at its stop, amounts of
which many are 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, cast

import numpy as np

from murho.model.bbb.registry import LIKELIHOODS, NOISE_KINDS
from murho.model.checkpoint.spec import ClassShares, LikelihoodSpec
from murho.model.distributions.mixtures import WideRule
from murho.model.distributions.transforms import Limits
from murho.model.encoding.encoder import InputChoice
from murho.model.encoding.feature_scores import QuantileScores
from murho.model.errors import OptionError, TableError
from murho.model.tables.inference import suspected_code
from murho.model.training.scoring import ClassScorer, NumberScorer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from murho.model.bbb.likelihood import ClassLikelihood, Likelihood, NumericLikelihood
    from murho.model.distributions.transforms import Standardisation
    from murho.model.tables.schema import Target
    from murho.model.training.options import TrainOptions
    from murho.model.training.rows import TrainingData


TEMPERATURES = (1.0, 0.3, 0.1, 0.03)
"""Temperatures to try. 1 is the exact free energy; below 1 the data get more weight than Bayes' rule gives them."""
FROM_SIMPLE: dict[str, tuple[Any, ...]] = {
    "transform": ("none", "log"),
    "noise": NOISE_KINDS,
    "encoding": ("standard", "piecewise", "mixed"),
    "whitened": (False, True),
    "temperature": TEMPERATURES,
}
"""Field of a candidate → its values, the simplest first: with fewer outputs or inputs, or nearer to Bayes' rule."""
MUCH_BETTER = 0.1
"""Least fall of the loss from trial to full fit after which the next fit has a lower temperature, nats."""


@dataclass(frozen=True, slots=True)
class SearchDimension:
    """A field of a candidate, and the other values to try for it.

    Attributes:
        name: Name of the field.
        others: Values to try, in this order.
        otherwise: Values to try instead if the first of ``others`` does not lower the loss.
    """

    name: str
    others: tuple[Any, ...]
    otherwise: tuple[Any, ...] = ()


def is_simpler(name: str, value: object, than: object) -> bool:
    """Whether a value of a candidate's field is simpler than another one."""
    order = FROM_SIMPLE[name]
    return order.index(value) < order.index(than)


def next_temperature(temperature: float, trial: float, full: float) -> float:
    """The temperature of the settling fit, from the losses of the best trial and of the full fit.

    A full fit that is no better than the trial has overfitted, so the prior should get more weight. If the full fit is
    much better, the trials were too short to learn: they have a quarter of the steps. The prior that was best for them
    should then get less weight.

    Args:
        temperature: Temperature of the best trial and of the full fit.
        trial: Loss of the best trial, nats.
        full: Loss of the full fit, nats.
    """
    warmer = [value for value in TEMPERATURES if value > temperature]
    colder = [value for value in TEMPERATURES if value < temperature]
    if full >= trial and warmer:
        return warmer[-1]
    if full < trial - MUCH_BETTER and colder:
        return colder[0]
    return temperature


FEWEST_ROWS, LEAST_SHARE = 10, 0.01
"""Least number and share of the rows at a cap."""
NEIGHBOURS = 20
"""A target has at least so many other values, and a cap is compared with so many of them, the nearest ones."""
TIMES_NEIGHBOURS, TIMES_NEIGHBOURS_OF_ZERO = 3, 2
"""A cap is so many times as frequent as the most frequent of its neighbours. For a least value of 0 fewer suffice."""


def target_limits(
    targets: NDArray[np.float64], name: str, options: TrainOptions, say: Callable[[str], None]
) -> Limits | None:
    """The limits of a training; None if there are none.

    Args:
        targets: ``[N]``, the target's unit; NaN where it is missing.
        name: Name of the target, for messages.
        options: Limits that the user gives; an infinite one: there is no limit on this side, whatever the data show.
        say: Gets a message about every cap found.

    Raises:
        OptionError: The minimum is not below the maximum.
        TableError: A target lies beyond a limit of the user; the row is named (from 1).
    """
    present = targets[~np.isnan(targets)]
    code = suspected_code(present)
    ends = {}
    for side, given, sign in (("minimum", options.target_minimum, -1.0), ("maximum", options.target_maximum, 1.0)):
        none = sign * math.inf
        if given is not None:
            beyond = sign * targets > sign * given
            if beyond.any():
                row = int(np.argmax(beyond))
                raise TableError(
                    f"target {name!r}, row {row + 1}: {targets[row]:g} lies beyond --target-{side} {given:g}"
                )
            ends[side] = given
        elif is_cap(sign * present) and code != sign * float((sign * present).max()):
            extreme = sign * float((sign * present).max())
            word = "largest" if sign > 0.0 else "least"
            say(
                f"found a cap: {int((present == extreme).sum()):,} of {len(present):,} rows have exactly {extreme:g}, "
                f"the {word} value of {name!r}, which no value near it comes close to: answers are limited to it; "
                f"--target-{side} {none} switches that off"
            )
            ends[side] = extreme
        else:
            ends[side] = none
    if math.isinf(ends["minimum"]) and math.isinf(ends["maximum"]):
        if ends["minimum"] > 0.0 or ends["maximum"] < 0.0:
            raise OptionError("--target-minimum and --target-maximum: no number lies between them")
        return None
    return Limits(**ends)


def is_cap(targets: NDArray[np.float64]) -> bool:
    """Whether the largest of the targets ``[N]`` is repeated as no other value near it is.

    The target must be continuous otherwise: with at least 20 other values.
    """
    values, counts = np.unique(targets, return_counts=True)
    if len(values) <= NEIGHBOURS or counts[-1] < max(FEWEST_ROWS, LEAST_SHARE * len(targets)):
        return False
    times = TIMES_NEIGHBOURS_OF_ZERO if values[-1] == 0.0 else TIMES_NEIGHBOURS
    return bool(counts[-1] >= times * counts[-1 - NEIGHBOURS : -1].max())


def require_noise_for(options: TrainOptions, targets: NDArray[np.float64], name: str, limits: Limits | None) -> None:
    """Check that the noise that the user has chosen goes with the target and the other options.

    Args:
        options: Validated options.
        targets: ``[N]``, the target's unit; NaN where it is missing.
        name: Name of the target, for messages.
        limits: Limits of the target.

    Raises:
        TableError: The noise can't describe a target; its row is named.
        OptionError: The noise goes with other limits or another transform.
    """
    if options.noise == "auto":
        return
    likelihood, noise = LIKELIHOODS[options.noise], f"--noise {options.noise}"
    likelihood.require_targets(targets, name)
    if options.transform not in ("auto", likelihood.only_transform or options.transform):
        raise OptionError(f"{noise} goes with --transform {likelihood.only_transform} alone: leave out --transform")
    if limits is not None and not likelihood.allows(limits):
        raise OptionError(
            f"{noise} does not go with the limits of target {name!r}: give --target-minimum -inf --target-maximum inf, "
            "or another --noise"
        )


def suits(kind: str, targets: NDArray[np.float64], limits: Limits | None, options: TrainOptions) -> bool:
    """Whether an observation model suits a target and the options of the user, so that a search may try it."""
    likelihood = LIKELIHOODS[kind]
    return (
        likelihood.first_refused(targets) is None
        and (limits is None or likelihood.allows(limits))
        and options.transform in ("auto", likelihood.only_transform or options.transform)
    )


def is_overdispersed(targets: NDArray[np.float64], inputs: NDArray[np.floating]) -> bool:
    """Whether counts ``[N]`` vary more about a linear function of inputs ``[N, D]`` than a Poisson distribution does.

    The variance of a negative binomial is above its mean, so it is too wide where they vary less. Of a large table, a
    part of the rows is looked at.
    """
    step = max(1, len(targets) // MOST_ROWS_OF_A_LINE)
    targets = targets[::step]
    design = np.column_stack((inputs[::step], np.ones(len(targets)))).astype(np.float64)
    residuals = targets - design @ np.linalg.lstsq(design, targets)[0]
    return bool(np.mean(residuals**2) > targets.mean())


FEWEST_ROWS_FOR_A_MIXTURE = 200
MOST_ROWS_OF_A_LINE = 10_000


class RegressionTask:
    """What differs in a training where the target is a number.

    Attributes:
        name: Its name, as ``--task`` and the service say it.
        scores_in_loss: How many of a scorer's scores the loss of the search is made of.
        mixes_encodings: Whether members may read different inputs.
        levels_noise: Whether early in a fit noisy rows pull as hard as others (``beta`` of
            `model.bbb.likelihood.Likelihood.gradient`), which is not the gradient of the free energy.
        classes: The classes of the target; None: it is a number.
    """

    name: ClassVar[str] = "regression"
    scores_in_loss: ClassVar[int] = 2
    levels_noise: ClassVar[bool] = True
    mixes_encodings: ClassVar[bool] = False  # bands are narrowed as for members that read the same inputs
    classes = None

    def limits(
        self, targets: NDArray[np.float64], name: str, options: TrainOptions, say: Callable[[str], None]
    ) -> Limits | None:
        """Given limits, and caps that the targets show; the noise has to go with both. None: there are none."""
        limits = target_limits(targets, name, options, say)
        require_noise_for(options, targets, name, limits)
        return limits

    def first_likelihood(self, options: TrainOptions) -> str:
        """The observation model that the search starts from: heteroscedastic noise, unless the user chose another."""
        return "heteroscedastic" if options.noise == "auto" else options.noise

    def dimensions(self, data: TrainingData, options: TrainOptions) -> Iterator[SearchDimension]:
        """The dimensions of the search that only this task has: the transform of the target, and its noise."""
        # Noise of one size in the target's unit has no single size after a logarithm.
        if options.transform == "auto" and options.noise != "fixed" and data.bends("log"):
            yield SearchDimension("transform", ("log",))
        if options.noise == "auto":
            few = len(data.split.training) < FEWEST_ROWS_FOR_A_MIXTURE
            others = ("homoscedastic",) if few else ("mixture", "negative-binomial")
            targets = data.targets[data.split.learned]
            suited = [kind for kind in others if suits(kind, targets, data.limits, options)]
            if "negative-binomial" in suited and not is_overdispersed(
                targets, data.encoded(InputChoice("standard")).inputs[data.split.learned]
            ):
                suited.remove("negative-binomial")
            yield SearchDimension("noise", tuple(suited))

    def scorer(self, likelihood: Likelihood, standardisation: Standardisation, spread: float) -> NumberScorer:
        """Scores held-out rows of a fit by NLL and CRPS.

        Args:
            likelihood: Its observation model.
            standardisation: Of the targets in the fit.
            spread: Standard deviation of the targets.
        """
        return NumberScorer(cast("NumericLikelihood", likelihood), standardisation, spread)

    def likelihood_spec(self, kind: str, data: TrainingData, options: TrainOptions, scale: float) -> LikelihoodSpec:
        """The observation model of a fit, and of ``model.json``, with a wide component where it takes one.

        Args:
            kind: A kind of `model.bbb.registry.KINDS`.
            data: The table.
            options: Options of the training.
            scale: Scale of the target in the fit.
        """
        return LikelihoodSpec(
            kind,
            sigma=options.noise_sigma / scale if kind == "fixed" and options.noise_sigma is not None else None,
            components=options.noise_components if kind == "mixture" else None,
            wide=WideRule.after(len(data.split.learned)) if LIKELIHOODS[kind].wide_tails else None,
        )

    def distribution(self, targets: NDArray[np.float64]) -> dict[str, Any] | None:
        """The quantiles of the training targets, for those who show a prediction beside them."""
        scores = QuantileScores.fit(targets)
        return None if scores is None else scores.to_json()


@dataclass(frozen=True, slots=True)
class ClassificationTask:
    """The same where the target is one of C classes; see `RegressionTask`.

    Attributes:
        classes: Their names, sorted.
    """

    name: ClassVar[str] = "classification"
    scores_in_loss: ClassVar[int] = 1
    mixes_encodings: ClassVar[bool] = True
    levels_noise: ClassVar[bool] = False

    classes: tuple[str, ...]

    def limits(
        self,
        targets: NDArray[np.float64],  # noqa: ARG002 - only numbers have limits
        name: str,  # noqa: ARG002
        options: TrainOptions,  # noqa: ARG002
        say: Callable[[str], None],  # noqa: ARG002
    ) -> None:
        """Classes have no limits."""
        return

    def first_likelihood(self, options: TrainOptions) -> str:  # noqa: ARG002 - there is nothing to choose
        """One logit for two classes, else one for each."""
        return "bernoulli" if len(self.classes) == 2 else "categorical"

    def dimensions(self, data: TrainingData, options: TrainOptions) -> Iterator[SearchDimension]:  # noqa: ARG002
        """None: neither transform nor noise."""
        return iter(())

    def scorer(
        self,
        likelihood: Likelihood,
        standardisation: Standardisation,  # noqa: ARG002 - class indices have none
        spread: float,  # noqa: ARG002
    ) -> ClassScorer:
        """Scores by log loss and Brier score."""
        return ClassScorer(cast("ClassLikelihood", likelihood))

    def likelihood_spec(
        self,
        kind: str,
        data: TrainingData,
        options: TrainOptions,  # noqa: ARG002 - there is no noise
        scale: float,  # noqa: ARG002
    ) -> LikelihoodSpec:
        """The likelihood, with the class shares of the training rows."""
        learned = data.split.learned
        weights = None if data.weights is None else data.weights[learned]
        return LikelihoodSpec(kind, shares=ClassShares.of(data.targets[learned], len(self.classes), weights))

    def distribution(self, targets: NDArray[np.float64]) -> dict[str, Any]:
        """Training rows of each class."""
        counts = np.bincount(targets.astype(np.int64), minlength=len(self.classes))
        return {"classes": dict(zip(self.classes, counts.tolist(), strict=True))}


Task: TypeAlias = RegressionTask | ClassificationTask


def task_of(target: Target) -> Task:
    """The task of a target whose kind is known."""
    return RegressionTask() if target.classes is None else ClassificationTask(target.classes)
