"""Every error that Murho raises on purpose, under one root.

    MurhoError
    ├── TableError       a file or table that can't be used: file, column and row are named
    ├── InputError       rows or options of one request: a list of problems, each with a pointer
    ├── OptionError      a value of a command's or a function's option
    ├── CheckpointError  a checkpoint that is damaged, of a newer format, or can't be written
    └── FitError         a fit that can't go on

A message is for people: what is wrong, where, and what to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["CheckpointError", "FitError", "InputError", "MurhoError", "OptionError", "Problem", "TableError"]


class MurhoError(Exception):
    """The root of every error that Murho raises on purpose."""


class TableError(MurhoError):
    """A file or a table can't be used."""


class OptionError(MurhoError):
    """An option has a value that can't be used."""


class CheckpointError(MurhoError):
    """A checkpoint is damaged, unknown, of a newer format, or can't be written."""


class FitError(MurhoError):
    """A fit can't go on; the message names the tensor or quantity and the epoch."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a request.

    Attributes:
        pointer: RFC 6901 JSON pointer to the offending value, such as ``/inputs/3/Horsepower``.
        message: What is wrong with it and what is expected.
    """

    pointer: str
    message: str


class InputError(MurhoError):
    """Rows or options of one request can't be used.

    Attributes:
        problems: What is wrong, in the order of the request; at least one.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{problem.pointer}: {problem.message}" for problem in self.problems))
