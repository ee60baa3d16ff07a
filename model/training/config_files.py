"""The TOML file of `murho train --config`: its options, and where in it a wrong name or value stands."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from murho.model.data.column_overrides import ColumnOverride
from murho.model.errors import OptionError
from murho.model.training.config_places import line_of, meant
from murho.model.training.options import TrainOptions, flag, problem_text

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic_core import ErrorDetails

__all__ = ["read_config"]

OF_FILES = ("target", "name")
"""What a file may have besides the fields of `TrainOptions`."""
OF_COLUMNS = tuple(field.name for field in fields(ColumnOverride))


def read_config(path: Path) -> dict[str, Any]:
    """Read options from a TOML file, with the names of the command line and ``[columns.NAME]`` tables.

    Args:
        path: The file. Besides the fields of `TrainOptions` it may have ``target`` and ``name``. Instead of ``target``
            it may have a table ``[target]`` with ``name``, ``minimum`` and ``maximum``.

    Returns:
        The values by name; each is valid by itself. ``-`` in names becomes ``_``.

    Raises:
        OptionError: The file can't be read or is not valid TOML, or a name or a value in it is wrong: its line is
            named and, where a name looks like an option, that option.
    """
    try:
        text = path.read_text(encoding="utf-8")
        values = tomllib.loads(text)
    except OSError as error:
        raise OptionError(f"{path}: can't read the configuration: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OptionError(f"{path}: not valid TOML: {error}") from error
    _check_names(path, text, values)
    values = {name.replace("-", "_"): value for name, value in values.items()}
    if isinstance(values.get("target"), dict):
        values |= _target_table(values.pop("target"), path, text)
    _check_values(path, text, values)
    return values


def _check_names(path: Path, text: str, values: dict[str, Any]) -> None:
    """Refuse names that are no options, in a file and in its ``[columns.NAME]`` tables."""
    known = [*OF_FILES, *(flag(name).removeprefix("--") for name in TrainOptions.model_fields)]
    for name in values:
        if name.replace("_", "-") not in known:
            advice = meant(name, known) or "; `murho train --help` lists the options"
            raise OptionError(f"{_place(path, text, name)}: there is no option {name!r}{advice}")
    columns = values.get("columns")
    for column, override in columns.items() if isinstance(columns, dict) else ():
        for name in override if isinstance(override, dict) else ():
            if name not in OF_COLUMNS:
                advice = meant(name, OF_COLUMNS)
                if name.replace("_", "-") in known:
                    advice = "; options come before the first table of the file"
                named = ", ".join(OF_COLUMNS)
                where = _place(path, text, "columns", column, name)
                raise OptionError(f"{where}: [columns.{column}] has {named}, but not {name!r}{advice}")


def _check_values(path: Path, text: str, values: dict[str, Any]) -> None:
    try:
        TrainOptions.model_validate({name: value for name, value in values.items() if name not in OF_FILES})
    except ValidationError as error:
        lines = [
            f"{_place(path, text, *map(str, problem['loc']))}: {problem_text(problem)}{_value_meant(problem)}"
            for problem in error.errors()
        ]
        raise OptionError("; ".join(lines)) from None


def _value_meant(problem: ErrorDetails) -> str:
    """The choice that a misspelt one looks like."""
    choices = re.findall(r"'([^']*)'", problem["msg"]) if problem["type"] in ("literal_error", "enum") else []
    return meant(problem["input"], choices) if isinstance(problem["input"], str) else ""


def _place(path: Path, text: str, *keys: str) -> str:
    line = line_of(text, *keys)
    return str(path) if line is None else f"{path}, line {line}"


def _target_table(table: dict[str, Any], path: Path, text: str) -> dict[str, Any]:
    """The values of a ``[target]`` table, by the names of options."""
    names = {"name": "target", "minimum": "target_minimum", "maximum": "target_maximum"}
    unknown = sorted(table.keys() - names.keys())
    if unknown:
        where = _place(path, text, "target", unknown[0])
        raise OptionError(f"{where}: [target] has {', '.join(names)}, but not {unknown[0]!r}{meant(unknown[0], names)}")
    return {names[name]: value for name, value in table.items()}
