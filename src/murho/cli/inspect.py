"""The command `murho inspect`: the data report of a file, without a training.

Imports of numpy and pyarrow wait until the command runs, so that its ``--help`` answers at once.
"""

from __future__ import annotations

import inspect as signatures
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from murho.cli.grammar import FILES, complete_columns, declare
from murho.cli.shared import JsonOption, name_of, naming, print_json, print_lines
from murho.cli.train import OF_FILES, option_parameters, option_values, read_config
from murho.model.tables.overrides import AS_IT_IS, FileForm
from murho.model.training.options import make_options

OPTIONS = ("task", "ignore", "decimal", "date_order", "pivot_year", "missing_value", "keep", "drop_bad_rows")
"""Options of a training that change how a table is read."""


def inspect(
    data: Annotated[Path, typer.Argument(help=f"A {FILES}.")],
    *,
    target: Annotated[
        str | None,
        typer.Option(help="Column to predict, for leaks and classes.", autocompletion=complete_columns),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file, as of murho train.")] = None,
    json: JsonOption = False,
    form: FileForm = AS_IT_IS,
    **given: Any,
) -> None:
    """Say how the columns of a file are read, what is left out, and what is odd."""
    values = {} if config is None else read_config(config)
    of_file = {name: values.pop(name, None) for name in OF_FILES}
    target, options = target or of_file["target"], make_options(values | option_values(given))
    from murho.model.tables.data_report import describe_columns, report_lines
    from murho.model.tables.table_files import read_table
    from murho.model.training.prepared_table import prepare_table, reading_hints

    notes: tuple[str, ...] = ()
    table = read_table(data, form)
    with naming(data):
        if target is None:
            report = describe_columns(
                table, reading_hints(table, options, options.ignore), options.ignore, options.columns
            )
        else:
            prepared = prepare_table(table, target, options)
            report, notes = prepared.report(), prepared.notes
    if json:
        print_json(report.to_json())
        return
    width = os.get_terminal_size(sys.stdout.fileno()).columns if sys.stdout.isatty() else None
    print_lines([*report_lines(report, Path(name_of(data)).name, width or None), *notes])


declare(
    inspect,
    [
        *signatures.signature(inspect, eval_str=True).parameters.values(),
        *(each for each in option_parameters() if each.name in OPTIONS),
    ],
)
