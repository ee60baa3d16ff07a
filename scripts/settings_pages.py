"""Texts made from code: settings of the service and options of commands.

``python scripts/settings_pages.py`` writes deploy/murho.toml and the lists of docs/reference.md. The options of the
other commands are on the site only: `scripts/site_pages.py` adds them to that page.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import typer

from murho.command_line import COMMANDS, app
from murho.service.settings import Settings, toml_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo

EXAMPLE = Path("deploy/murho.toml")
REFERENCE = Path(__file__).resolve().parent.parent / "docs" / "reference.md"
HEAD = """\
# Settings of `murho serve --config FILE` (or MURHO_CONFIG=FILE). The lines that are commented out show the defaults.
# An option of the command line goes before the environment (MURHO_ and the name in capitals), and that before this
# file. Relative paths begin where the service is started. `murho serve --show-settings` prints the settings and where
# each comes from. docs/reference.md shows examples.
"""
EXAMPLES = {
    "hosts": "murho.example,*.test",
    "root_path": "/murho",
    "ssl_certfile": "/etc/murho/tls.crt",
    "ssl_keyfile": "/etc/murho/tls.key",
    "pinned": "cars=3,rents=1",
    "store": "murho.db",
    "api_keys": "dashboard:sha256:…",
    "api_keys_file": "/run/secrets/keys",
    "open_paths": "/metrics,/docs",
    "cors_origins": "https://app.example",
    "trusted_proxies": "10.0.0.0/8",
    "row_draws_per_second": "1e6",
    "--target": "price",
    "--config": "houses.toml",
    "--ignore": "Name",
    "--group": "patient",
    "--time": "day",
    "--missing-value": "-200",
    "--keep": "None",
    "--weight": "area",
    "--target-minimum": "0",
    "--target-maximum": "100",
    "--file-encoding": "latin-1",
}
"""Setting or option → an example of its value, where neither default nor description shows the form."""


def example() -> str:
    """Return the commented example of a configuration file."""
    parts = [HEAD]
    for name, setting in Settings.model_fields.items():
        comment = textwrap.fill(_sentence(setting), 118, initial_indent="# ", subsequent_indent="# ")
        value = "" if setting.default is None else f" {toml_value(setting.default)}"
        parts.append(f"{comment}\n# {name} ={value}\n")
    return "\n".join(parts)


def reference() -> str:
    """Return docs/reference.md with its lists of settings and of options of `murho train`, as they are now."""
    return with_listing(with_listing(REFERENCE.read_text(encoding="utf-8"), "settings"), "options")


def with_listing(page: str, name: str) -> str:
    """Return a page with a list between its two marks: ``settings``, ``options`` of `murho train`, ``commands``."""
    items = {"settings": _settings, "options": _options, "commands": _commands}[name]()
    lines = [
        textwrap.fill(" ".join(item.split()), 120, break_on_hyphens=False, break_long_words=False) for item in items
    ]
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, _, rest = page.partition(begin)
    return "\n\n".join([before + begin, *lines, end + rest.partition(end)[2]])


def _settings() -> Iterator[str]:
    for name, setting in Settings.model_fields.items():
        default = toml_value(setting.default).strip('"') if setting.default not in (None, (), "") else ""
        yield f"### `{name}`"
        yield _with_value(_sentence(setting), f"MURHO_{name.upper()}=", default, name)


def _options() -> Iterator[str]:
    panel = ""
    for each in sorted(_parameters("train"), key=lambda each: PANELS.index(each.rich_help_panel or PANELS[0])):
        if (each.rich_help_panel or PANELS[0]) != panel:
            panel = each.rich_help_panel or PANELS[0]
            yield f"### {panel}"
        if each.param_type_name == "option":
            yield f"#### `{each.opts[0]}`"
            if each.is_flag and (each.default or each.opts[0] == "--skip"):
                yield f"{each.help} Example: `{each.secondary_opts[0]}`"
            else:
                default = each.default if isinstance(each.default, str) else None
                yield _with_value(each.help, f"{each.opts[0]} ", default, each.opts[0])


PANELS = ("Options", "Data", "Validation", "Model", "Expert")
"""The groups of options of `murho train`, in their order."""


def _commands() -> Iterator[str]:
    for name, (about, _) in COMMANDS.items():
        if name != "train":
            yield f"### murho {name}"
            yield about
            yield from map(_listed, _parameters(name))


def _listed(each: Any) -> str:
    option = each.param_type_name == "option"
    names = [*each.opts, *each.secondary_opts] if option else [each.metavar or each.name.upper()]
    shown = each.show_default if isinstance(each.show_default, str) else each.default
    default = "" if shown in (None, False, True) else f" (`{shown}`)"
    return f"{', '.join(f'`{name}`' for name in names)}{default}: {each.help}"


def _parameters(command: str) -> list[Any]:
    """Return the arguments and options of a command, as typer knows them."""
    group: Any = typer.main.get_command(app)
    parameters: list[Any] = group.resolve_command(typer.Context(group), [command])[1].params
    return parameters


def _with_value(text: str, begin: str, default: str | None, name: str) -> str:
    """Return a description with the default or else the example, where there is one."""
    if default:
        return f"{text} Default: `{begin}{default}`"
    return f"{text} Example: `{begin}{EXAMPLES[name]}`" if name in EXAMPLES else text


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
    REFERENCE.write_text(reference())
