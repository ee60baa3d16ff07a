"""Renders the chart as Helm does, for the part of Go's templates that it uses; anything else is an error.

Known: text, comments, `{{-` and `-}}`, `define`, `include`, `if` / `else if` / `else`, `range` over lists and maps,
`with`, fields, `$`, variables of `range`, parentheses, pipes, texts, whole numbers, and the functions of
`FUNCTIONS`. A value that is missing, a number that Helm would print with an exponent, and what is left open raise
`TemplateError`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

__all__ = ["TemplateError", "render_chart"]


class TemplateError(Exception):
    """The template is wrong, says `fail`, or uses what this renderer does not know."""


@dataclass
class Node:
    """Text or an action; blocks have what is in them, and what stands behind their `else`."""

    kind: str
    words: str = ""
    body: list[Node] = field(default_factory=list)
    other: list[Node] = field(default_factory=list)


@dataclass
class Scope:
    """What an expression sees: the dot, the root (`$`) and variables."""

    dot: Any
    root: Any
    variables: Mapping[str, Any] = field(default_factory=dict)


ACTION = re.compile(r"\{\{(-\s)?\s*(.*?)\s*(\s-)?\}\}", re.DOTALL)
TOKEN = re.compile(
    r'\s*(?:("(?:[^"\\]|\\.)*")|(\d+)|(?=[.$A-Za-z_])(\$?[A-Za-z_]\w*|\$)?((?:\.[A-Za-z_]\w*)+|\.)?|([()|]))'
)


def pieces(text: str) -> Iterator[Node]:
    """Texts and actions in their order, with the spaces that the actions take away gone."""
    place, trim = 0, False
    for found in ACTION.finditer(text):
        before = text[place : found.start()]
        before = before.lstrip() if trim else before
        yield Node("text", before.rstrip() if found[1] else before)
        if not (found[2].startswith("/*") and found[2].endswith("*/")):
            yield Node("action", found[2])
        place, trim = found.end(), bool(found[3])
    rest = text[place:]
    yield Node("text", rest.lstrip() if trim else rest)


def parse(
    nodes: Iterator[Node], definitions: dict[str, list[Node]], ends: Sequence[str] = ()
) -> tuple[list[Node], str]:
    """The nodes up to an end, and that end's words."""
    result: list[Node] = []
    for node in nodes:
        word, _, rest = node.words.partition(" ")
        if node.kind == "text":
            result.append(node)
        elif word in ends:
            return result, node.words
        elif word in {"if", "with", "range"}:
            result.append(block(word, rest, nodes, definitions))
        elif word == "define":
            definitions[json.loads(rest)], _ = parse(nodes, definitions, ["end"])
        elif word in {"end", "else", "block", "template", "break", "continue"}:
            raise TemplateError(f"{node.words!r} is not expected here, or not known")
        else:
            result.append(node)
    if ends:
        raise TemplateError(f"{ends} is missing")
    return result, ""


def block(word: str, words: str, nodes: Iterator[Node], definitions: dict[str, list[Node]]) -> Node:
    """An `if`, `with` or `range` with its branches."""
    body, end = parse(nodes, definitions, ["end", "else"])
    other: list[Node] = []
    if end.startswith("else if "):
        other = [block("if", end.removeprefix("else if "), nodes, definitions)]
    elif end == "else":
        other, end = parse(nodes, definitions, ["end"])
    elif end != "end":
        raise TemplateError(f"{end!r} is not known")
    return Node(word, words, body, other)


class Renderer:
    """Renders the templates of a chart with the same definitions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.definitions: dict[str, list[Node]] = {}

    def load(self, path: Path) -> list[Node]:
        return parse(pieces(path.read_text()), self.definitions)[0]

    def render(self, nodes: Sequence[Node], scope: Scope) -> str:
        return "".join(self.one(node, scope) for node in nodes)

    def one(self, node: Node, scope: Scope) -> str:
        if node.kind == "text":
            return node.words
        if node.kind == "action":
            return shown(self.value(node.words, scope))
        if node.kind == "range":
            return self.range(node, scope)
        value = self.value(node.words, scope)
        inner = Scope(value, scope.root, scope.variables) if node.kind == "with" else scope
        return self.render(node.body, inner) if value else self.render(node.other, scope)

    def range(self, node: Node, scope: Scope) -> str:
        named = re.fullmatch(r"\$(\w+), \$(\w+) := (.*)", node.words)
        values = self.value(named[3] if named else node.words, scope)
        pairs = sorted(values.items()) if isinstance(values, Mapping) else list(enumerate(values))
        if not pairs:
            return self.render(node.other, scope)
        parts = []
        for key, value in pairs:
            variables = {**scope.variables, **({f"${named[1]}": key, f"${named[2]}": value} if named else {})}
            parts.append(self.render(node.body, Scope(value, scope.root, variables)))
        return "".join(parts)

    def value(self, words: str, scope: Scope) -> Any:
        tokens: list[tuple[str, str]] = []
        place = 0
        while place < len(words.rstrip()):
            found = TOKEN.match(words, place)
            if found is None or found.end() == place or not found.group().strip():
                raise TemplateError(f"{words!r} is not understood from {words[place:]!r}")
            place = found.end()
            if found[1] or found[2] or found[5]:
                tokens.append(("literal" if not found[5] else found[5], found[1] or found[2] or ""))
            else:
                tokens.append((found[3] or "", found[4] or ""))
        value = self.pipeline(tokens, scope)
        if tokens:
            raise TemplateError(f"{words!r} has too much at its end")
        return value

    def pipeline(self, tokens: list[tuple[str, str]], scope: Scope) -> Any:
        value = self.command(tokens, scope, [])
        while tokens and tokens[0][0] == "|":
            tokens.pop(0)
            value = self.command(tokens, scope, [value])
        return value

    def command(self, tokens: list[tuple[str, str]], scope: Scope, last: list[Any]) -> Any:
        if not tokens:
            raise TemplateError("an expression is missing")
        name, path = tokens[0]
        if name in FUNCTIONS or name == "include" or path == ".Files.Get":
            tokens.pop(0)
            arguments = []
            while tokens and tokens[0][0] not in {"|", ")"}:
                arguments.append(self.operand(tokens, scope))
            arguments += last
            if path == ".Files.Get":
                return (self.folder / arguments[0]).read_text()
            if name == "include":
                return self.render(self.definitions[arguments[0]], Scope(arguments[1], arguments[1]))
            return FUNCTIONS[name](*arguments)
        if last:
            raise TemplateError(f"{name or path} is no known function")
        return self.operand(tokens, scope)

    def operand(self, tokens: list[tuple[str, str]], scope: Scope) -> Any:
        name, path = tokens.pop(0)
        if name == "literal":
            return json.loads(path)
        if name == "(":
            value = self.pipeline(tokens, scope)
            if not tokens or tokens.pop(0)[0] != ")":
                raise TemplateError("a ) is missing")
            return value
        if name == "$":
            value = scope.root
        elif name.startswith("$"):
            value = scope.variables[name]
        elif name:
            raise TemplateError(f"{name} is no known function")
        else:
            value = scope.dot
        for key in path.split("."):
            if key:
                if not isinstance(value, Mapping) or key not in value:
                    raise TemplateError(f"{path}: there is no {key}")
                value = value[key]
        return value


def shown(value: Any) -> str:
    """A value as Go prints it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    # Helm reads whole numbers of values as floating point, which Go prints with an exponent from a million on.
    if isinstance(value, Exact) or (isinstance(value, int) and abs(value) < 1_000_000):
        return str(int(value))
    raise TemplateError(f"{value!r} can't be printed; numbers from a million on need int64")


class Exact(int):
    """A whole number that the template has made one: it is printed without an exponent."""


def to_yaml(value: Any) -> str:
    if not isinstance(value, (Mapping, list)):
        raise TemplateError(f"toYaml of {value!r}")
    text: str = yaml.safe_dump(value, default_flow_style=False, width=100_000)
    return text.removesuffix("\n")


def indented(width: int, text: str) -> str:
    return "\n" + "\n".join(" " * width + line for line in text.split("\n"))


def fail(message: str) -> Any:
    raise TemplateError(message)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": lambda *values: Exact(sum(values)),
    "and": lambda first, second: first and second,
    "fail": fail,
    "int": lambda value: Exact(int(value)),
    "int64": lambda value: Exact(int(value)),
    "nindent": indented,
    "not": lambda value: not value,
    "printf": lambda form, *values: form % tuple(values),
    "quote": lambda value: json.dumps(shown(value), ensure_ascii=False),
    "toYaml": to_yaml,
    "trimSuffix": lambda suffix, text: text.removesuffix(suffix),
    "trunc": lambda length, text: text[:length],
    "upper": lambda text: text.upper(),
}


def merged(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Values with changes, as Helm joins them: maps key by key, anything else as a whole."""
    result = dict(values)
    for key, value in changes.items():
        both = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
        result[key] = merged(result[key], value) if both else value
    return result


def render_chart(folder: Path, changes: Mapping[str, Any], *, release: str = "scoring") -> dict[str, str]:
    """The text that each template of a chart gives, by the template's name.

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
        "Files": {},
    }
    renderer = Renderer(folder)
    loaded = {path.name: renderer.load(path) for path in sorted((folder / "templates").iterdir())}
    return {
        name: renderer.render(nodes, Scope(scope, scope)) for name, nodes in loaded.items() if not name.startswith("_")
    }
