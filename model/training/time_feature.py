"""Whether the column of ``--time`` is a feature, judged on later rows.

A network that reads the time learns level and trend of each past stretch. If the noise is correlated from row to row it
learns its path by heart, and goes on from its end in a straight line: worse than not knowing the time. If there is a
trend or a season, the time is worth much. So two trial fits, with and without the column, are judged forward in time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from murho.model.data.schema import Schema
from murho.model.errors import FitError
from murho.model.fitting.training_data import TrainingData
from murho.model.training.search import trial

if TYPE_CHECKING:
    from murho.model.training.candidates import Reporter
    from murho.model.training.options import TrainOptions

__all__ = ["choose_time_feature"]


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
