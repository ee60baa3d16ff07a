"""How far doubt grows with the distance from the training rows: up to an ellipsoid of the distance inputs.

A row can be far in several ways at once, and each has an input of its own (`model.encoding.range_distance`,
`model.encoding.whitening`, `model.encoding.distance_inputs`). Doubt grows in proportion to these inputs. Where a
function does not go on, that must end: far out a mean is as wrong as two targets are apart, and no more. So a row
counts as far as the ellipsoid ``sum_j (d_j / furthest_j)^2 = 1`` on its way out.
`model.training.extrapolation_trial` sets ``furthest``.
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
    """The ellipsoid.

    Attributes:
        furthest: Name of an input → its largest distance where all others are zero, above 0. Inputs that are not named
            have no limit.
    """

    furthest: Mapping[str, float]

    def apply(self, distances: npt.NDArray[np.float32], names: Sequence[str]) -> None:
        """Pull rows beyond the ellipsoid back to it, in place; each row by itself.

        Args:
            distances: Distance inputs, ``[B, F]``; 0 for training rows, which stay as they are.
            names: Names of the F inputs.
        """
        far = np.flatnonzero(distances.any(axis=1))
        if not far.size:
            return
        places = np.flatnonzero([name in self.furthest for name in names])
        of_far = distances[far][:, places].astype(np.float64)
        shares = of_far / np.array([self.furthest[name] for name in names if name in self.furthest])
        # A sum over the first axis adds one input after the other, whatever the number of rows.
        norms = np.sqrt(np.add.reduce(np.square(shares.T), axis=0))
        distances[np.ix_(far, places)] = of_far / np.maximum(norms, 1.0)[:, None]

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
