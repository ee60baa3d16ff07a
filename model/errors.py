"""The errors that Murho raises, under one root.

    MurhoError
    ├── TableError       a file or table can't be used; the message names file, column and row
    ├── InputError       rows or options of one request can't be used: a list of problems, each with a pointer
    ├── OptionError      an option of a command or a function has a value that can't be used
    ├── CheckpointError  a checkpoint is damaged, unknown, of a newer format, or can't be written
    │   └── StorageError storage can't be reached now: no verdict about a checkpoint, and the same may work later
    └── FitError         a fit can't continue

A message tells people what is wrong, where, and what to do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


def list_names(names: Sequence[object], most: int = 10) -> str:
    """Return ``'a', 'b' and 3 more``: the first of some names, for a message."""
    return ", ".join(map(repr, names[:most])) + (f" and {len(names) - most:,} more" if len(names) > most else "")


_CONTROLS = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ufeff]")


def printable(text: str) -> str:
    """Return a text with JSON's escapes for characters that control a terminal or the direction of writing."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def format_count(count: int, noun: str) -> str:
    """``1 cell``, or ``1,234 cells``, for a message."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


class MurhoError(Exception):
    """Base class of every error that Murho raises."""


class TableError(MurhoError):
    """A file or a table can't be used.

    Attributes:
        row: Number of the offending row, from 1; None if no single row is to blame.
        words: Texts among the numbers or dates of a column, each with its count, that may mean missing cells.
    """

    def __init__(self, message: str, *, row: int | None = None, words: Mapping[str, int] | None = None) -> None:
        super().__init__(message)
        self.row, self.words = row, words or {}

    def shift_rows(self, rows: int) -> TableError:
        """Return the same error, where so many rows come before the table that it speaks of."""
        if self.row is None:
            return self
        return TableError(str(self).replace(f"row {self.row}:", f"row {self.row + rows}:", 1), row=self.row + rows)


class OptionError(MurhoError, ValueError):
    """An option has a value that can't be used."""


class CheckpointError(MurhoError):
    """A checkpoint is damaged, unknown, of a newer format, or can't be written."""


class StorageError(CheckpointError):
    """The storage of checkpoints can't be reached now: no verdict about a checkpoint, and the same may work later."""


class FitError(MurhoError):
    """A fit can't continue; the message names the tensor or quantity and the epoch."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a request.

    Attributes:
        pointer: RFC 6901 JSON pointer to the offending value, such as ``/inputs/3/Horsepower``.
        message: What is wrong with the value, and what is expected.
    """

    pointer: str
    message: str


class InputError(MurhoError):
    """Rows or options of one request can't be used.

    Attributes:
        problems: At least one problem, in the order of the request.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{problem.pointer}: {problem.message}" for problem in self.problems))
