"""Features that may leak the target: a quick look at names and numbers, before anything is learned from them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from murho.model.arrays import Array, Doubles
from murho.model.tables.data_report import Suspect
from murho.model.tables.inference import far_numbers
from murho.model.tables.schema import Columns, FeatureKind, Schema, is_missing
from murho.model.tables.schema_inference import columns_from_table
from murho.model.tables.splits import column_codes

_LEAK_ROWS, _FEWEST_ROWS = 5_000, 30
"""Rows that are looked at, spread over the table, and the fewest that tell anything."""
_TELLS = 0.996
"""Share of the target's variance that a suspect tells alone."""
_EXACT, _EQUAL = 1e-6, 0.99
"""Deviation, in standard deviations of the target, up to which a sum is exact, and share of equal rows of a copy."""
_ROUNDED = 0.01
"""Deviation, likewise, up to which a sum may be the target rounded."""
_MOST_IN_A_SUM, _MOST_MISSING = 50, 0.2
"""Columns of a sum, and the share of their cells that may be missing."""
_AFTERWARDS = re.compile(
    r"final|actuals?|outcome|results?|after(wards)?|later|eventual|ended|reali[sz]ed|complet(ed|ion)|finished|closed"
    r"|cancell?ed|refund(ed)?|returned|discharged?|settle(d|ment)|pred(icted|iction)?|forecast|yhat|estimated"
)
_BEFORE = re.compile("lag|prev(ious)?|last|old|yesterday|before|prior|past|ago")
_ORDERED_CLASSES = 2


def check_leaks(table: pa.Table, schema: Schema, targets: Doubles) -> list[Suspect]:
    """Return the features of a table that may leak the target, as `leak_suspects` finds them on some rows.

    Args:
        table: N rows.
        schema: The features of a plan, and the target.
        targets: ``[N]``, NaN where missing.
    """
    # The numbers of more than two classes have no order, so no column can copy them.
    if schema.target.classes is not None and len(schema.target.classes) != _ORDERED_CLASSES:
        return []
    usual = np.isfinite(targets)
    usual[far_numbers(targets)] = False  # beside such a number, all others look alike
    labelled = np.flatnonzero(usual)
    looked_at = labelled[np.linspace(0, len(labelled) - 1, min(_LEAK_ROWS, len(labelled))).astype(np.intp)]
    return leak_suspects(columns_from_table(table, schema, rows=looked_at), schema, targets[looked_at])


def leak_suspects(columns: Columns, schema: Schema, targets: Doubles) -> list[Suspect]:
    """Return the features that may leak the target, each once, the surest first.

    Args:
        columns: Canonical columns of the features, ``[N]`` each.
        schema: The features, and the target.
        targets: ``[N]``, without NaN.

    Returns:
        The suspects. A table of fewer than 30 rows is suspected by the names alone; so is the only feature of a table,
        unless it is a copy of the target.
    """
    kinds = {feature.name: feature.kind for feature in schema.features}
    found: list[Suspect] = []
    with np.errstate(over="ignore", invalid="ignore"):  # of numbers whose squares are too large
        if len(targets) >= _FEWEST_ROWS and _spreads(targets):
            found += _exact({name: columns[name] for name in columns if kinds[name] is FeatureKind.NUMERIC}, targets)
            found += _telling(columns, kinds, targets) if len(columns) > 1 else ()
    found += [Suspect(name, reason) for name in columns if (reason := _suspicious_name(name, schema.target.name))]
    return list({suspect.column: suspect for suspect in reversed(found)}.values())[::-1]


def _spreads(column: Doubles) -> bool:
    """Whether a column varies, has no NaN, and its squares neither overflow nor vanish."""
    return bool(np.ptp(column) > 0.0 and 0.0 < column.std() < np.inf)


def _exact(numbers: Columns, targets: Doubles) -> Iterator[Suspect]:
    """Numbers that are the target, in whatever unit, or of which it is a sum, with factors, up to its last digit."""
    mostly = {name: column for name, column in numbers.items() if np.isnan(column).mean() < _MOST_MISSING}
    rows = ~np.isnan(np.stack([targets, *mostly.values()])).any(axis=0)
    complete = {name: column[rows] for name, column in mostly.items() if _spreads(column[rows])}
    enough = rows.sum() >= max(3 * len(complete), len(targets) / 2)
    if not (1 <= len(complete) <= _MOST_IN_A_SUM and enough and _spreads(targets[rows])):
        return
    matrix = np.stack([(column - column.mean()) / column.std() for column in complete.values()], axis=1)
    wanted = (targets[rows] - targets[rows].mean()) / targets[rows].std()
    factors = np.linalg.lstsq(matrix, wanted, rcond=None)[0]
    misses = np.abs(matrix @ factors - wanted)
    parts = [name for name, factor in zip(complete, factors, strict=True) if abs(factor) > max(1e-4, 3 * misses.mean())]
    if misses.max() > max(_EXACT, min(_ROUNDED, np.diff(np.unique(wanted)).min())) or not parts:
        return
    how = "exactly" if misses.max() <= _EXACT else "but for its last digit"
    for name in parts:
        sum_of = f"is one of {len(parts)} columns that together tell the target {how}"
        yield Suspect(name, sum_of if len(parts) > 1 else "is the target, maybe in another unit")


def _telling(columns: Columns, kinds: Mapping[str, FeatureKind], targets: Doubles) -> Iterator[Suspect]:
    """Features that alone tell almost all of the target; not time, which tells whatever changes slowly."""
    dates = [_ranks(column) for name, column in columns.items() if kinds[name] is FeatureKind.DATE]
    for name, column in columns.items():
        present = ~is_missing(column)
        ordered = kinds[name] is not FeatureKind.CATEGORICAL
        # A year with decimals has the order of a date.
        timely = ordered and any(abs(np.corrcoef(_ranks(column), date)[0, 1]) > 0.999 for date in dates)
        if timely or present.sum() < max(_FEWEST_ROWS, len(targets) // 2):
            continue
        cells, told = column[present], targets[present]
        equal = float(np.mean(np.isclose(cells, told, rtol=_EXACT, atol=0.0))) if ordered else 0.0
        share = max(share_told(cells, wanted, ordered=ordered) for wanted in (told, _ranks(told)))
        if equal >= _EQUAL:
            yield Suspect(name, f"equals the target in {100 * equal:.4g} % of the rows that have it")
        elif share >= _TELLS:
            yield Suspect(name, f"alone tells {100 * min(share, 0.9999):.2f} % of the target's variance")


def _ranks(column: Array) -> Doubles:
    """Return the place of each cell in the order of all, ``[N]``, from 0; equal cells in the order of their rows."""
    return np.argsort(np.argsort(column, kind="stable"), kind="stable").astype(np.float64)


def share_told(column: Array, targets: Doubles, *, ordered: bool) -> float:
    """Return the share of the targets' variance that a column tells, whatever the form of the relation.

    1 - E[(y - y')²] / (2 Var y), where y' is the target of the row with the next cell: half of the mean square is the
    variance that is left given the cell (the estimator of von Neumann 1941, and of Rice 1984). A column with a value of
    its own in each row tells no more than it knows.

    Args:
        column: Canonical column, ``[N]``, without missing cells.
        targets: ``[N]``, without NaN.
        ordered: Whether the cells are numbers; else only rows with the same cell are compared.
    """
    codes = column_codes(column)
    # Rows with the same cell in random order: in the order of time they would be alike for that alone.
    shuffled = np.random.default_rng(0).permutation(len(codes))
    order = shuffled[np.argsort(codes[shuffled], kind="stable")]
    steps = np.diff(targets[order])[np.diff(codes[order]) <= ordered]
    spread = 2.0 * float(targets.var())
    return 1.0 - float((steps**2).mean()) / spread if len(steps) >= _FEWEST_ROWS and spread > 0.0 else 0.0


def _suspicious_name(name: str, target: str) -> str | None:
    words, of_target = _words(name), _words(target)
    if any(map(_BEFORE.fullmatch, words)):
        return None
    known = sorted(filter(_AFTERWARDS.fullmatch, words))
    if known:
        return f"has {known[0]!r} in its name, as what is known only afterwards"
    if len(target) >= 3 and of_target and words != of_target and f" {' '.join(of_target)} " in f" {' '.join(words)} ":
        return "has the target in its name, as what is made from it"
    return None


def _words(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", name)]
