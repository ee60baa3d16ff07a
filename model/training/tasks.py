"""What the target of a training asks for: its observation models, what is searched, and the limits of a number.

Limits are as the user gives them, or caps found in the data. A cap shows as a value at the end of the range that is
repeated as no other value near it: a survey that writes 500,000 for everything above, a gauge at its stop, amounts of
which many are 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from murho.model.bbb.registry import LIKELIHOODS, NOISE_KINDS
from murho.model.distributions.target_transforms import Limits
from murho.model.errors import OptionError, TableError
from murho.model.tables.inference import suspected_code
from murho.model.training.options import TrainOptions

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
"""Least fall of the loss from trial to full fit after which the next fit has a lower temperature, and from trial to
settled fit after which longer fits go on, nats."""


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
    """Return the temperature of the settling fit, from the losses of the best trial and of the full fit.

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
    """Return the limits of a training; None if there are none.

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
                f"the {word} value of {name!r}, far more than any value near it: predictions are limited to it; "
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


MOST_ROWS_OF_A_LINE = 10_000


def first_likelihood(classes: tuple[str, ...] | None, options: TrainOptions) -> str:
    """Return the observation model that the search starts from.

    Of numbers heteroscedastic noise, unless the user chose another; one logit for two classes, else one for each.
    """
    if classes is None:
        return "heteroscedastic" if options.noise == "auto" else options.noise
    return "bernoulli" if len(classes) == 2 else "categorical"
