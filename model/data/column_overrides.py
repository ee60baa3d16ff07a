"""Kinds of columns, and what a person may say of a column. Imports neither numpy nor pyarrow.

The options of a training name both, and ``murho train --help`` reads the options.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

__all__ = ["ColumnOverride", "FeatureKind"]


class FeatureKind(StrEnum):
    """What the cells of a column are."""

    NUMERIC = "numeric"
    CATEGORICAL = "categorical"
    BOOLEAN = "boolean"
    DATE = "date"


@dataclass(frozen=True, slots=True)
class ColumnOverride:
    """Kind and unit of a column, given by a person.

    Attributes:
        kind: Takes the place of the inferred kind.
        unit: Unit of its numbers, shown in answers.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}  # a misspelt key of a TOML file is an error

    kind: FeatureKind | None = None
    unit: str | None = None
