"""The site's page of all commands and their options, made from the commands themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from murho.command_line import COMMANDS, app

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["commands_page"]

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
