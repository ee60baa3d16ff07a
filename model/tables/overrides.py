"""What a user may say of a column: its kind and its unit. `murho train --help` reads them, so no NumPy is imported."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

__all__ = ["ColumnOverride", "FeatureKind"]


class FeatureKind(StrEnum):
    """The kind of a column's cells."""

    NUMERIC = "numeric"
    CATEGORICAL = "categorical"
    BOOLEAN = "boolean"
    DATE = "date"


@dataclass(frozen=True, slots=True)
class ColumnOverride:
    """Kind and unit of a column, given by the user.

    Attributes:
        kind: Replaces the inferred kind.
        unit: Unit of the numbers, shown in answers.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}  # a misspelt key of a TOML file is an error

    kind: FeatureKind | None = None
    unit: str | None = None
