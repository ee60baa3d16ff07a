"""What a search may change, and how the temperature of a small table moves from fit to fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["TEMPERATURES", "SearchDimension", "next_temperature"]

TEMPERATURES = (1.0, 0.3, 0.1, 0.03)
"""1 is the posterior of the exact free energy; below it the data weigh more than they would if the model were true."""
MUCH_BETTER = 0.1
"""By how much a loss must fall from trial to full fit for the next one to be colder, nats."""


@dataclass(frozen=True, slots=True)
class SearchDimension:
    """A field of a candidate, and the values to try in place of its own.

    Attributes:
        name: The field.
        others: The values.
        otherwise: Values to try instead, once the first of the others has gained nothing.
    """

    name: str
    others: tuple[Any, ...]
    otherwise: tuple[Any, ...] = ()


def next_temperature(temperature: float, trial: float, full: float) -> float:
    """For the fit that settles, from the losses of the best trial and of the full fit at that temperature.

    A full fit that is no better has learned its rows by heart: the prior should weigh more. Where it is much better,
    trials of a quarter of its steps had only begun to learn, and the prior that was best for them should weigh less.
    """
    warmer = [value for value in TEMPERATURES if value > temperature]
    colder = [value for value in TEMPERATURES if value < temperature]
    if full >= trial and warmer:
        return warmer[-1]
    if full < trial - MUCH_BETTER and colder:
        return colder[0]
    return temperature
