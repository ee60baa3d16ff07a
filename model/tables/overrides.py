"""What a user may say of a column, and of a file. `murho train --help` reads them, so no NumPy is imported."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import ClassVar
from unicodedata import normalize

composed = partial(normalize, "NFC")
"""The name of a column in Unicode's form NFC: names that look alike are the same, however they were typed."""


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


@dataclass(frozen=True, slots=True)
class FileForm:
    """How a file is to be read, where it does not tell.

    Attributes:
        sheet: Sheet of a workbook; None: the first with cells.
        skip_lines: Lines of a text, or rows of a sheet, before its header line.
        encoding: Encoding of a text; None: UTF-8, else what its first bytes tell, else Windows-1252.
        header: Whether a line with names comes before the rows.
    """

    sheet: str | None = None
    skip_lines: int = 0
    encoding: str | None = None
    header: bool = True


AS_IT_IS = FileForm()
