"""Strict validation of a checkpoint's JSON data.

Every ``expect_…`` takes a value and the path of its field. It returns the value, or raises a `CheckpointError` with the
path, the expected value and the value found.
"""

from __future__ import annotations

import json
import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from murho.model.errors import CheckpointError, OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeVar

    from pydantic import TypeAdapter

    T = TypeVar("T")

__all__ = [
    "expect_fields",
    "expect_flag",
    "expect_list",
    "expect_number",
    "expect_numbers",
    "expect_object",
    "expect_text",
    "expect_whole",
    "option_errors_at",
    "read_strictly",
    "wrong",
]


def wrong(where: str, expected: str, found: object) -> CheckpointError:
    """Return the error for the field ``where``: what was expected there, and what was found."""
    shown = json.dumps(found, default=str)
    shown = shown if len(shown) <= 200 else f"{shown[:200]}…"
    return CheckpointError(f"{where}: expected {expected}, found {shown}")


@contextmanager
def option_errors_at(where: str) -> Iterator[None]:
    """Raise an `OptionError` of the block as a `CheckpointError` of the field ``where``."""
    try:
        yield
    except OptionError as error:
        raise CheckpointError(f"{where}: {error}") from error


def read_strictly(adapter: TypeAdapter[T], data: object, where: str) -> T:
    """Read JSON data as a type that pydantic knows, where nothing is converted.

    Raises:
        CheckpointError: The data have another form; the message has the path of the field.
    """
    from pydantic import ValidationError

    try:
        return adapter.validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
        expected = first["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
        found = json.dumps(first["input"], default=str)[:200]
        raise CheckpointError(f"{where}{path}: {expected}, found {found}") from error


def expect_object(data: object, where: str) -> dict[str, Any]:
    """Return the data if they are an object."""
    if not isinstance(data, dict):
        raise wrong(where, "an object", data)
    return data


def expect_fields(data: object, where: str, names: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the data if they are an object with exactly these fields; the ``optional`` ones may be absent."""
    if not isinstance(data, dict) or not set(names) <= set(data) <= {*names, *optional}:
        expected = f"an object with exactly the fields {', '.join(names) or '(none)'}"
        if optional:
            expected += f", and perhaps {', '.join(optional)}"
        raise wrong(where, expected, sorted(map(str, data)) if isinstance(data, dict) else data)
    return data


def expect_list(value: object, where: str) -> list[Any]:
    """Return the value if it is a list."""
    if not isinstance(value, list):
        raise wrong(where, "a list", value)
    return value


def expect_text(value: object, where: str) -> str:
    """Return the value if it is a non-empty text."""
    if not isinstance(value, str) or not value:
        raise wrong(where, "a text that is not empty", value)
    return value


def expect_flag(value: object, where: str) -> bool:
    """Return the value if it is true or false."""
    if not isinstance(value, bool):
        raise wrong(where, "true or false", value)
    return value


def expect_whole(value: object, where: str, least: int = 0) -> int:
    """Return the value if it is a whole number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise wrong(where, f"a whole number from {least}", value)
    return value


def expect_number(value: object, where: str) -> float:
    """Return the value if it is a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise wrong(where, "a finite number", value)
    return float(value)


def expect_numbers(value: object, where: str) -> tuple[float, ...]:
    """Return the value as a tuple if it is a list of finite numbers."""
    if not isinstance(value, list):
        raise wrong(where, "a list of numbers", value)
    return tuple(expect_number(number, f"{where}[{index}]") for index, number in enumerate(value))
