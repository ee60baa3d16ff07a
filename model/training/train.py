"""`train`, from a table to the content of a checkpoint: split, encode, search over fits, calibrate, score.

Whether the column of ``--time`` is a feature is judged on later rows. A network that reads the time learns level and
trend of each past stretch. If the noise is correlated from row to row it learns its path by heart, and goes on from its
end in a straight line: worse than not knowing the time. If there is a trend or a season, the time is worth much. So two
trial fits, with and without the column, are judged forward in time.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from murho.model.bbb.rows import TrainingData
from murho.model.errors import FitError
from murho.model.tables.schema import Schema
from murho.model.training.candidate_fits import note_of_unread
from murho.model.training.candidates import TimeToFinish
from murho.model.training.finishing import Trained, finish
from murho.model.training.prepared_table import prepare_table, rows_for_budget
from murho.model.training.rows import learnable_rows
from murho.model.training.search import search, trial

if TYPE_CHECKING:
    import pyarrow as pa

    from murho.model.training.candidates import Reporter
    from murho.model.training.options import TrainOptions
    from murho.model.training.prepared_table import PreparedTable

__all__ = [
    "Trained",
    "choose_time_feature",
    "train",
]


def choose_time_feature(
    data: TrainingData, time: str, options: TrainOptions, reporter: Reporter, device: str
) -> TrainingData:
    """Leave the time out of the features if later rows are then predicted better.

    Args:
        data: The table, split forward in time.
        time: The column of ``--time``.
        options: Options of the training.
        reporter: Gets the progress.
        device: Device of the fits.

    Returns:
        ``data``, or the same without the column. It is ``data`` where nothing can be compared: if the column is no
        feature or the only one, or if no row is judged forward.
    """
    others = tuple(feature for feature in data.schema.features if feature.name != time)
    if not others or len(others) == len(data.schema.features) or data.split.validation is data.split.training:
        return data
    reason = "later rows are predicted better without it"
    schema = Schema(others, data.schema.target, {**data.schema.left_out, time: reason})
    columns = {name: column for name, column in data.columns.items() if name != time}
    without = TrainingData(schema, columns, data.targets, data.split, data.weights, data.limits)
    try:
        losses = []
        for title, tried in ((f"with {time!r}", data), (f"without {time!r}", without)):
            reporter.say(f"a trial {title} as a feature, judged on later rows:")
            losses.append(trial(tried, options, reporter, device).loss)
    except FitError:
        return data
    if losses[1] >= losses[0]:
        return data
    reporter.say(f"left out column {time!r}: {reason}")
    return without


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
        table: The table, as `model.tables.files.read_table` returns it.
        target: The predicted column.
        options: Validated options.
        reporter: Gets the progress.
        device: Device of the fit.
        prepared: What `model.training.rows.prepare_table` returned for the table, if the user knows about it.
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
