"""Decisions about the rows of a table, in parts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from murho.model.errors import InputError, OptionError
from murho.model.predictive.decisions import Actions, crossed, decide, draw_numbers, joined
from murho.model.tables.schema_inference import columns_from_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from murho.model.checkpoint.posterior import Posterior
    from murho.model.predictive.decisions import DecideOptions, Decisions

__all__ = ["decide_about_table"]


def decide_about_table(
    posterior: Posterior,
    table: pa.Table,
    given: list[Any] | None,
    options: DecideOptions,
    draw: Sequence[int] | None = None,
) -> Decisions:
    """Choose an action for each row.

    Args:
        posterior: What answers.
        table: The contexts, with all features that no action sets; other columns are ignored.
        given: The actions, see `Actions.read`.
        options: How to choose.
        draw: Number of the draw that decides for each row; None: at random.

    Raises:
        TableError: A column is missing, or a cell can't be used.
        OptionError: An action, an option or a draw can't be used.
    """
    schema, count, samples = posterior.schema, table.num_rows, options.of.samples
    try:
        actions = Actions.read(given, schema.target)
        options.check(schema.target, actions)
        step = actions.contexts_at_a_time(samples)
    except InputError as error:
        raise OptionError(str(error)) from None
    names = actions.features
    for name in set(names) - {feature.name for feature in schema.features}:
        raise OptionError(f"actions: {name!r} is no feature of this model")
    draws = draw_numbers(count, samples) if draw is None else np.asarray(draw)
    if draws.shape != (count,) or draws.dtype.kind not in "iu" or ((draws < 0) | (draws >= samples)).any():
        raise OptionError(f"draw: expected a whole number from 0 to {samples - 1} for each of {count} contexts")
    own, others = (
        replace(schema, features=tuple(each for each in schema.features if (each.name in names) is set_by_action))
        for set_by_action in (True, False)
    )
    of_actions = columns_from_table(pa.Table.from_pylist(list(actions.inputs)), own) if names else {}
    parts = []
    for start in range(0, count, step):
        block = table.slice(start, step)
        contexts = columns_from_table(block, others)
        rows = crossed(contexts, of_actions, schema, (block.num_rows, actions.rows))
        answer = posterior.predict(rows, options.asked)
        parts.append(decide(answer, actions, options, draws[start : start + step], posterior.spec.calibration))
    if not parts:
        raise OptionError("contexts: there are none")
    return joined(parts)
