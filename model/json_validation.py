"""Strict reading of a checkpoint's JSON data: errors say where, what was expected, and what was found."""

from __future__ import annotations

import json
import math
from typing import Any

from murho.model.errors import CheckpointError

__all__ = ["expect_fields", "expect_number", "expect_numbers", "expect_text", "wrong"]


def wrong(where: str, expected: str, found: object) -> CheckpointError:
    """Returns the error that says that the field ``where`` is not as expected."""
    shown = json.dumps(found, default=str)
    shown = shown if len(shown) <= 200 else f"{shown[:200]}…"
    return CheckpointError(f"{where}: expected {expected}, found {shown}")


def expect_fields(data: object, where: str, names: tuple[str, ...]) -> dict[str, Any]:
    """Returns the data if they are an object with exactly these fields.

    Raises:
        CheckpointError: They are not.
    """
    if not isinstance(data, dict) or set(data) != set(names):
        found = sorted(map(str, data)) if isinstance(data, dict) else data
        raise wrong(where, f"an object with exactly the fields {', '.join(names) or '(none)'}", found)
    return data


def expect_text(value: object, where: str) -> str:
    """Returns the value if it is a text that is not empty.

    Raises:
        CheckpointError: It is not.
    """
    if not isinstance(value, str) or not value:
        raise wrong(where, "a text that is not empty", value)
    return value


def expect_number(value: object, where: str) -> float:
    """Returns the value if it is a finite number.

    Raises:
        CheckpointError: It is not.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise wrong(where, "a finite number", value)
    return float(value)


def expect_numbers(value: object, where: str) -> tuple[float, ...]:
    """Returns the values if they are a list of finite numbers.

    Raises:
        CheckpointError: They are not.
    """
    if not isinstance(value, list):
        raise wrong(where, "a list of numbers", value)
    return tuple(expect_number(number, f"{where}[{index}]") for index, number in enumerate(value))
