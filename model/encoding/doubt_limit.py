"""How far doubt grows with the distance of a number: up to a limit.

Doubt grows in proportion to the distance inputs (`model.encoding.range_distance`). Along a number that a function does
not follow beyond its range that must end: no single number leaves a function more uncertain than targets are apart.
`model.training.extrapolation_trial` finds the distance at which it does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from murho.model.json_validation import expect_number, wrong

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

__all__ = ["DoubtLimit"]


@dataclass(frozen=True, slots=True)
class DoubtLimit:
    """The largest distances.

    Attributes:
        furthest: Name of an input → its largest absolute value, above 0. Inputs that are not named have no limit.
    """

    furthest: Mapping[str, float]

    def apply(self, distances: npt.NDArray[np.float32], names: Sequence[str]) -> None:
        """Clip distances in place; training rows stay as they are.

        Args:
            distances: Distance inputs, ``[B, F]``; 0 for training rows.
            names: Names of the F inputs.
        """
        if distances.any():
            limits = np.array([self.furthest.get(name, np.inf) for name in names], dtype=np.float32)
            np.clip(distances, -limits, limits, out=distances)

    def to_json(self) -> dict[str, float]:
        """Return the largest distances as JSON data."""
        return dict(self.furthest)

    @classmethod
    def from_json(cls, data: object, names: Sequence[str], where: str) -> Self:
        """Read what `to_json` returned.

        Args:
            data: JSON data.
            names: Names of the distance inputs.
            where: Name of the field, for messages.

        Raises:
            CheckpointError: The data don't fit; the message names the field.
        """
        if not isinstance(data, dict) or any(name not in names for name in data):
            raise wrong(where, f"distances by the names of inputs, {list(names)}", data)
        furthest = dict[str, Any]()
        for name, value in data.items():
            furthest[name] = expect_number(value, f"{where}.{name}")
            if furthest[name] <= 0.0:
                raise wrong(f"{where}.{name}", "a number above 0", value)
        return cls(furthest)
