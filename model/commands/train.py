"""The command `murho train`: fits a network to a table and saves it as a checkpoint.

Imports of numpy and torch wait until the command runs, so that its ``--help`` answers at once.
"""

from __future__ import annotations

import os
import re
import sys
import time
import unicodedata
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from murho.model.commands.shared_options import (
    CheckpointsOption,
    DeviceOption,
    JsonOption,
    naming,
    print_json,
    print_lines,
)
from murho.model.commands.train_options import option_values, with_train_options
from murho.model.errors import OptionError
from murho.model.training.config_files import read_config
from murho.model.training.options import make_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from murho.model.commands.training_progress import TerminalReporter
    from murho.model.data.data_report import DataReport
    from murho.model.storage.stores import WrittenVersion
    from murho.model.training.options import TrainOptions
    from murho.model.training.train import Trained

__all__ = ["train"]


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
    from murho.model.data.file_checks import require_file
    from murho.model.runtime.devices import check_device, resolve_device, use_threads_for_fitting
    from murho.model.storage.stores import store_at

    began = time.monotonic()
    # First what can be said at once; then the imports that take seconds.
    column, chosen_name, options = _settings(data, target, name, config, given)
    check_device(device)
    require_file(data)
    with_report = not options.quick if report is None else report
    store = store_at(checkpoints)
    store.check_writable(chosen_name)
    from murho.model.data.arrow_values import release_memory
    from murho.model.data.stored_tables import open_table
    from murho.model.training.prepared_table import prepare_table
    from murho.model.training.row_sample import rows_for_budget

    table = open_table(data)
    with naming(data):
        prepared = prepare_table(table, column, options)
        described = prepared.report()
    _say_report(described, data)
    prepared = rows_for_budget(prepared, options)
    del table  # a large one takes memory that the fits need
    release_memory()

    from murho.model.commands.training_progress import TerminalReporter
    from murho.model.runtime.interrupts import interrupts_held_back
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
    from murho.model.posterior.checkpoint_directories import validate_name

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
    from murho.model.errors import CheckpointError
    from murho.model.posterior.checkpoint_directories import validate_name

    name = data.name.split(".")[0] or data.name
    try:
        return validate_name(name)
    except CheckpointError as error:
        plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
        suggested = re.sub(r"[^A-Za-z0-9_]+", "-", plain).strip("-_")[:64].rstrip("-_") or "model"
        raise OptionError(f"{error}; give one, such as --name {suggested}") from error


def _say_report(described: DataReport, data: Path) -> None:
    from murho.model.data.data_report_lines import report_lines

    width = os.get_terminal_size(sys.stderr.fileno()).columns if sys.stderr.isatty() else None
    sys.stderr.write("\n".join(report_lines(described, data.name, width or None)) + "\n")


def _report_files(name: str, trained: Trained, reporter: TerminalReporter, *, with_rows: bool) -> dict[str, bytes]:
    """The files of the report; none, with a warning, where it can't be made: it must never cost the checkpoint."""
    from murho.model.report.files import training_report
    from murho.model.runtime.free_memory import give_back
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
    from murho.model.commands.next_commands import next_commands
    from murho.model.evaluation.class_summary import class_summary
    from murho.model.evaluation.metrics import summary
    from murho.model.training.quick import FullSearch

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
    scores = summary(spec.metrics, target.unit) if target.classes is None else class_summary(spec.metrics)
    lines = [
        f"on {spec.metrics['n']} rows that it has not seen, after {spec.training['seconds']:.0f} s of training:",
        *(f"  {line}" for line in scores),
        f"saved {written.address}{interrupted}",
    ]
    if "full_search" in spec.training:
        lines.insert(-1, FullSearch(**spec.training["full_search"]).line())
    if written.report is not None:
        lines.append(f"report: {written.report}")
    print_lines([*lines, *next_commands(written)])
