"""Pages made from code: settings of the service (deploy/murho.toml, docs/settings.md), options of `murho train`.

``python scripts/settings_pages.py`` writes them.
"""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from murho.cli.grammar import uniform
from murho.cli.train import train
from murho.model.training.options import TrainOptions, flag, option_texts
from murho.service.settings import Settings, toml_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo

__all__ = ["EXAMPLE", "PAGES", "example", "with_listing"]

EXAMPLE = Path("deploy/murho.toml")
PAGES = {"settings": Path("docs/settings.md"), "options": Path("docs/options.md")}
HEAD = """\
# Settings of `murho serve --config FILE` (or MURHO_CONFIG=FILE). The lines that are commented out show the defaults.
# An option of the command line goes before the environment (MURHO_ and the name in capitals), and that before this
# file. Relative paths begin where the service is started. `murho serve --show-settings` says what holds, and why.
"""


def example() -> str:
    """The commented example of a configuration file."""
    parts = [HEAD]
    for name, setting in Settings.model_fields.items():
        comment = textwrap.fill(_sentence(setting), 118, initial_indent="# ", subsequent_indent="# ")
        value = "" if setting.default is None else f" {toml_value(setting.default)}"
        parts.append(f"{comment}\n# {name} ={value}\n")
    return "\n".join(parts)


def with_listing(page: str, name: str) -> str:
    """A page with a list between its two marks: the ``settings``, or the ``options`` of `murho train`."""
    items = _settings() if name == "settings" else _options()
    lines = [
        textwrap.fill(" ".join(f"- {item}".split()), 120, subsequent_indent="  ", break_on_hyphens=False)
        for item in items
    ]
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, _, rest = page.partition(begin)
    return "\n".join([before + begin, *lines, end + rest.partition(end)[2]])


def _settings() -> Iterator[str]:
    for name, setting in Settings.model_fields.items():
        default = "" if setting.default in (None, ()) else f" (`{toml_value(setting.default)}`)"
        yield f"`{name}`{default}: {_sentence(setting)}"


def _options() -> Iterator[str]:
    """First the options of the command itself, then those of a training."""
    for parameter in inspect.signature(uniform(train)).parameters.values():
        if parameter.name not in TrainOptions.model_fields and parameter.name != "data":
            (option,) = parameter.annotation.__metadata__
            default = "" if parameter.default in (None, False, True) else f" (`{parameter.default}`)"
            yield f"`{flag(parameter.name)}`{default}: {option.help}"
    for text in option_texts():
        name = f"[{text.name}.NAME]` of the TOML file" if text.type == "object" else f"{text.flag}`"
        yield f"`{name}{', may be repeated' * (text.type == 'strings')}: {text.help}"


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
    for name, page in PAGES.items():
        page.write_text(with_listing(page.read_text(), name))
