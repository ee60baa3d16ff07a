"""The command `murho report`: writes the report of a checkpoint again, or for new labelled rows.

Imports of numpy and torch wait until the command runs, so that its ``--help`` answers at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from murho.cli.shared import (
    CheckpointsOption,
    DeviceOption,
    VersionOption,
    find_version,
    load_posterior,
    naming,
    open_rows,
    print_lines,
    say_left_out,
)
from murho.model.errors import OptionError
from murho.model.files import read_bounded, write_whole
from murho.model.tables.overrides import AS_IT_IS, FileForm


def report(
    name: str | None,
    data: Annotated[
        Path | None, typer.Argument(help="Labelled rows to judge by, in place of those of the training")
    ] = None,
    checkpoints: CheckpointsOption = "checkpoints",
    version: VersionOption = None,
    output: Annotated[Path | None, typer.Option(help="HTML file; by default NAME-report.html.")] = None,
    rows: Annotated[bool, typer.Option("--rows/--no-rows", help="Show rows of DATA.")] = True,
    device: DeviceOption = "auto",
    form: FileForm = AS_IT_IS,
) -> None:
    """Write the report of a checkpoint, from what its training kept or for new labelled rows."""
    # First what can be said at once; then the imports that take seconds.
    _store, directory = find_version(checkpoints, name, version, device)
    name = directory.parent.name
    # Never into the checkpoint: the report of a training shows rows that are kept nowhere else.
    page, shown = output or Path(f"{name}-report.html"), None
    if page.suffix.lower() not in (".html", ".htm"):
        raise OptionError(f"--output: {page} must end in .html")
    if not page.parent.is_dir():
        raise OptionError(f"--output: the directory {page.parent} does not exist")
    table = None if data is None else open_rows(data, directory, form, labelled=True)
    from murho.model.checkpoint.checkpoint import read_stored
    from murho.model.report.facts import stored_facts
    from murho.model.report.reports import html_page, report_of_rows

    facts = stored_facts(lambda file, most: read_bounded(directory / file, most))
    if data is None or table is None:
        spec = read_stored(directory).spec
    else:
        posterior = load_posterior(directory, device)
        spec = posterior.spec
        with naming(data):
            told, judged, left_out = report_of_rows(posterior, table, data.name)
        say_left_out(left_out, posterior)
        facts, shown = facts | told, judged if rows else None
    content = html_page(f"{name}, version {directory.name}", spec, facts, shown)
    try:
        with write_whole(page) as file:
            file.write(content.encode())
    except OSError as error:
        raise OptionError(f"{page} can't be written: {error.strerror or error}") from error
    print_lines([f"wrote {page}"])
