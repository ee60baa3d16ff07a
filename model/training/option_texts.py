"""Help texts of the options of a training, derived from the fields of `model.training.options.TrainOptions`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from murho.model.training.options import TrainOptions, flag

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic.fields import FieldInfo

__all__ = ["OptionText", "option_texts"]

BOUNDS = {
    "minimum": "at least",
    "exclusiveMinimum": "above",
    "maximum": "at most",
    "exclusiveMaximum": "below",
}
"""Keyword of a JSON schema → words for the bound. A range with minimum and maximum is written "… to …" instead."""


@dataclass(frozen=True, slots=True)
class OptionText:
    """One option in words.

    Attributes:
        name: The field of `TrainOptions`.
        type: A type of JSON schema (``boolean``, ``integer``, ``number``, ``string``, ``object``), or ``integers`` or
            ``strings`` for a list.
        default: The default value; None for an ``object`` and where the training chooses the value.
        description: The meaning, in whole sentences.
        values: The choices or the range in words; empty if every value of the type is allowed.
        default_text: The default in words, or how the training chooses the value; empty if there is no default.
    """

    name: str
    type: str
    default: Any
    description: str
    values: str
    default_text: str

    @property
    def flag(self) -> str:
        """The option on the command line, such as ``--batch-size``."""
        return flag(self.name)

    @property
    def help(self) -> str:
        """Description, values and default in one text."""
        default = f"default: {self.default_text}" if self.default_text else ""
        notes = "; ".join(note for note in (self.values, default) if note)
        return f"{self.description}  [{notes}]" if notes else self.description


def option_texts(options: type[TrainOptions] = TrainOptions) -> list[OptionText]:
    """Every option in words, in the order of the fields.

    Args:
        options: `TrainOptions`, or a class with further fields.
    """
    schemas = options.model_json_schema()["properties"]
    return [_text(name, field, schemas[name]) for name, field in options.model_fields.items()]


def _text(name: str, field: FieldInfo, schema: Mapping[str, Any]) -> OptionText:
    # The schema of an optional value is ``anyOf``: the schema of the value, and null.
    value = next((choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}), schema)
    item = value.get("items")
    default = None if field.default_factory else field.default
    return OptionText(
        name=name,
        type=item["type"] + "s" if item else value["type"],
        default=default,
        description=field.description or "",
        values=f"each {_values(item)}" if item and _values(item) else _values(value),
        default_text=schema.get("unset", "") if default is None else _default_text(default),
    )


def _values(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        *others, last = schema["enum"]
        return f"{', '.join(others)} or {last}"
    if {"minimum", "maximum"} <= schema.keys():
        return f"{_number(schema['minimum'])} to {_number(schema['maximum'])}"
    return ", ".join(f"{words} {_number(schema[bound])}" for bound, words in BOUNDS.items() if bound in schema)


def _default_text(default: object) -> str:
    if isinstance(default, bool):
        return "yes" if default else "no"
    if isinstance(default, tuple):
        return ",".join(str(item) for item in default)
    return _number(default) if isinstance(default, float) else str(default)


def _number(value: float) -> str:
    return "2^63 - 1" if value == 2**63 - 1 else f"{value:g}" if isinstance(value, float) else f"{value:,}"
