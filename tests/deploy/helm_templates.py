"""Renders the chart as Helm does, by translating the part of Go's templates that it uses into Jinja's.

Known: text, comments, `{{-` and `-}}`, `define`, `include`, `if` / `else if` / `else`, `range` over lists and maps,
`with`, fields, variables of `range`, parentheses, pipes, texts, whole numbers, and the functions of `FUNCTIONS`. What
is not known, a value that is missing, and a number that Helm would print with an exponent are errors.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import yaml
from jinja2 import Environment, StrictUndefined, TemplateError, TemplateRuntimeError

__all__ = ["TemplateError", "render_chart"]

ACTION = re.compile(r"\{\{(-?)\s*(.*?)\s*(-?)\}\}", re.DOTALL)
TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|\d+|\$\w*|(?:\.\w+)+|\w+|[.()|])')


class Exact(int):
    """A whole number that the template has made one: Go prints it without an exponent."""


def shown(value: Any) -> str:
    """Return a value as Go prints it; Helm reads whole numbers of values as floating point."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | Exact) or (isinstance(value, int) and abs(value) < 1_000_000):
        return str(value)
    raise TemplateRuntimeError(f"{value!r} can't be printed; numbers from a million on need int64")


def fail(message: str) -> NoReturn:
    raise TemplateRuntimeError(message)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": lambda *values: Exact(sum(values)),
    "div": lambda value, by: Exact(value // by),
    "has": lambda value, items: value in items,
    "mul": lambda *values: Exact(math.prod(values)),
    "or": lambda first, second: first or second,
    "and": lambda first, second: first and second,
    "fail": fail,
    "int": lambda value: Exact(int(value)),
    "int64": lambda value: Exact(int(value)),
    "nindent": lambda width, text: "\n" + "\n".join(" " * width + line for line in text.split("\n")),
    "not": lambda value: not value,
    "printf": lambda form, *values: form % values,
    "quote": lambda value: json.dumps(shown(value), ensure_ascii=False),
    "toYaml": lambda value: yaml.safe_dump(value, width=100_000).removesuffix("\n"),
    "trimSuffix": lambda suffix, text: text.removesuffix(suffix),
    "trunc": lambda length, text: text[:length],
    "upper": lambda text: text.upper(),
}


def macro(name: str) -> str:
    """Return the name of a definition in Jinja."""
    return re.sub(r"\W", "_", json.loads(name))


def expression(words: str) -> str:
    """Return an expression of Go's templates in Jinja: a function's last argument comes out of the pipe before it."""
    tokens: list[str] = TOKEN.findall(words)
    if "".join(tokens) != "".join(re.findall(r'"(?:[^"\\]|\\.)*"|\S', words)):
        raise TemplateError(f"{words!r} is not understood")

    def operand() -> str:
        word = tokens.pop(0)
        if word == "(":
            value = pipeline()
            return value if tokens and tokens.pop(0) == ")" else fail(f"{words!r}: a ) is missing")
        if word.startswith("."):
            return "dot" + "".join(f"[{key!r}]" for key in word.split(".") if key)
        return word.removeprefix("$")

    def pipeline() -> str:
        value = command([])
        while tokens[:1] == ["|"]:
            tokens.pop(0)
            value = command([value])
        return value

    def command(last: list[str]) -> str:
        name = tokens[0] if tokens else fail(f"{words!r}: a value is missing")
        if name not in {*FUNCTIONS, "include", ".Files.Get"}:
            return operand() if not last else fail(f"{name} is no known function")
        tokens.pop(0)
        arguments = []
        while tokens and tokens[0] not in "|)":
            arguments.append(operand())
        if name == "include":
            return f"{macro(arguments[0])}({arguments[1]})"
        return f"functions[{name!r}]({', '.join([*arguments, *last])})"

    found = pipeline()
    return found if not tokens else fail(f"{words!r} has too much at its end")


def translated(text: str) -> str:
    """Return a template of Go in Jinja."""
    ends: list[str] = []

    def tag(found: re.Match[str]) -> str:
        left, words, right = found.groups()
        word, _, rest = words.partition(" ")
        if words.startswith("/*"):
            code = "#", "", "#"
        elif word == "define":
            ends.append("endmacro")
            code = "%", f"macro {macro(rest)}(dot)", "%"
        elif word == "if":
            ends.append("endif")
            code = "%", f"if {expression(rest)}", "%"
        elif word == "else":
            code = "%", f"elif {expression(rest.removeprefix('if '))}" if rest else "else", "%"
        elif word == "with":
            ends.append("endwith %}{% endif")
            code = "%", f"if {expression(rest)} %}}{{% with dot = {expression(rest)}", "%"
        elif word == "range":
            ends.append("endfor")
            named = re.fullmatch(r"\$(\w+), \$(\w+) := (.*)", rest)
            each = f"{named[1]}, {named[2]} in {expression(named[3])}.items()|sort" if named else ""
            code = "%", f"for {each or f'dot in {expression(rest)}'}", "%"
        elif word == "end":
            code = "%", ends.pop(), "%"
        else:
            code = "{", expression(words), "}"
        opening, inside, closing = code
        return f"{{{opening}{left} {inside} {right}{closing}}}"

    result = ACTION.sub(tag, text)
    return result if not ends else fail(f"{ends} is missing")


def merged(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Values with changes, as Helm joins them: maps key by key, anything else as a whole."""
    result = dict(values)
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else value
    return result


def render_chart(folder: Path, changes: Mapping[str, Any], *, release: str = "scoring") -> dict[str, str]:
    """Return the text that each template of a chart gives, by the template's name.

    Args:
        folder: The chart.
        changes: Values other than the defaults.
        release: Its name.
    """
    chart = yaml.safe_load((folder / "Chart.yaml").read_text())
    scope = {
        "Values": merged(yaml.safe_load((folder / "values.yaml").read_text()), changes),
        "Release": {"Name": release, "Namespace": "models", "Service": "Helm"},
        "Chart": {key[0].upper() + key[1:]: value for key, value in chart.items()},
    }
    functions = {**FUNCTIONS, ".Files.Get": lambda name: (folder / name).read_text()}
    jinja = Environment(undefined=StrictUndefined, finalize=shown, keep_trailing_newline=True, autoescape=False)  # noqa: S701
    texts = {path.name: translated(path.read_text()) for path in sorted((folder / "templates").iterdir())}
    helpers = texts.pop("_helpers.tpl").rstrip() + "{#- -#}"
    return {
        name: jinja.from_string(f"{helpers}{text}").render(dot=scope, functions=functions)
        for name, text in texts.items()
    }
