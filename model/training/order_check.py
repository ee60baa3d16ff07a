"""Whether rows held out at random say too much: a quick check on the newest rows, or on rows of new groups.

Rows held out at random have neighbours in time, and rows of the same patient, among the rows learned from. Whoever asks
about later rows or new patients needs ``--time`` or ``--group``, and only the user knows. So where rows are dated, or a
column repeats the names of things, two quick regressions (a line, and trees) learn four fifths of the rows. They are
scored on the rest, drawn at random and drawn as it would then be held out. A large difference is said, with the option.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

import numpy as np

from murho.model.errors import TableError
from murho.model.tables.schema import Columns, FeatureKind, Schema
from murho.model.tables.schema_inference import group_labels
from murho.model.tables.splits import column_codes

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from murho.model.arrays import Array, Bools, Doubles, Ints

FEWEST_ROWS, MOST_ROWS = 100, 5_000
FEWEST_TIMES, FEWEST_GROUPS, ROWS_OF_A_GROUP = 20, 10, 2.0
HELD_OUT, DRAWS = 0.2, 3
WORSE, COMPARABLE = 1.25, 1.1
"""Ratio of the errors (root mean square, by ranks) from which it is said, for a regression that errs at most so many
times as much as the better one."""
MOST_CLASSES = 5
_IDENTIFIERS = re.compile(
    r"(?:^|[_\s.-])(?:id|ids|no|nr|num|number|code|key|uid|uuid|subject|patient|person|customer|user|client|member)$"
    r"|(?-i:(?<=[a-z])(?:I[dD]|No|Nr|Code)$)|^(?:id|subject|patient|person|customer|user|client|member)$",
    re.IGNORECASE,
)


def check_order(
    table: pa.Table, schema: Schema, columns: Columns, targets: Doubles, weight: str | None
) -> Iterator[str]:
    """Sentences about columns by which rows should perhaps be held out.

    Args:
        table: The rows with a target, N, with the columns that are no features.
        schema: The features of a plan, and the target.
        columns: Canonical columns of the features, ``[N]`` each.
        targets: ``[N]``, numbers or class indices.
        weight: The column of weights, which is looked at in no case.
    """
    if len(targets) < FEWEST_ROWS:
        return
    random = np.random.default_rng(0)
    for feature in schema.features:
        times = columns[feature.name]
        if feature.kind is not FeatureKind.DATE or len(np.unique(times[~np.isnan(times)])) < FEWEST_TIMES:
            continue
        rows = np.flatnonzero(~np.isnan(times))
        rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), MOST_ROWS)).astype(np.intp)]
        newest = times[rows] > np.quantile(times[rows], 1.0 - HELD_OUT)
        ratio = _ratio(columns, schema, targets, rows, newest, random)
        if ratio > WORSE:
            yield (
                f"rows are dated by {feature.name!r}: a quick check errs {ratio:.1f} times as much on the newest fifth "
                f"as on rows held out at random; if you ask for later rows, give --time {shlex.quote(feature.name)}"
            )
    for name in table.column_names:
        if name in (schema.target.name, weight) or _IDENTIFIERS.search(name) is None:
            continue
        try:
            groups = column_codes(group_labels(table.column(name), name))
        except TableError:  # such as lists: they make no groups either
            continue
        count = int(groups.max()) + 1
        if not FEWEST_GROUPS <= count <= len(groups) / ROWS_OF_A_GROUP:
            continue
        ratios = []
        for _ in range(DRAWS):
            order = random.permutation(count)[groups]
            rows = np.flatnonzero(order < max(FEWEST_GROUPS, count * MOST_ROWS // len(groups)))
            new = order[rows] < HELD_OUT * (order[rows].max() + 1)
            ratios.append(_ratio(columns, schema, targets, rows, new, random, name))
        ratio = float(np.median(ratios))
        if ratio > WORSE:
            yield (
                f"{name!r} repeats: a quick check errs {ratio:.1f} times as much on rows of new ones as on rows held "
                f"out at random; if you ask for new ones, give --group {shlex.quote(name)}"
            )


def _ratio(
    columns: Columns,
    schema: Schema,
    targets: Doubles,
    rows: Ints,
    held_out: Bools,
    random: np.random.Generator,
    group: str | None = None,
) -> float:
    """The largest ratio of errors on held-out rows and on as many at random, of a regression that is good at random.

    A group is a feature at random alone.
    """
    numbers = {name: _numbers(column[rows]) for name, column in columns.items()}
    wanted = _wanted(targets[rows], schema)
    others = {name: column for name, column in numbers.items() if name != group}
    if not held_out.any() or held_out.all() or not others:
        return 0.0
    at_random, asked = _errors(numbers, wanted, random.permutation(held_out)), _errors(others, wanted, held_out)
    return float(np.max((asked / np.maximum(at_random, 1e-12))[at_random <= COMPARABLE * at_random.min()]))


def _numbers(column: Array) -> Doubles:
    """A column as numbers without gaps, ``[B]``: the codes of categories, and the median where a cell is missing."""
    if column.dtype == object:
        return column_codes(column).astype(np.float64)
    present = column[~np.isnan(column)]
    return np.where(np.isnan(column), np.median(present) if present.size else 0.0, column)


def _wanted(targets: Doubles, schema: Schema) -> Doubles:
    """Ranks of numbers ``[B, 1]``, or which class a row has ``[B, C]``, for the most frequent classes."""
    if schema.target.classes is None:
        return (np.argsort(np.argsort(targets, kind="stable"), kind="stable") / len(targets))[:, None]
    frequent = np.argsort(-np.bincount(targets.astype(np.intp)))[:MOST_CLASSES]
    return np.asarray(targets[:, None] == frequent, np.float64)


def _errors(numbers: Columns, wanted: Doubles, held_out: Bools) -> Doubles:
    """The root mean square errors of both regressions on the held-out rows, ``[2]``."""
    from sklearn.ensemble import ExtraTreesRegressor
    from sklearn.linear_model import Ridge

    inputs = np.stack(list(numbers.values()), axis=1)
    with np.errstate(all="ignore"):  # of numbers whose squares are too large
        inputs = np.nan_to_num((inputs - inputs.mean(axis=0)) / inputs.std(axis=0), posinf=0.0, neginf=0.0)
    wanted = wanted[:, 0] if wanted.shape[1] == 1 else wanted
    models = Ridge(), ExtraTreesRegressor(30, min_samples_leaf=3, random_state=0)
    told = [model.fit(inputs[~held_out], wanted[~held_out]).predict(inputs[held_out]) for model in models]
    return np.array([np.sqrt(((each - wanted[held_out]) ** 2).mean()) for each in told])
