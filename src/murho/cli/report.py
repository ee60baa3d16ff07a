"""The command `murho report`: writes the report of a checkpoint again, or for new labelled rows.

Imports of numpy and torch wait until the command runs, so that its ``--help`` answers at once.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from murho.cli.shared import CheckpointsOption, DeviceOption, NameArgument, VersionOption, naming, print_lines
from murho.model.errors import OptionError
from murho.model.files import written_whole

__all__ = [
    "report",
]


def report(
    name: NameArgument,
    data: Annotated[
        Path | None, typer.Argument(help="Labelled rows to judge by; by default the summary of the training is shown.")
    ] = None,
    checkpoints: CheckpointsOption = "checkpoints",
    version: VersionOption = None,
    output: Annotated[
        Path | None,
        typer.Option(help="HTML file; by default NAME-report.html."),
    ] = None,
    rows: Annotated[bool, typer.Option("--rows/--no-rows", help="Show rows of DATA.")] = True,
    device: DeviceOption = "auto",
) -> None:
    """Write the report of a checkpoint, from what its training kept or for new labelled rows."""
    from murho.model.checkpoint.stores import store_at
    from murho.model.runtime import check_device
    from murho.model.tables.files import require_file

    # First what can be said at once; then the imports that take seconds.
    check_device(device)
    store = store_at(checkpoints)
    directory = store.find(name, version)
    if data is not None:
        require_file(data)
    # Never into the checkpoint: the report of a training shows rows that are kept nowhere else.
    page = output or Path(f"{name}-report.html")
    if page.suffix.lower() not in (".html", ".htm"):
        raise OptionError(f"--output: {page} must end in .html")
    if not page.parent.is_dir():
        raise OptionError(f"--output: the directory {page.parent} does not exist")
    from murho.model.report.facts import report_facts
    from murho.model.report.page import draw, html_page

    facts, shown = report_facts(directory), None
    if data is not None:
        facts, shown = _of_data(directory, data, facts, device, with_rows=rows)
    content = html_page(f"{name}, version {directory.name}", facts, draw(facts, shown), shown)
    try:
        with written_whole(page) as file:
            file.write(content.encode())
    except OSError as error:
        raise OptionError(f"{page} can't be written: {error.strerror or error}") from error
    print_lines([f"wrote {page}"])


def _of_data(
    directory: Path, data: Path, facts: dict[str, Any], device: str, *, with_rows: bool
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    from murho.model.checkpoint.posterior import Posterior
    from murho.model.report.files import report_of_rows
    from murho.model.runtime import resolve_device, use_threads_for_answering
    from murho.model.tables.files import read_table

    use_threads_for_answering()
    posterior = Posterior.load(directory, resolve_device(device))
    with naming(data):
        made = report_of_rows(posterior, facts, read_table(data), data.name)
    if made.left_out:
        sys.stderr.write(f"left out {made.left_out} rows without a value of {posterior.schema.target.name!r}\n")
    return made.facts, made.rows if with_rows else None
