"""Texts made from code: settings of the service and options of commands.

``python scripts/settings_pages.py`` writes deploy/murho.toml. The lists of the site are made with it, by
`scripts/site_pages.py`.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import typer

from murho.command_line import COMMANDS, app
from murho.model.training.options import option_texts
from murho.service.settings import Settings, toml_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo

EXAMPLE = Path("deploy/murho.toml")
HEAD = """\
# Settings of `murho serve --config FILE` (or MURHO_CONFIG=FILE). The lines that are commented out show the defaults.
# An option of the command line goes before the environment (MURHO_ and the name in capitals), and that before this
# file. Relative paths begin where the service is started. `murho serve --show-settings` says what holds, and why.
"""


def example() -> str:
    """Return the commented example of a configuration file."""
    parts = [HEAD]
    for name, setting in Settings.model_fields.items():
        comment = textwrap.fill(_sentence(setting), 118, initial_indent="# ", subsequent_indent="# ")
        value = "" if setting.default is None else f" {toml_value(setting.default)}"
        parts.append(f"{comment}\n# {name} ={value}\n")
    return "\n".join(parts)


def with_listing(page: str, name: str) -> str:
    """Return a page with a list between its two marks: ``settings``, ``options`` of `murho train`, ``commands``."""
    items = {"settings": _settings, "options": _options, "commands": _commands}[name]()
    lines = [
        item
        if item.startswith(("#", "\n"))
        else textwrap.fill(" ".join(f"- {item}".split()), 120, subsequent_indent="  ", break_on_hyphens=False)
        for item in items
    ]
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, _, rest = page.partition(begin)
    return "\n".join([before + begin, *lines, end + rest.partition(end)[2]])


def commands_page() -> str:
    """Return the page of all commands and their options, which the site alone has."""
    about = "What `murho COMMAND --help` prints. The options of `murho train` have [their own](options.md)."
    return with_listing(f"# Commands\n\n{about}\n\n<!-- commands -->\n<!-- end of commands -->\n", "commands")


def _settings() -> Iterator[str]:
    for name, setting in Settings.model_fields.items():
        default = "" if setting.default in (None, ()) else f" (`{toml_value(setting.default)}`)"
        yield f"`{name}`{default}: {_sentence(setting)}"


def _options() -> Iterator[str]:
    yield from _listed("train")
    yield from (
        f"`[{each.name}.NAME]` of the TOML file: {each.help}" for each in option_texts() if each.type == "object"
    )


def _commands() -> Iterator[str]:
    panel = ""
    for name, (about, group) in COMMANDS.items():
        if group != panel:
            panel = group
            yield f"\n## {panel}"
        if name != "train":
            yield f"\n### murho {name}\n\n{about}\n"
            yield from _listed(name)


def _listed(command: str) -> Iterator[str]:
    """Return the arguments and options of a command, as typer knows them."""
    group: Any = typer.main.get_command(app)
    for each in group.resolve_command(typer.Context(group), [command])[1].params:
        option = each.param_type_name == "option"
        names = [*each.opts, *each.secondary_opts] if option else [each.metavar or each.name.upper()]
        shown = each.show_default if isinstance(each.show_default, str) else each.default
        default = "" if shown in (None, False, True) else f" (`{shown}`)"
        yield f"{', '.join(f'`{name}`' for name in names)}{default}: {each.help}"


def _sentence(field: FieldInfo) -> str:
    """Return the description, and the choices where there are some."""
    text = " ".join((field.description or "").split())
    choices = _choices(field.annotation)
    return f"{text} One of {', '.join(choices)}." if choices else text


def _choices(annotation: Any) -> list[str]:
    return [str(choice) for choice in get_args(annotation)] if get_origin(annotation) is Literal else []


if __name__ == "__main__":
    EXAMPLE.parent.mkdir(exist_ok=True)
    EXAMPLE.write_text(example())
