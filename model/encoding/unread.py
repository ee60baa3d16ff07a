"""`Unread`: the encoding of a feature that the networks do not read, in no column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from murho.model.json_validation import expect_fields

if TYPE_CHECKING:
    import numpy.typing as npt

    from murho.model.data.schema import Feature

__all__ = ["Unread"]


@dataclass(frozen=True)
class Unread:
    """No encoded column: answers do not depend on the feature's value.

    The feature stays one of the schema. A row that is unlike the training rows in it is still found, because the
    distance of rows (`model.encoding.row_distance`) is that of all features.
    """

    @classmethod
    def fit(cls, feature: Feature, column: npt.NDArray[Any]) -> Self:  # noqa: ARG003
        """There is nothing to fit."""
        return cls()

    @property
    def names(self) -> tuple[str, ...]:
        """No name."""
        return ()

    def training_range(self) -> npt.NDArray[np.float32]:
        """Bounds of no column, ``[2, 0]``."""
        return np.empty((2, 0), dtype=np.float32)

    def encode(self, column: npt.NDArray[Any], out: npt.NDArray[np.float32]) -> None:
        """Write nothing: ``out`` is ``[B, 0]``."""

    def to_json(self) -> dict[str, Any]:
        """Return no state."""
        return {}

    @classmethod
    def from_json(cls, feature: Feature, data: object, where: str) -> Self:  # noqa: ARG003
        """Read the data of `to_json`."""
        expect_fields(data, where, ())
        return cls()
