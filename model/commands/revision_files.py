"""Writes what `murho update` and `murho prune` have made: the next version, with its report."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from murho.model.revision.revisions import Revision

__all__ = ["report_line", "write_revision"]


def write_revision(
    checkpoints: Path,
    name: str,
    written: Revision,
    report: Callable[[], dict[str, bytes]] | None,
    files: Mapping[str, bytes],
) -> Path:
    """Write the next version of a checkpoint; returns its directory.

    A report that can't be made is a warning: it must never cost the version.

    Args:
        checkpoints: Directory of checkpoints.
        name: Name of the checkpoint.
        written: The version.
        report: Makes the files of the report, by path; None: without a report.
        files: Further files, by path.
    """
    from murho.model.posterior.checkpoint import write_checkpoint

    extras: dict[str, bytes] = {}
    if report is not None:
        try:
            extras = report()
        except Exception as error:
            sys.stderr.write(f"warning: the report could not be made: {type(error).__name__}: {error}\n")
    return write_checkpoint(checkpoints, name, written.spec, written.tensors, extras={**files, **extras})


def report_line(directory: Path) -> list[str]:
    """The line that says where the report is; none without a report."""
    page = directory / "report.html"
    return [f"report: {page}"] if page.is_file() else []
