"""The search space: the values that a search tries for each choice, which is simpler, and the last temperature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from murho.model.likelihoods.registry import NOISE_KINDS

__all__ = ["TEMPERATURES", "SearchDimension", "is_simpler", "next_temperature"]

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
