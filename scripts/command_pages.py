"""The options of all commands as pages: docs/commands.md, and the table in docs/options.md, which is of `murho train`.

``python scripts/command_pages.py`` writes both.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from murho.command_line import COMMANDS, app
from murho.model.training.options import TrainOptions, option_texts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from murho.model.training.options import OptionText

__all__ = ["COMMANDS_PAGE", "OPTIONS_PAGE", "commands_page", "options_table", "with_table"]

COMMANDS_PAGE, OPTIONS_PAGE = Path("docs/commands.md"), Path("docs/options.md")
BEGIN, END = "<!-- options -->", "<!-- end of options -->"
HEAD = """\
# Commands

What `murho COMMAND --help` prints, on one page. The options of `murho train` have [a page of their own](options.md).
"""


def commands_page() -> str:
    """Returns the page of all commands but ``train``."""
    parts, group = [HEAD], ""
    for name, (_, _, panel) in COMMANDS.items():
        if panel != group:
            parts, group = [*parts, f"## {panel}\n"], panel
        if name != "train":
            command = _command(name)
            table = _table(("argument or option", "meaning", "default"), map(_row, command.params))
            parts.append(f"### murho {name}\n\n{' '.join((command.help or '').split())}\n\n{table}")
    return "\n".join(parts)


def options_table(options: type[TrainOptions] = TrainOptions) -> str:
    """Returns the options of ``train`` as a table in Markdown: first those of the command, then those of a training.

    Args:
        options: `TrainOptions`, or a class with further fields.
    """
    of_command = [_row(each) for each in _command("train").params if each.name not in TrainOptions.model_fields]
    rows = [(name, meaning, "", default) for name, meaning, default in of_command]
    rows += [(_name(text), text.description, text.values, text.default_text) for text in option_texts(options)]
    return _table(("option", "meaning", "values", "default"), rows)


def with_table(page: str) -> str:
    """Returns docs/options.md with the table between its two marks."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{options_table()}\n{END}{rest.partition(END)[2]}"


def _command(name: str) -> Any:
    group: Any = typer.main.get_command(app)
    return group.resolve_command(typer.Context(group), [name])[1]


def _row(parameter: Any) -> tuple[str, str, str]:
    """Name, meaning and default of an argument or option, as typer knows them."""
    names = [parameter.metavar or parameter.name.upper()]
    if parameter.param_type_name == "option":
        names = [*parameter.opts, *parameter.secondary_opts]
    told = parameter.show_default
    shown: Any = told if isinstance(told, str) else "yes" if parameter.default is True else parameter.default or ""
    return ", ".join(f"`{name}`" for name in names), parameter.help or "", str(shown)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = (" | ".join(cell.replace("|", "\\|") for cell in row) for row in [head, ("---",) * len(head), *rows])
    return "".join(f"| {line} |\n" for line in lines)


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
    COMMANDS_PAGE.write_text(commands_page())
    OPTIONS_PAGE.write_text(with_table(OPTIONS_PAGE.read_text()))
