"""Whether rows held out at random say too much: a quick check on the newest rows, or on rows of new groups.

Rows held out at random have neighbours in time, and rows of the same patient, among the rows learned from. Whoever asks
about later rows or new patients needs ``--time`` or ``--group``, and only the user knows. So where rows are dated, or a
column repeats the names of things, two quick regressions learn four fifths of the rows: a line, alone and with what it
leaves of the nearest rows in time, or of the same group. They are scored on the rest, drawn at random and drawn as it
would then be held out. A large difference is said, with the option.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from murho.model.arrays import Array, Bools, Doubles, Ints
from murho.model.errors import TableError
from murho.model.tables.columns import canonical_column
from murho.model.tables.schema import Columns, FeatureKind, Schema
from murho.model.tables.splits import column_codes

FEWEST_ROWS, MOST_ROWS = 100, 5_000
FEWEST_TIMES, FEWEST_GROUPS, ROWS_OF_A_GROUP = 20, 10, 2.0
HELD_OUT, DRAWS = 0.2, 3
WORSE, COMPARABLE = 1.25, 1.1
"""Ratio of the errors (root mean square, by ranks) from which it is said, for a regression that errs at most so many
times as much as the better one."""
MOST_CLASSES, NEIGHBOURS = 5, 5
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
        ratio = _ratio(columns, schema, targets, rows, newest, random, times)
        if ratio > WORSE:
            yield (
                f"rows are dated by {feature.name!r}: a quick check errs {ratio:.1f} times as much on the newest fifth "
                f"as on rows held out at random; if you ask for later rows, give --time {shlex.quote(feature.name)}"
            )
    for name in table.column_names:
        if name in (schema.target.name, weight) or _IDENTIFIERS.search(name) is None:
            continue
        try:
            groups = column_codes(canonical_column(table.column(name), FeatureKind.CATEGORICAL, name))
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
            ratios.append(_ratio(columns, schema, targets, rows, new, random, groups, group=name))
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
    key: Doubles | Ints,
    *,
    group: str | None = None,
) -> float:
    """Return the largest ratio of errors on held-out rows and at random, of a regression that is good at random.

    Rows are near each other by their keys ``[N]``: times, or numbers of groups. A group is no feature of the line.
    """
    features = {name: _numbers(column[rows]) for name, column in columns.items() if name != group}
    if not held_out.any() or held_out.all() or not features:
        return 0.0
    given = features, _truth_of(targets[rows], schema), key[rows].astype(np.float64), group is not None
    at_random, apart = _errors(*given, random.permutation(held_out)), _errors(*given, held_out)
    return float(np.max((apart / np.maximum(at_random, 1e-12))[at_random <= COMPARABLE * at_random.min()]))


def _numbers(column: Array) -> Doubles:
    """Return a column as numbers without gaps, ``[B]``: codes of categories, the median where a cell is missing."""
    if column.dtype == object:
        return column_codes(column).astype(np.float64)
    present = column[~np.isnan(column)]
    return np.where(np.isnan(column), np.median(present) if present.size else 0.0, column)


def _truth_of(targets: Doubles, schema: Schema) -> Doubles:
    """Ranks of numbers ``[B, 1]``, or which class a row has ``[B, C]``, for the most frequent classes."""
    if schema.target.classes is None:
        return (np.argsort(np.argsort(targets, kind="stable"), kind="stable") / len(targets))[:, None]
    frequent = np.argsort(-np.bincount(targets.astype(np.intp)))[:MOST_CLASSES]
    return np.asarray(targets[:, None] == frequent, np.float64)


def _errors(features: Columns, truth: Doubles, key: Doubles, grouped: bool, held_out: Bools) -> Doubles:
    """Return root mean square errors on held-out rows, ``[2]``: of a line, and with what it left of near rows."""
    inputs = np.stack([np.ones(len(truth)), *features.values()], axis=1)
    with np.errstate(all="ignore"):  # of numbers whose squares are too large
        scaled = (inputs[:, 1:] - inputs[:, 1:].mean(axis=0)) / inputs[:, 1:].std(axis=0)
    inputs[:, 1:] = np.nan_to_num(scaled, posinf=0.0, neginf=0.0)
    learned, judged = inputs[~held_out], inputs[held_out]
    weights = np.linalg.lstsq(learned, truth[~held_out], rcond=1e-6)[0]
    left, line = truth[~held_out] - learned @ weights, judged @ weights
    distances = np.abs(key[held_out, None] - key[~held_out])
    nearest = np.argpartition(distances, min(NEIGHBOURS, distances.shape[1] - 1), axis=1)[:, :NEIGHBOURS]
    near = np.ones(nearest.shape, bool) if not grouped else np.take_along_axis(distances, nearest, axis=1) == 0.0
    beside = (left[nearest] * near[..., None]).sum(axis=1) / np.maximum(near.sum(axis=1, keepdims=True), 1)
    return np.array([np.sqrt(np.square(each - truth[held_out]).mean()) for each in (line, line + beside)])
