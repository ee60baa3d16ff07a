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
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError

from murho.cli.grammar import FILES, complete_columns, declare, parameter
from murho.cli.shared import (
    CheckpointsOption,
    DeviceOption,
    JsonOption,
    ReportRowsOption,
    name_of,
    naming,
    numbers_of,
    print_lines,
    print_written,
    report_or_warning,
    say,
)
from murho.model.errors import CheckpointError, OptionError
from murho.model.tables.overrides import AS_IT_IS, FileForm
from murho.model.training.options import TrainOptions, make_options, option_texts, problem_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_core import ErrorDetails

    from murho.model.checkpoint.stores import WrittenVersion
    from murho.model.python.terminal_reporter import TerminalReporter
    from murho.model.training.train import Trained


def next_commands(written: WrittenVersion) -> list[str]:
    """Lines for people: the report, and the commands that use a checkpoint, each with what it is for.

    Args:
        written: The version that was saved.
    """
    where = "" if written.place == "checkpoints" else f" --checkpoints {shlex.quote(written.place)}"
    commands = {
        f"murho predict NEW.csv --model {written.name}{where}": "predictions with error bars",
        f"murho evaluate KEPT_BACK.csv --model {written.name}{where}": "how good they are, on rows not in the training",
        f"murho serve{where}": "over HTTP, with a page to try it",
    }
    width = max(map(len, commands))
    report = [] if written.report is None else [f"report: {written.report}"]
    return [*report, "next:", *(f"  {command:<{width}}  {purpose}" for command, purpose in commands.items())]


OF_FILES = ("target", "name")
"""What a file may have besides the fields of `TrainOptions`."""


def read_config(path: Path) -> dict[str, Any]:
    """Read options from a TOML file, with the names of the command line and ``[columns.NAME]`` tables.

    Args:
        path: The file. Besides the fields of `TrainOptions` it may have ``target`` and ``name``.

    Returns:
        The values by name; each is valid by itself. ``-`` in names becomes ``_``.

    Raises:
        OptionError: The file can't be read or is not valid TOML, or a name or a value in it is wrong: its line is
            named and, where a name looks like an option, that option.
    """
    try:
        text = path.read_text(encoding="utf-8")
        values = {name.replace("-", "_"): value for name, value in tomllib.loads(text).items()}
        TrainOptions.model_validate({name: value for name, value in values.items() if name not in OF_FILES})
    except OSError as error:
        raise OptionError(f"{path}: can't read the configuration: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OptionError(f"{path}: not valid TOML: {error}") from error
    except ValidationError as error:
        told = (f"{path}{_line(problem, text)}: {problem_text(problem)}" for problem in error.errors())
        raise OptionError("; ".join(told)) from None
    return values


def _line(problem: ErrorDetails, text: str) -> str:
    """Return the line of a mistake; empty if it is not found."""
    key = re.compile(rf"\b{re.sub('[-_]', '[-_]', str(problem['loc'][-1]))}\b[\"']?\s*=")
    return next((f", line {number}" for number, line in enumerate(text.splitlines(), 1) if key.search(line)), "")


TYPES: dict[str, Any] = {
    "boolean": bool,
    "integer": int,
    "number": float,
    "string": str,
    "integers": str,  # such as 50,50
    "strings": list[str],
}
"""Type of an `OptionText` → type of the command's parameter. An ``object`` is for the TOML file alone."""


PANELS = {
    name: panel
    for panel, names in {
        "Data": "task ignore weight decimal date_order pivot_year missing_value keep drop_bad_rows missing rare "
        "target_minimum target_maximum",
        "Validation": "group time",
        "Model": "quick budget seed members hidden encoding noise transform",
    }.items()
    for name in names.split()
}
"""Option → its group in the help; all others are for experts."""


def option_parameters(options: type[TrainOptions] = TrainOptions) -> list[inspect.Parameter]:
    """Parameters of a command, one for each field that a command line can express.

    Their default is None, "not given". The value then comes from the TOML file, or else from the default of the field.

    Args:
        options: `TrainOptions`, or a class with further fields.
    """
    return [
        parameter(
            text.name,
            typer.Option(
                help=text.help + " May be repeated." * (text.type == "strings"),
                rich_help_panel=PANELS.get(text.name, "Expert"),
            ),
            TYPES[text.type] | None,
        )
        for text in option_texts(options)
        if text.type in TYPES
    ]


def option_values(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that the user gave, as `model.training.options.make_options` takes them.

    Args:
        given: Option → the value from typer; None or empty if it was not given.

    Raises:
        OptionError: A list of whole numbers contains something else; the option is named.
    """
    values = {name: value for name, value in given.items() if value is not None and value != []}
    for text in option_texts():
        if text.type == "integers" and text.name in values:
            values[text.name] = numbers_of(text.flag, values[text.name], int, "50,50")
    return values


def train(
    data: Annotated[Path, typer.Argument(help=f"A {FILES}.")],
    *,
    target: Annotated[str | None, typer.Option(help="Column to predict.", autocompletion=complete_columns)] = None,
    name: Annotated[str | None, typer.Option(help="Name of the checkpoint; by default that of the file.")] = None,
    checkpoints: CheckpointsOption = "checkpoints",
    config: Annotated[Path | None, typer.Option(help="TOML file with options, and kinds and units of columns.")] = None,
    report: Annotated[
        bool | None,
        typer.Option(
            "--report/--no-report",
            help="Write report.html beside the checkpoint.",
            show_default="yes, without --quick",
        ),
    ] = None,
    report_rows: ReportRowsOption = True,
    device: DeviceOption = "auto",
    json: JsonOption = False,
    form: FileForm = AS_IT_IS,
    **given: Any,
) -> None:
    """Fit a Bayesian network to a table and save it as a checkpoint."""
    from murho.model.checkpoint.stores import store_at
    from murho.model.runtime import check_device
    from murho.model.tables.table_files import require_file

    began = time.monotonic()
    # First what can be said at once; then the imports that take seconds.
    require_file(data)
    column, chosen_name, options = _settings(data, target, name, config, given)
    check_device(device)
    store = store_at(checkpoints)
    store.check_writable(chosen_name)
    from murho.model.tables.columns import release_memory
    from murho.model.tables.data_report import report_lines
    from murho.model.tables.table_files import read_table
    from murho.model.training.prepared_table import prepare_table, rows_for_budget

    table = read_table(data, form)
    with naming(data):
        prepared = prepare_table(table, column, options, began)
        described = prepared.report()
    width = os.get_terminal_size(sys.stderr.fileno()).columns if sys.stderr.isatty() else None
    say("\n".join(report_lines(described, Path(name_of(data)).name, width or None)))
    prepared = rows_for_budget(prepared)
    del table  # a large one takes memory that the fits need
    release_memory()

    from murho.model.python.terminal_reporter import TerminalReporter
    from murho.model.runtime import interrupts_held_back, resolve_device, use_threads_for_answering
    from murho.model.training.train import train_on

    resolved = resolve_device(device)
    use_threads_for_answering()
    with TerminalReporter() as reporter:
        with naming(data):
            trained = train_on(prepared, reporter=reporter, device=resolved)
        with interrupts_held_back():
            extras = {}
            if report or (report is None and not options.quick):
                extras = report_or_warning(lambda: _report(chosen_name, trained, reporter, with_rows=report_rows))
            written = store.write(chosen_name, trained.posterior, extras=extras)
    interrupted = trained.spec.training["interrupted"]
    if json:
        print_written(written, interrupted=interrupted, metrics=trained.spec.metrics, data=described.to_json())
    else:
        print_lines([*_outcome(trained), f"saved {written.address}{' (interrupted)' if interrupted else ''}"])
        print_lines(next_commands(written))


declare(train, [*inspect.signature(train, eval_str=True).parameters.values(), *option_parameters()])


def _settings(
    data: Path, target: str | None, name: str | None, config: Path | None, given: Mapping[str, Any]
) -> tuple[str, str, TrainOptions]:
    """Return the target, the name of the checkpoint and the options that the command line and a TOML file give.

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
    from murho.model.checkpoint.checkpoint import validate_name

    values = {} if config is None else read_config(config)
    in_file, name_in_file = values.pop("target", None), values.pop("name", None)
    options = make_options(values | option_values(given))
    column, given_name = target or in_file, name or name_in_file
    if not isinstance(column, str):
        raise OptionError("say which column to predict: --target COLUMN")
    return column, validate_name(str(given_name)) if given_name else _name_of(data), options


def _name_of(data: Path) -> str:
    """Return the name of a checkpoint that the name of a file gives.

    Raises:
        OptionError: It gives none; the message suggests one.
    """
    from murho.model.checkpoint.checkpoint import validate_name

    file = Path(name_of(data)).name
    name = file.split(".")[0] or file
    try:
        return validate_name(name)
    except CheckpointError as error:
        plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
        suggested = re.sub(r"[^A-Za-z0-9_]+", "-", plain).strip("-_")[:64].rstrip("-_") or "model"
        raise OptionError(f"{error}; give one, such as --name {suggested}") from error


def _report(name: str, trained: Trained, reporter: TerminalReporter, *, with_rows: bool) -> dict[str, bytes]:
    from murho.model.report.reports import training_report
    from murho.model.runtime import trim_heap
    from murho.model.training.candidates import Stage

    fits = len(trained.evidence.attempts)
    reporter.stage(Stage("drawing the report", fits, fits, done=0.99, share=0.0))
    trim_heap()
    return training_report(name, trained, with_rows=with_rows)


def _outcome(trained: Trained) -> list[str]:
    """How good the network is, for people."""
    from murho.model.evaluation.summary import summary

    spec = trained.spec
    what = "Held-out scores" if spec.metrics["held_out"] else "Scores on the training rows"
    lines = [
        f"{what} ({spec.metrics['n']} rows), after {spec.training['seconds']:.0f} s of training:",
        *(f"  {line}" for line in summary(spec.metrics, spec.schema.target.unit)),
    ]
    if spec.training["options"]["quick"]:
        lines.append("--quick skips the search and the report; omit it for a better model")
    return lines
