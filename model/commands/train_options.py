"""Options of a training as options of a command: converts `TrainOptions` to typer's parameters, and back."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from murho.model.errors import OptionError
from murho.model.training.option_texts import option_texts
from murho.model.training.options import TrainOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from murho.model.training.option_texts import OptionText

__all__ = ["option_parameters", "option_values", "with_train_options"]

Command = TypeVar("Command", bound="Callable[..., None]")

TYPES: dict[str, Any] = {
    "boolean": bool,
    "integer": int,
    "number": float,
    "string": str,
    "integers": str,  # such as 50,50
    "strings": list[str],
}
"""Type of an `OptionText` → type of the command's parameter. An ``object`` is for the TOML file alone."""


def with_train_options(command: Command) -> Command:
    """Replace the ``**given`` of a command by one option for each field of `TrainOptions`."""
    fixed = [
        parameter
        for parameter in inspect.signature(command, eval_str=True).parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD
    ]
    signature = inspect.Signature([*fixed, *option_parameters()])
    command.__signature__ = signature  # type: ignore[attr-defined]  # what `inspect.signature`, and so typer, reads
    return command


def option_parameters(options: type[TrainOptions] = TrainOptions) -> list[inspect.Parameter]:
    """Parameters of a command, one for each field that a command line can express.

    Their default is None, "not given". The value then comes from the TOML file, or else from the default of the field.

    Args:
        options: `TrainOptions`, or a class with further fields.
    """
    return [
        inspect.Parameter(
            text.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[TYPES[text.type] | None, typer.Option(help=_help(text))],
        )
        for text in option_texts(options)
        if text.type in TYPES
    ]


def _help(text: OptionText) -> str:
    return f"{text.help} May be repeated." if text.type == "strings" else text.help


def option_values(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that the user gave, as `model.training.options.make_options` takes them.

    Args:
        given: Option → the value from typer; None or empty if it was not given.

    Raises:
        OptionError: A list of whole numbers contains something else; the option is named.
    """
    flags = {text.name: text.flag for text in option_texts() if text.type == "integers"}
    values = {name: value for name, value in given.items() if value is not None and value != []}
    return {name: whole_numbers(flags[name], value) if name in flags else value for name, value in values.items()}


def whole_numbers(option: str, text: str) -> tuple[int, ...]:
    """Parse a list such as ``50,50``; raises an OptionError that names the option if an item is not a whole number."""
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise OptionError(f"{option}: expected whole numbers parted by commas, such as 50,50, not {text!r}") from None
