"""The table of the options of `murho train` in docs/options.md.

``python scripts/options_table.py`` prints it.
"""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING

from murho.cli.grammar import uniform
from murho.cli.train import train
from murho.model.training.options import TrainOptions, flag, option_texts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from murho.model.training.options import OptionText

__all__ = [
    "markdown_table",
]

HEAD = ("option", "meaning", "values", "default")


def markdown_table(options: type[TrainOptions] = TrainOptions) -> str:
    """The options as a table in Markdown: first the options of the command itself, then those of a training.

    Args:
        options: `TrainOptions`, or a class with further fields.
    """
    rows = [HEAD, ("---",) * len(HEAD), *_command_rows()]
    rows += [(_name(text), text.description, text.values, text.default_text) for text in option_texts(options)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _command_rows() -> Iterator[tuple[str, ...]]:
    for parameter in inspect.signature(uniform(train)).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.name not in TrainOptions.model_fields:
            (option,) = parameter.annotation.__metadata__
            name = flag(parameter.name)
            said = option.show_default if isinstance(option.show_default, str) else ""
            if parameter.default is True or said:
                yield f"`{name}`, `--no-{name[2:]}`", option.help, "", said or "yes"
                continue
            default = "" if parameter.default in (None, False) else str(parameter.default)
            yield f"`{name}`", option.help, "", default


def _name(text: OptionText) -> str:
    match text.type:
        case "boolean":
            return f"`{text.flag}`, `--no-{text.flag[2:]}`"
        case "strings":
            return f"`{text.flag}`, may be repeated"
        case "object":
            return f"`[{text.name}.NAME]` of the TOML file"
        case _:
            return f"`{text.flag}`"


if __name__ == "__main__":
    sys.stdout.write(markdown_table())
