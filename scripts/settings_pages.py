"""The settings of the service as pages: deploy/murho.toml and the list in docs/settings.md.

``python scripts/settings_pages.py`` writes both.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from murho.service.settings import Settings, toml_value

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

__all__ = ["EXAMPLE", "PAGE", "example", "with_listing"]

EXAMPLE, PAGE = Path("deploy/murho.toml"), Path("docs/settings.md")
BEGIN, END = "<!-- settings -->", "<!-- end of settings -->"
HEAD = """\
# Settings of `murho serve --config FILE` (or MURHO_CONFIG=FILE). The lines that are commented out show the defaults.
# An option of the command line goes before the environment (MURHO_ and the name in capitals), and that before this
# file. Relative paths begin where the service is started. `murho serve --show-settings` says what holds, and why.
"""


def example() -> str:
    """Returns the commented example of a configuration file."""
    parts = [HEAD]
    for name, setting in Settings.model_fields.items():
        comment = textwrap.fill(_sentence(setting), 118, initial_indent="# ", subsequent_indent="# ")
        value = "" if setting.default is None else f" {toml_value(setting.default)}"
        parts.append(f"{comment}\n# {name} ={value}\n")
    return "\n".join(parts)


def listing() -> str:
    """Returns the list of all settings, in Markdown."""
    items = []
    for name, setting in Settings.model_fields.items():
        default = "" if setting.default in (None, ()) else f" (`{toml_value(setting.default)}`)"
        text = f"- `{name}`{default}: {_sentence(setting)}"
        items.append(textwrap.fill(text, 120, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False))
    return "\n".join(items)


def with_listing(page: str) -> str:
    """Returns a page with the list between its two marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{listing()}\n{END}{after}"


def _sentence(field: FieldInfo) -> str:
    """Returns the description, and the choices where there are some."""
    text = " ".join((field.description or "").split())
    choices = _choices(field.annotation)
    return f"{text} One of {', '.join(choices)}." if choices else text


def _choices(annotation: Any) -> list[str]:
    return [str(choice) for choice in get_args(annotation)] if get_origin(annotation) is Literal else []


if __name__ == "__main__":
    EXAMPLE.parent.mkdir(exist_ok=True)
    EXAMPLE.write_text(example())
    PAGE.write_text(with_listing(PAGE.read_text()))
