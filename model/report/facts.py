"""The facts of a report that ``model.json`` does not keep, as plain JSON: made from rows, stored, and read again.

They have summaries and curves, some tens of kilobytes whatever the size of the table, and no row of it. The rows that
surprised the model most (`surprising_rows`) are data of the one who trains: they are in the page only, never in the
stored facts, and ``--no-report-rows`` leaves them out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import orjson

from murho.model.arrays import Array, Doubles, Ints
from murho.model.bbb.fit import Epoch
from murho.model.checkpoint.posterior import Posterior
from murho.model.errors import CheckpointError
from murho.model.evaluation.class_scores import JudgedClasses
from murho.model.evaluation.importance import permutation_importance, screen_features
from murho.model.evaluation.judged_rows import BAND, JudgedRows, scores_of_part
from murho.model.evaluation.number_scores import COVERAGES, JudgedNumbers
from murho.model.files import JSON, parse_json
from murho.model.report.charts import MOST_BARS
from murho.model.tables.schema import Columns, count_rows, json_cells, select_rows

FORMAT = 4
"""Version of the layout of the facts; those of another one are not read."""
FACTS_PATH = PurePosixPath("report/facts.json")
"""Where the facts lie in the directory of a version."""
MOST_BYTES = 8 * 2**20
"""The largest file of facts that is read: several requests may read one at once."""
MOST_EPOCHS = 150
"""Most epochs of a curve that are kept, evenly spaced: as many as a chart can show."""
ROWS_OF_IMPORTANCE, DRAWS_OF_IMPORTANCE = 200, 64
PREDICTIONS_OF_IMPORTANCE = 4_000
"""Rows times shuffles times features whose importance is judged, about a second: `murho importance` takes more."""
BINS_OF_AGREEMENT = 15
QUANTILES = (0.05, 0.5, 0.95)
MOST_SURPRISING = 10
SEED = 0
"""Of the choice of rows where there are too many."""


def facts_of_rows(
    posterior: Posterior, columns: Columns, judged: JudgedRows | None, metrics: Mapping[str, Any]
) -> JSON:
    """Return the facts of rows.

    Args:
        posterior: The posterior, as it is served.
        columns: Canonical columns of the rows, ``[N]`` each.
        judged: Some of them, judged; None: there are none.
        metrics: What is known of these scores besides (`model.evaluation.held_out.calibrate_held_out`).

    Returns:
        ``held_out``, None without judged rows: what `murho evaluate` tells
        (`model.evaluation.judged_rows.JudgedRows.in_full`) and, of numbers, the ``agreement`` of predictions with what
        was observed; and ``importance`` (`model.evaluation.importance`), None of a single row.
    """
    held_out = None
    if judged is not None:
        held_out = {**metrics, **judged.in_full(posterior.schema, select_rows(columns, judged.rows))}
        if isinstance(judged, JudgedNumbers):
            held_out["agreement"] = _agreement(judged)
    # As JSON has it: a number that is not finite is null.
    facts: JSON = orjson.loads(orjson.dumps({"held_out": held_out, "importance": _importance(posterior, columns)}))
    return facts


def stored_facts(read: Callable[[str, int], bytes]) -> JSON:
    """Return the facts that a version keeps beside its checkpoint; empty where there are none that this Murho reads.

    No checksum covers them: who shows them must not rely on their form.

    Args:
        read: Reads a file of the version, by its path and the most bytes that it may have.
    """
    try:
        stored = parse_json(read(str(FACTS_PATH), MOST_BYTES))
    except (CheckpointError, OSError, ValueError):
        return {}
    return stored if isinstance(stored, dict) and stored.get("format") == FORMAT else {}


def curve(stage: str, history: Sequence[Epoch]) -> JSON:
    """``stage`` of a fit, and the lists ``epoch, nll, validation`` (None before the first one).

    Both are in nats per row of standardised targets.
    """
    places = np.unique(np.linspace(0, len(history) - 1, min(MOST_EPOCHS, len(history))).round().astype(int))
    epochs = [history[place] for place in places]
    return {
        "stage": stage,
        "epoch": [epoch.number for epoch in epochs],
        "nll": [epoch.negative_log_likelihood for epoch in epochs],
        "validation": [epoch.validation for epoch in epochs],
    }


def _agreement(judged: JudgedNumbers) -> list[JSON]:
    """Parts of ten rows or more, by the predicted mean: what was predicted in each, and what was observed."""
    lower, upper = _band(judged)
    told = {"predicted": judged.mean, "lower": lower, "upper": upper}
    found = []
    for part in np.array_split(np.argsort(judged.mean), max(1, min(BINS_OF_AGREEMENT, len(judged) // 10))):
        observed = np.quantile(judged.targets[part], QUANTILES).tolist()
        found.append(
            scores_of_part(told, part, judged.counts) | dict(zip(("low", "observed", "high"), observed, strict=True))
        )
    return found


def _band(judged: JudgedNumbers) -> tuple[Doubles, Doubles]:
    """Return ends of the 90 % bands that are served, ``[n]`` each, the target's unit."""
    place = 2 * COVERAGES.index(BAND)
    lower, upper = judged.mean + judged.served.from_mean[:, place : place + 2].T
    return lower, upper


def _importance(posterior: Posterior, columns: Columns) -> JSON | None:
    """Permutation importance for the predictions, of few rows and features; None of a single row.

    ``of_features`` is the number of all features: more than those that are judged, where a screen has chosen these.
    """
    count = count_rows(columns)
    if count < 2:
        return None
    rows, features = min(count, ROWS_OF_IMPORTANCE), screen_features(posterior, columns, MOST_BARS)
    found = permutation_importance(
        posterior,
        columns,
        repeats=2 if 2 * rows * len(features) <= PREDICTIONS_OF_IMPORTANCE else 1,
        most_rows=rows,
        samples=DRAWS_OF_IMPORTANCE,
        features=features,
    )
    return found | {"of_features": len(posterior.schema.features)}


def surprising_rows(judged: JudgedRows, posterior: Posterior, columns: Columns, numbers: Ints) -> list[JSON]:
    """Return the rows furthest out in their predicted distributions, or with the least probability of their class.

    Args:
        judged: n rows.
        posterior: The posterior that they were judged by.
        columns: Canonical columns of all rows, ``[N]`` each.
        numbers: Number of each of them in the user's table, from 1, ``[N]``.

    Returns:
        Of each ``row``, ``cells`` (`model.tables.schema.json_cells`) in the order of the schema, ``observed`` and
        ``predicted``. Of numbers also the band, ``lower`` and ``upper``, and ``one_in``: one row in so many should lie
        as far out. Of classes ``probability``, of the observed class, and ``certainty``, of the predicted one.
    """
    told: dict[str, Array] = {"row": numbers[judged.rows]}
    if isinstance(judged, JudgedClasses):
        names, served, labels = np.array(posterior.schema.target.classes, dtype=object), judged.served, judged.labels
        rarity = served[np.arange(len(judged)), labels]
        told |= {"observed": names[labels], "predicted": names[served.argmax(axis=1)]}
        told |= {"probability": rarity, "certainty": served.max(axis=1)}
    elif isinstance(judged, JudgedNumbers):
        lower, upper = _band(judged)
        rarity = 2.0 * np.minimum(judged.served.pit, 1.0 - judged.served.pit)
        told |= {"observed": judged.targets, "predicted": judged.mean, "lower": lower, "upper": upper}
        told["one_in"] = 1.0 / np.maximum(rarity, 1e-9)
    rarest = np.argsort(rarity, kind="stable")[:MOST_SURPRISING]
    cells = [json_cells(of, columns[of.name][judged.rows[rarest]]) for of in posterior.schema.features]
    values = zip(*(each[rarest].tolist() for each in told.values()), zip(*cells, strict=True), strict=True)
    return [dict(zip((*told, "cells"), of_row, strict=True)) for of_row in values]
