"""`train`, from a table to the content of a checkpoint: split, encode, search over fits, calibrate, score."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from murho.model.training.finishing import Trained, finish
from murho.model.training.idle_features import note_of_unread
from murho.model.training.learnable_rows import learnable_rows
from murho.model.training.prepared_table import prepare_table
from murho.model.training.row_sample import rows_for_budget
from murho.model.training.search import search
from murho.model.training.time_feature import choose_time_feature
from murho.model.training.time_to_finish import TimeToFinish

if TYPE_CHECKING:
    import pyarrow as pa

    from murho.model.training.candidates import Reporter
    from murho.model.training.options import TrainOptions
    from murho.model.training.prepared_table import PreparedTable

__all__ = ["Trained", "train"]

ROWS_IN_A_HURRY = 500
"""Most rows that calibrate and score a training which was interrupted after the search: about a second."""


def train(
    table: pa.Table,
    target: str,
    options: TrainOptions,
    *,
    reporter: Reporter,
    device: str = "cpu",
    prepared: PreparedTable | None = None,
    began: float | None = None,
) -> Trained:
    """Fit a BBB network to a table.

    Args:
        table: The table, as `model.data.tables.read_table` returns it.
        target: The predicted column.
        options: Validated options.
        reporter: Gets the progress.
        device: Device of the fit.
        prepared: What `model.training.prepared_table.prepare_table` returned for the table, if the user knows about it.
        began: When the user began to wait, in monotonic seconds, for ``--budget``; by default now.

    Returns:
        The content of a checkpoint. After a KeyboardInterrupt it holds the best parameters so far and is marked as
        interrupted. Interrupted during the calibration, it is calibrated on fewer rows.

    Raises:
        TableError: The table can't be used; file, column and row are named.
        FitError: Every fit became non-finite.
        KeyboardInterrupt: Interrupted before the first fit was scored, or again while calibrating in a hurry.
    """
    began = time.monotonic() if began is None else began
    if prepared is None:
        prepared = prepare_table(table, target, options)
        for line in prepared.left_out_lines():
            reporter.say(line)
        prepared = rows_for_budget(prepared, options)
    for line in prepared.notes:
        reporter.say(line)
    rows = learnable_rows(prepared, target, options, reporter.say)
    if options.time is not None:
        rows = replace(rows, data=choose_time_feature(rows.data, options.time, options, reporter, device))
    to_finish = None
    if options.budget and prepared.rows is not None:
        held_out = rows.data.split.held_out(options.members)
        to_finish = TimeToFinish(options.budget, sum(len(group.rows) for group in held_out))
    result = search(rows.data, options, reporter, device, began, to_finish)
    finished = partial(finish, rows, options=options, began=began, reporter=reporter, device=device)
    try:
        reporter.say(f"chose {result.candidate}")
        unread = result.candidate.inputs.unread_by_all
        if unread:
            reporter.say(note_of_unread(unread, len(rows.data.schema.features)))
        if result.interrupted:
            reporter.say(f"interrupted: kept the best parameters so far (epoch {result.fit.best_epoch})")
        most = None
        if to_finish is not None:
            most = to_finish.rows_in_time(time.monotonic() - began, result.pace, fewest=ROWS_IN_A_HURRY)
        return finished(result, most_rows=most)
    except KeyboardInterrupt:
        reporter.say(
            f"interrupted: calibrating on at most {ROWS_IN_A_HURRY} rows, then saving; Ctrl-C once more ends without a "
            "checkpoint"
        )
        return finished(replace(result, interrupted=True), most_rows=ROWS_IN_A_HURRY)
