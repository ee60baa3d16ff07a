"""Murho's errors as Python callers expect them: as a ValueError, with the names of parameters."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from murho.model.errors import OptionError, TableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["DataError", "ParameterError", "as_value_errors"]

OPTION = re.compile(r"--([a-z][a-z0-9-]*)")


class DataError(TableError, ValueError):
    """The data can't be used; a ValueError, as Python callers expect."""


class ParameterError(OptionError, ValueError):
    """A parameter has a value that can't be used; a ValueError, as Python callers expect."""


@contextmanager
def as_value_errors(renamed: Mapping[str, str] | None = None) -> Iterator[None]:
    """Convert a `TableError` to a `DataError`, and an `OptionError` to a `ParameterError`.

    Option names in the latter's message become parameter names: ``--batch-size`` becomes ``batch_size``.

    Args:
        renamed: Options whose parameter has another name.
    """

    def parameter(option: re.Match[str]) -> str:
        name = option[1].replace("-", "_")
        return (renamed or {}).get(name, name)

    try:
        yield
    except (DataError, ParameterError):
        raise
    except TableError as error:
        raise DataError(str(error), row=error.row) from error
    except OptionError as error:
        raise ParameterError(OPTION.sub(parameter, str(error))) from error
