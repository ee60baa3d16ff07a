"""How far a function follows a number beyond its training range.

A network goes on beyond the range of its training rows along whatever slope it has at the edge, as far as it is asked.
Some features deserve that (a year in a trend), others do not (the last bin of a price list). So beyond the range the
network sees only a share of the excess, and no more than a certain excess. `model.training.extrapolation_trial` finds
both by extrapolating within the training rows. The distance itself has an input of its own
(`model.encoding.range_distance`), and doubt grows in proportion to it. Where a function is not followed that must end:
no single number leaves a function more uncertain than targets are apart. So that input has a limit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from murho.model.data.schema import FeatureKind
from murho.model.json_validation import expect_fields, expect_number, wrong

if TYPE_CHECKING:
    import numpy.typing as npt

    from murho.model.data.schema import Schema

__all__ = ["Continuation", "continuations_from_json"]


@dataclass(frozen=True, slots=True)
class Continuation:
    """What the network sees of a number beyond its training range.

    Attributes:
        share: Share of the excess over the range that the network sees, from 0 (the number is held at the edge) to 1.
        below: Largest excess below the range that counts, in the feature's unit.
        above: Largest excess above the range that counts, in the feature's unit.
        furthest: Largest distance that is doubted, in standard deviations of the number. Infinite: no limit.
    """

    share: float
    below: float
    above: float
    furthest: float = math.inf

    def followed(self, values: npt.NDArray[np.float64], minimum: float, maximum: float) -> npt.NDArray[np.float64]:
        """Return what the network sees of the values ``[B]``; within the range, the values themselves.

        Args:
            values: ``[B]``; NaN stays NaN.
            minimum: Lower end of the training range.
            maximum: Upper end.
        """
        inside = np.minimum(np.maximum(values, minimum), maximum)
        return inside + self.share * np.clip(values - inside, -self.below, self.above)

    def to_json(self) -> dict[str, Any]:
        """Return the numbers as JSON data, ``furthest`` if it is finite."""
        data = {"share": self.share, "below": self.below, "above": self.above}
        return data if math.isinf(self.furthest) else data | {"furthest": self.furthest}

    @classmethod
    def from_json(cls, data: object, where: str) -> Self:
        """Read what `to_json` returned.

        Raises:
            CheckpointError: The data don't fit; the message names the field, which begins with ``where``.
        """
        names: tuple[str, ...] = ("share", "below", "above")
        if isinstance(data, dict) and "furthest" in data:
            names = (*names, "furthest")
        fields = expect_fields(data, where, names)
        numbers = {name: expect_number(fields[name], f"{where}.{name}") for name in names}
        for name, number in numbers.items():
            if number < 0.0 or (name == "share" and number > 1.0):
                raise wrong(
                    f"{where}.{name}", "a number from 0 to 1" if name == "share" else "a number from 0 on", number
                )
        return cls(**numbers)


def continuations_from_json(data: object, schema: Schema, where: str) -> dict[str, Continuation]:
    """Read the continuations of numbers, by feature name.

    Raises:
        CheckpointError: The data don't fit; the message names the field.
    """
    known = [feature.name for feature in schema.features if feature.kind is FeatureKind.NUMERIC]
    if not isinstance(data, dict) or any(name not in known for name in data):
        raise wrong(where, f"continuations by the names of numbers, {known}", data)
    return {name: Continuation.from_json(value, f"{where}.{name}") for name, value in data.items()}
