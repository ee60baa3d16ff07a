"""The options of `murho predict` that say what is asked, from the texts of the command line."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from murho.model.errors import OptionError

if TYPE_CHECKING:
    from murho.model.data.schema import Schema

__all__ = ["read_coverage", "read_levels", "read_thresholds", "require_options"]

OF_NUMBERS = {
    "--percentiles": "--coverage sets how often the prediction set holds the class; percentiles of probabilities come "
    "over HTTP and in Python",
    "--thresholds": "p_CLASS is the probability of a class",
    "--no-noise": "A class has no noise that could be left out",
}
"""Options for numbers alone, and what classes have instead."""


def read_levels(text: str) -> tuple[float, ...]:
    """The levels of ``--percentiles``: distinct, strictly between 0 and 100.

    Raises:
        OptionError: They are not.
    """
    levels = _numbers("--percentiles", text, "5,50,95")
    for level in levels:
        if not 0.0 < level < 100.0:
            raise OptionError(f"--percentiles: levels lie strictly between 0 and 100, not {level:g}")
    return levels


def read_thresholds(text: str) -> tuple[float, ...]:
    """The values of ``--thresholds``: distinct and finite, in the target's unit.

    Raises:
        OptionError: They are not.
    """
    thresholds = _numbers("--thresholds", text, "20,30")
    for threshold in thresholds:
        if not math.isfinite(threshold):
            raise OptionError(f"--thresholds: expected finite numbers, not {threshold:g}")
    return thresholds


def _numbers(option: str, text: str, example: str) -> tuple[float, ...]:
    try:
        numbers = tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise OptionError(f"{option}: expected numbers parted by commas, such as {example}, not {text!r}") from None
    if len(set(numbers)) < len(numbers):
        raise OptionError(f"{option}: each {'level' if option == '--percentiles' else 'number'} once, not {text!r}")
    return numbers


def read_coverage(coverage: float) -> float:
    """The share of ``--coverage``, strictly between 0 and 1.

    Raises:
        OptionError: It is not.
    """
    if 1.0 < coverage < 100.0:
        raise OptionError(f"--coverage is a share: give {coverage / 100.0:g} for {coverage:g} %")
    if not 0.0 < coverage < 1.0:
        raise OptionError(f"--coverage lies strictly between 0 and 1, not {coverage:g}")
    return coverage


def require_options(
    schema: Schema, *, percentiles: bool, coverage: bool, thresholds: bool = False, no_noise: bool = False
) -> None:
    """Check that no option is given that only the other kind of target has.

    Args:
        schema: The schema of the model.
        percentiles: Whether ``--percentiles`` is given.
        coverage: Whether ``--coverage`` is given.
        thresholds: Whether ``--thresholds`` is given.
        no_noise: Whether ``--no-noise`` is given.

    Raises:
        OptionError: One is given.
    """
    target = schema.target
    given = {"--percentiles": percentiles, "--thresholds": thresholds, "--no-noise": no_noise}
    for option, advice in OF_NUMBERS.items():
        if target.classes is not None and given[option]:
            raise OptionError(
                f"{option} is for a target that is a number; {target.name!r} has {len(target.classes)} classes: leave "
                f"it out. {advice}"
            )
    if target.classes is None and coverage:
        raise OptionError(
            f"--coverage is for the prediction sets of classes; {target.name!r} is a number: leave it out. "
            "--percentiles 5,95 are the ends of a 90 % band"
        )
