"""The command `murho train`: fits a network to a table and saves it as a checkpoint.

Imports of numpy and torch wait until the command runs, so that its ``--help`` answers at once.
"""

from __future__ import annotations

import inspect
import os
import re
import shlex
import sys
import time
import tomllib
import unicodedata
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from pydantic import ValidationError

from murho.cli.shared import CheckpointsOption, DeviceOption, JsonOption, naming, print_json, print_lines
from murho.model.errors import OptionError
from murho.model.tables.overrides import ColumnOverride
from murho.model.training.options import TrainOptions, flag, make_options, option_texts, problem_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pydantic_core import ErrorDetails

    from murho.model.checkpoint.stores import WrittenVersion
    from murho.model.python.progress import TerminalReporter
    from murho.model.tables.data_report import DataReport
    from murho.model.training.options import OptionText
    from murho.model.training.train import Trained

__all__ = [
    "line_of",
    "meant",
    "next_commands",
    "option_parameters",
    "option_values",
    "read_config",
    "train",
    "with_train_options",
]


DEFAULT_CHECKPOINTS = "checkpoints"


def next_commands(written: WrittenVersion) -> list[str]:
    """Lines for people: the commands that use a checkpoint, each with what it is for.

    Args:
        written: The version that was saved.
    """
    place, name = written.place, written.name
    where = "" if place == DEFAULT_CHECKPOINTS else f" --checkpoints {shlex.quote(place)}"
    commands = {
        f"murho predict NEW.csv --model {name}{where}": "predictions with error bars",
        f"murho evaluate KEPT_BACK.csv --model {name}{where}": "how good they are, on rows not in the training",
        f"murho serve{where}": "over HTTP, with a page to try it",
    }
    width = max(map(len, commands))
    return ["next:", *(f"  {command:<{width}}  {purpose}" for command, purpose in commands.items())]


HEADER = re.compile(r"\s*\[\[?([^\[\]]+)\]")
KEY = re.compile(r"\s*([^=#\[\]{}]+?)\s*=")
LIKE = 0.6
"""Least similarity of a name and what may be meant by it, from 0 to 1 (`difflib`)."""


def line_of(text: str, *keys: str) -> int | None:
    """The number of the line, from 1, that gives a key, or the nearest table around it.

    Args:
        text: Valid TOML.
        keys: The key, from the outside in; ``-`` and ``_`` are the same.

    Returns:
        None if it is not found.
    """
    wanted = tuple(map(_plain, keys))
    for length in range(len(wanted), 0, -1):
        table: tuple[str, ...] = ()
        for number, line in enumerate(text.splitlines(), start=1):
            header = HEADER.match(line)
            if header:
                here = table = _parts(header[1])
            elif key := KEY.match(line):
                here = table + _parts(key[1])
            else:
                continue
            if here[:length] == wanted[:length]:
                return number
    return None


def meant(name: str, known: Iterable[str]) -> str:
    """A question after the known name that is most like another, to end a message with; else empty."""
    names = {_plain(each): each for each in known}
    close = get_close_matches(_plain(name), names, n=1, cutoff=LIKE)
    return f"; did you mean {names[close[0]]!r}?" if close else ""


def _parts(key: str) -> tuple[str, ...]:
    """The parts of a dotted key."""
    try:
        value: object = tomllib.loads(f"{key} = 0")
    except tomllib.TOMLDecodeError:
        return ()
    parts = []
    while isinstance(value, dict):
        ((part, value),) = value.items()
        parts.append(_plain(part))
    return tuple(parts)


def _plain(name: str) -> str:
    return name.replace("-", "_").lower()


OF_FILES = ("target", "name")
"""What a file may have besides the fields of `TrainOptions`."""
OF_COLUMNS = tuple(field.name for field in fields(ColumnOverride))


def read_config(path: Path) -> dict[str, Any]:
    """Read options from a TOML file, with the names of the command line and ``[columns.NAME]`` tables.

    Args:
        path: The file. Besides the fields of `TrainOptions` it may have ``target`` and ``name``. Instead of ``target``
            it may have a table ``[target]`` with ``name``, ``minimum`` and ``maximum``.

    Returns:
        The values by name; each is valid by itself. ``-`` in names becomes ``_``.

    Raises:
        OptionError: The file can't be read or is not valid TOML, or a name or a value in it is wrong: its line is
            named and, where a name looks like an option, that option.
    """
    try:
        text = path.read_text(encoding="utf-8")
        values = tomllib.loads(text)
    except OSError as error:
        raise OptionError(f"{path}: can't read the configuration: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OptionError(f"{path}: not valid TOML: {error}") from error
    _check_names(path, text, values)
    values = {name.replace("-", "_"): value for name, value in values.items()}
    if isinstance(values.get("target"), dict):
        values |= _target_table(values.pop("target"), path, text)
    _check_values(path, text, values)
    return values


def _check_names(path: Path, text: str, values: dict[str, Any]) -> None:
    """Refuse names that are no options, in a file and in its ``[columns.NAME]`` tables."""
    known = [*OF_FILES, *(flag(name).removeprefix("--") for name in TrainOptions.model_fields)]
    for name in values:
        if name.replace("_", "-") not in known:
            advice = meant(name, known) or "; `murho train --help` lists the options"
            raise OptionError(f"{_place(path, text, name)}: there is no option {name!r}{advice}")
    columns = values.get("columns")
    for column, override in columns.items() if isinstance(columns, dict) else ():
        for name in override if isinstance(override, dict) else ():
            if name not in OF_COLUMNS:
                advice = meant(name, OF_COLUMNS)
                if name.replace("_", "-") in known:
                    advice = "; options come before the first table of the file"
                named = ", ".join(OF_COLUMNS)
                where = _place(path, text, "columns", column, name)
                raise OptionError(f"{where}: [columns.{column}] has {named}, but not {name!r}{advice}")


def _check_values(path: Path, text: str, values: dict[str, Any]) -> None:
    try:
        TrainOptions.model_validate({name: value for name, value in values.items() if name not in OF_FILES})
    except ValidationError as error:
        lines = [
            f"{_place(path, text, *map(str, problem['loc']))}: {problem_text(problem)}{_value_meant(problem)}"
            for problem in error.errors()
        ]
        raise OptionError("; ".join(lines)) from None


def _value_meant(problem: ErrorDetails) -> str:
    """The choice that a misspelt one looks like."""
    choices = re.findall(r"'([^']*)'", problem["msg"]) if problem["type"] in ("literal_error", "enum") else []
    return meant(problem["input"], choices) if isinstance(problem["input"], str) else ""


def _place(path: Path, text: str, *keys: str) -> str:
    line = line_of(text, *keys)
    return str(path) if line is None else f"{path}, line {line}"


def _target_table(table: dict[str, Any], path: Path, text: str) -> dict[str, Any]:
    """The values of a ``[target]`` table, by the names of options."""
    names = {"name": "target", "minimum": "target_minimum", "maximum": "target_maximum"}
    unknown = sorted(table.keys() - names.keys())
    if unknown:
        where = _place(path, text, "target", unknown[0])
        raise OptionError(f"{where}: [target] has {', '.join(names)}, but not {unknown[0]!r}{meant(unknown[0], names)}")
    return {names[name]: value for name, value in table.items()}


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


@with_train_options
def train(
    data: Annotated[Path, typer.Argument(help="CSV, Parquet, Arrow, JSON or Excel file; .gz and .zip, too.")],
    *,
    target: Annotated[str | None, typer.Option(help="Column to predict.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the checkpoint; by default that of the file.")] = None,
    checkpoints: CheckpointsOption = "checkpoints",
    config: Annotated[Path | None, typer.Option(help="TOML file with options, and kinds and units of columns.")] = None,
    report: Annotated[
        bool | None,
        typer.Option(
            "--report/--no-report",
            help="Write report.html and its charts beside the checkpoint.",
            show_default="yes, without --quick",
        ),
    ] = None,
    report_rows: Annotated[
        bool, typer.Option("--report-rows/--no-report-rows", help="Show rows of the table in the report.")
    ] = True,
    device: DeviceOption = "auto",
    json: JsonOption = False,
    **given: Any,
) -> None:
    """Fit a Bayesian network to a table and save it as a checkpoint."""
    from murho.model.checkpoint.stores import store_at
    from murho.model.runtime import check_device, resolve_device, use_threads_for_fitting
    from murho.model.tables.files import require_file

    began = time.monotonic()
    # First what can be said at once; then the imports that take seconds.
    column, chosen_name, options = _settings(data, target, name, config, given)
    check_device(device)
    require_file(data)
    with_report = not options.quick if report is None else report
    store = store_at(checkpoints)
    store.check_writable(chosen_name)
    from murho.model.tables.columns import release_memory
    from murho.model.tables.files import open_table
    from murho.model.training.prepared_table import prepare_table, rows_for_budget

    table = open_table(data)
    with naming(data):
        prepared = prepare_table(table, column, options)
        described = prepared.report()
    _say_report(described, data)
    prepared = rows_for_budget(prepared, options)
    del table  # a large one takes memory that the fits need
    release_memory()

    from murho.model.python.progress import TerminalReporter
    from murho.model.runtime import interrupts_held_back
    from murho.model.training.train import train as train_on_table

    resolved = resolve_device(device)
    with TerminalReporter() as reporter:
        with use_threads_for_fitting(resolved), naming(data):
            trained = train_on_table(
                prepared.given,
                column,
                options,
                reporter=reporter,
                device=resolved,
                prepared=prepared,
                began=began,
            )
        with interrupts_held_back():
            extras = _report_files(chosen_name, trained, reporter, with_rows=report_rows) if with_report else {}
            written = store.write(chosen_name, trained.spec, trained.tensors, extras=extras)
    _print_outcome(trained, written, described, as_json=json)


def _settings(
    data: Path, target: str | None, name: str | None, config: Path | None, given: Mapping[str, Any]
) -> tuple[str, str, TrainOptions]:
    """The target, the name of the checkpoint and the options that the command line and a TOML file give.

    Args:
        data: The file of the table.
        target: ``--target``.
        name: ``--name``.
        config: ``--config``.
        given: The options of a training, as typer has them.

    Raises:
        OptionError: One can't be used, or there is no target.
        CheckpointError: The name is not allowed.
    """
    from murho.model.checkpoint.directories import validate_name

    values = {} if config is None else read_config(config)
    configured = {key: values.pop(key, None) for key in ("target", "name")}
    column = target or configured["target"]
    given_name = name or configured["name"]
    chosen_name = validate_name(str(given_name)) if given_name else _name_of(data)
    options = make_options(values | option_values(given))
    if not isinstance(column, str):
        raise OptionError("say which column to predict: --target COLUMN")
    return column, chosen_name, options


def _name_of(data: Path) -> str:
    """The name of a checkpoint that the name of a file gives.

    Raises:
        OptionError: It gives none; the message suggests one.
    """
    from murho.model.checkpoint.directories import validate_name
    from murho.model.errors import CheckpointError

    name = data.name.split(".")[0] or data.name
    try:
        return validate_name(name)
    except CheckpointError as error:
        plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
        suggested = re.sub(r"[^A-Za-z0-9_]+", "-", plain).strip("-_")[:64].rstrip("-_") or "model"
        raise OptionError(f"{error}; give one, such as --name {suggested}") from error


def _say_report(described: DataReport, data: Path) -> None:
    from murho.model.tables.data_report import report_lines

    width = os.get_terminal_size(sys.stderr.fileno()).columns if sys.stderr.isatty() else None
    sys.stderr.write("\n".join(report_lines(described, data.name, width or None)) + "\n")


def _report_files(name: str, trained: Trained, reporter: TerminalReporter, *, with_rows: bool) -> dict[str, bytes]:
    """The files of the report; none, with a warning, where it can't be made: it must never cost the checkpoint."""
    from murho.model.report.files import training_report
    from murho.model.runtime import give_back
    from murho.model.training.candidates import Stage

    fits = len(trained.evidence.attempts)
    reporter.stage(Stage("drawing the report", fits, fits, done=0.99, share=0.0))
    give_back()
    try:
        return training_report(name, trained, with_rows=with_rows)
    except Exception as error:
        reporter.say(f"warning: the report could not be made: {type(error).__name__}: {error}")
        return {}


def _print_outcome(trained: Trained, written: WrittenVersion, described: DataReport, *, as_json: bool) -> None:
    from murho.model.evaluation.summary import summary
    from murho.model.training.options import FullSearch

    spec = trained.spec
    if as_json:
        print_json(
            {
                "checkpoint": written.address,
                "name": written.name,
                "version": written.version,
                "interrupted": spec.training["interrupted"],
                "metrics": spec.metrics,
                "data": described.to_json(),
            }
        )
        return
    interrupted = " (interrupted)" if spec.training["interrupted"] else ""
    target = spec.schema.target
    lines = [
        f"on {spec.metrics['n']} rows that it has not seen, after {spec.training['seconds']:.0f} s of training:",
        *(f"  {line}" for line in summary(spec.metrics, target.unit)),
        f"saved {written.address}{interrupted}",
    ]
    if "full_search" in spec.training:
        lines.insert(-1, FullSearch(**spec.training["full_search"]).line())
    if written.report is not None:
        lines.append(f"report: {written.report}")
    print_lines([*lines, *next_commands(written)])
