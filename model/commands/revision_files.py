"""Writes what `murho update` and `murho prune` have made: the next version, with its report."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from murho.model.revision.revisions import Revision
    from murho.model.storage.stores import CheckpointStore, WrittenVersion

__all__ = ["report_line", "write_revision"]


def write_revision(
    store: CheckpointStore,
    name: str,
    written: Revision,
    report: Callable[[], dict[str, bytes]] | None,
) -> WrittenVersion:
    """Write the next version of a checkpoint; returns what was written.

    A report that can't be made is a warning: it must never cost the version.

    Args:
        store: The place of checkpoints.
        name: Name of the checkpoint.
        written: The version.
        report: Makes the files of the report, by path; None: without a report.
    """
    extras: dict[str, bytes] = {}
    if report is not None:
        try:
            extras = report()
        except Exception as error:
            sys.stderr.write(f"warning: the report could not be made: {type(error).__name__}: {error}\n")
    return store.write(name, written.spec, written.tensors, extras=extras)


def report_line(made: WrittenVersion) -> list[str]:
    """The line that says where the report is; none without a report."""
    return [] if made.report is None else [f"report: {made.report}"]
