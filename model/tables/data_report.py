"""The data report of a training: each column of the table with kind, range and an example, and leak suspects."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from murho.model.errors import TableError
from murho.model.tables.cells import format_date
from murho.model.tables.columns import canonical_cells, is_missing, plain
from murho.model.tables.formats import notes_of
from murho.model.tables.schema import FeatureKind
from murho.model.tables.splits import column_codes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy.typing as npt
    import pyarrow as pa
    from numpy.typing import NDArray

    from murho.model.tables.schema import Columns
    from murho.model.tables.schema_inference import ColumnPlan

__all__ = [
    "ColumnFacts",
    "DataReport",
    "Suspect",
    "describe_table",
    "from_other_rows",
    "leak_suspects",
    "ranks",
    "report_lines",
    "rows_to_look_at",
    "share_told",
]


_LEAK_ROWS, _FEWEST_ROWS = 5_000, 30
"""Rows that are looked at, spread over the table, and the fewest that tell anything."""
_TELLS = 0.995
"""Share of the target's variance that a suspect tells of rows that it was not fitted to."""
_EXACT, _EQUAL = 1e-6, 0.99
"""Deviation, in standard deviations of the target, up to which a copy or a sum is exact, and share of equal rows."""
_MOST_IN_A_SUM = 50
_AFTERWARDS = re.compile(
    r"final|actuals?|outcome|results?|after(wards)?|later|eventual|ended|reali[sz]ed|complet(ed|ion)|finished|closed"
    r"|cancell?ed|refund(ed)?|returned|discharged?|settle(d|ment)|pred(icted|iction)?|forecast|yhat|estimated"
)
_BEFORE = frozenset({"lag", "prev", "previous", "last", "old", "yesterday", "before", "prior", "past", "ago"})


@dataclass(frozen=True, slots=True)
class Suspect:
    """A feature that may leak the target.

    Attributes:
        column: The feature.
        reason: Why it is suspected, as the end of a sentence that begins with its name.
        share: Share of the target's variance that it tells alone; None where only its name is suspected.
    """

    column: str
    reason: str
    share: float | None = None

    @property
    def message(self) -> str:
        """The suspicion in a sentence, with what to do."""
        option = f"--ignore {shlex.quote(self.column)}"
        return f"{self.column!r} {self.reason}: if it is not known when the target is asked for, give {option}"


def leak_suspects(
    columns: Columns, kinds: Mapping[str, FeatureKind], target: str, targets: NDArray[np.float64]
) -> list[Suspect]:
    """The features that may leak the target, each once, the surest first.

    Args:
        columns: Canonical columns of the features, ``[N]`` each.
        kinds: Feature → kind.
        target: Name of the target.
        targets: ``[N]``, NaN where missing.

    Returns:
        The suspects. A table of fewer than 30 rows, and the only feature of a table, are suspected by their names
        alone.
    """
    chosen = rows_to_look_at(targets)
    found: list[Suspect] = []
    if len(chosen):
        rows, wanted = {name: column[chosen] for name, column in columns.items()}, targets[chosen]
        found = [*_copies(rows, wanted), *(_telling(rows, kinds, wanted) if len(rows) > 1 else ())]
        found = found or list(_sum({name: rows[name] for name in rows if kinds[name] is FeatureKind.NUMERIC}, wanted))
    found += [Suspect(name, reason) for name in columns if (reason := _suspicious_name(name, target))]
    first: dict[str, Suspect] = {}
    for suspect in found:
        first.setdefault(suspect.column, suspect)
    return list(first.values())


def rows_to_look_at(targets: NDArray[np.float64]) -> NDArray[np.intp]:
    """The rows that `leak_suspects` looks at; it finds the same in these rows alone.

    Args:
        targets: ``[N]``, NaN where missing.

    Returns:
        Indices of rows with different targets, ascending; none if there are fewer than 30.
    """
    labelled = np.flatnonzero(np.isfinite(targets))
    if len(labelled) < _FEWEST_ROWS or np.ptp(targets[labelled]) == 0.0:
        return labelled[:0]
    return labelled[np.linspace(0, len(labelled) - 1, min(_LEAK_ROWS, len(labelled))).astype(np.intp)]


def _copies(rows: Columns, targets: NDArray[np.float64]) -> Iterator[Suspect]:
    """Features that are the target, or the target in another unit."""
    for name, column in rows.items():
        present = ~is_missing(column)
        if column.dtype == object or present.sum() < max(_FEWEST_ROWS, len(targets) // 2):
            continue
        values, wanted = column[present], targets[present]
        equal = float(np.mean(np.abs(values - wanted) <= _EXACT * targets.std()))
        if equal >= _EQUAL:
            share = "every row" if equal == 1.0 else f"{100 * equal:.1f} % of the rows"
            yield Suspect(name, f"equals the target in {share}", equal)
        elif np.ptp(values) > 0.0 < np.ptp(wanted) and np.corrcoef(values, wanted)[0, 1] ** 2 > 1.0 - _EXACT**2:
            yield Suspect(name, "is the target in another unit", 1.0)


def _telling(rows: Columns, kinds: Mapping[str, FeatureKind], targets: NDArray[np.float64]) -> Iterator[Suspect]:
    """Features that alone tell almost all of the target; not time, which tells whatever changes slowly."""
    dates = [ranks(column) for name, column in rows.items() if kinds[name] is FeatureKind.DATE]
    for name, column in rows.items():
        ordered = kinds[name] is not FeatureKind.CATEGORICAL
        # A year with decimals has the order of a date.
        if ordered and any(abs(np.corrcoef(ranks(column), date)[0, 1]) > 0.999 for date in dates):
            continue
        share = max(share_told(column, wanted, ordered=ordered) for wanted in (targets, ranks(targets)))
        if share >= _TELLS:
            yield Suspect(name, f"alone tells {100 * min(share, 0.9999):.2f} % of the target's variance", share)


def ranks(column: NDArray[Any]) -> NDArray[np.float64]:
    """The place of each cell in the order of all, ``[N]``, from 0; equal cells in the order of their rows."""
    return np.argsort(np.argsort(column, kind="stable"), kind="stable").astype(np.float64)


def share_told(column: NDArray[Any], targets: NDArray[np.float64], *, ordered: bool) -> float:
    """The share of the targets' variance that a column tells: 1 - (squared errors) / (squared deviations).

    Takes what `from_other_rows` takes.
    """
    total = float(((targets - targets.mean()) ** 2).sum())
    errors = targets - from_other_rows(column, targets, ordered=ordered)
    return 1.0 - float((errors**2).sum()) / total if total > 0.0 else 0.0


def from_other_rows(column: NDArray[Any], targets: NDArray[np.float64], *, ordered: bool) -> NDArray[np.float64]:
    """Each row's target, ``[N]``, as the other rows tell it.

    A row is predicted from the other rows with the same cell, or else between the two rows with the next smaller and
    the next larger number. So neither the form of the relation matters, nor can a column with a value of its own in
    each row tell more than it knows.

    Args:
        column: Canonical column, ``[N]``.
        targets: ``[N]``, without NaN.
        ordered: Whether the cells are numbers.
    """
    codes = column_codes(column)
    counts, sums = np.bincount(codes), np.bincount(codes, weights=targets)
    others = counts[codes] - 1
    predicted = np.where(others > 0, (sums[codes] - targets) / np.maximum(others, 1), targets.mean())
    if ordered:
        present = np.flatnonzero(~is_missing(column))
        x, first, place = np.unique(column[present], return_index=True, return_inverse=True)
        if len(x) > 2:
            y = (sums / counts)[codes[present[first]]]
            weight = (x[1:-1] - x[:-2]) / (x[2:] - x[:-2])
            between = np.concatenate((y[1:2], (1.0 - weight) * y[:-2] + weight * y[2:], y[-2:-1]))
            alone = others[present] == 0
            predicted[present[alone]] = between[place[alone]]
    return predicted


def _sum(columns: Columns, targets: NDArray[np.float64]) -> Iterator[Suspect]:
    """Numbers whose sum, with factors, is exactly the target."""
    complete = {name: column for name, column in columns.items() if np.ptp(column) > 0.0}  # NaN is not
    if not 2 <= len(complete) <= _MOST_IN_A_SUM or len(targets) < 3 * len(complete):
        return
    matrix = np.stack([(column - column.mean()) / column.std() for column in complete.values()], axis=1)
    wanted = (targets - targets.mean()) / targets.std()
    factors = np.linalg.lstsq(matrix, wanted, rcond=None)[0]
    parts = [name for name, factor in zip(complete, factors, strict=True) if abs(factor) > 1e-4]
    if np.abs(matrix @ factors - wanted).max() <= _EXACT and 2 <= len(parts) <= 5:
        for name in parts:
            others = " and ".join(repr(other) for other in parts if other != name)
            yield Suspect(name, f"and {others} add up to the target exactly", 1.0)


def _suspicious_name(name: str, target: str) -> str | None:
    words, of_target = _words(name), _words(target)
    if set(words) & _BEFORE:
        return None
    known = sorted(filter(_AFTERWARDS.fullmatch, words))
    if known:
        return f"has {known[0]!r} in its name, as what is known only afterwards"
    if len(target) >= 3 and of_target and words != of_target and f" {' '.join(of_target)} " in f" {' '.join(words)} ":
        return "has the target in its name, as what is made from it"
    return None


def _words(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", name)]


ORDERED_CLASSES = 2
_CATEGORIES = 5
_LONGEST_EXAMPLE = 40
_SENTINELS = [sign * (10.0**nines - 1.0) for sign in (1.0, -1.0) for nines in (2, 3, 4, 5, 6)] + [-1.0, -9.0]


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """A column of the table.

    Attributes:
        name: Its name.
        role: ``target``, ``feature``, ``left out``, or ``weight``.
        missing: Number of missing cells.
        example: The first cell that is there, as it is written; None if there is none.
        kind: Its kind; None if it is left out.
        unit: Unit of its numbers, if one is known.
        read_as: How its cells were recognised; None for plain numbers, ISO 8601 dates, truth values and categories.
        min: Smallest value: a number, or a date as text; None for categories.
        max: Largest value, as for the smallest.
        categories: The most frequent categories; None unless categorical.
        different: Number of different categories; None unless categorical.
        oddities: What was decided about the reading without proof, and values that may stand for missing ones.
        left_out: Why it is left out; None if it is not.
    """

    name: str
    role: str
    missing: int
    example: str | None
    kind: str | None = None
    unit: str | None = None
    read_as: str | None = None
    min: float | str | None = None
    max: float | str | None = None
    categories: list[str] | None = None
    different: int | None = None
    oddities: list[str] = field(default_factory=list)
    left_out: str | None = None


@dataclass(frozen=True, slots=True)
class DataReport:
    """What a training says about its table before it begins.

    Attributes:
        rows: Number of rows, N.
        columns: All columns in the order of the table.
        leak_suspects: Features that may leak the target.
        notes: What the reader of the file has to tell.
    """

    rows: int
    columns: list[ColumnFacts]
    leak_suspects: list[Suspect]
    notes: list[str]

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        return asdict(self)


def describe_table(
    table: pa.Table, plan: ColumnPlan, targets: npt.NDArray[np.float64], *, weight: str | None = None
) -> DataReport:
    """Describe the table of a training, a column at a time.

    Args:
        table: All columns, N rows.
        plan: What was inferred of them.
        targets: ``[N]``, NaN where missing.
        weight: The column of weights, if there is one.
    """
    looked_at = rows_to_look_at(targets)
    looks: dict[str, npt.NDArray[Any]] = {}
    described = []
    for name in table.column_names:
        facts, values = _described(table.column(name), name, plan, weight)
        described.append(facts)
        if name in plan.kinds:
            looks[name] = values[looked_at]
        del values  # it would stay while the next column is read
    # The numbers of more than two classes have no order, so no column can copy them.
    ordered = plan.target.classes is None or len(plan.target.classes) == ORDERED_CLASSES
    suspects = leak_suspects(looks, plan.kinds, plan.target.name, targets[looked_at]) if ordered else []
    return DataReport(table.num_rows, described, suspects, notes_of(table))


def _described(
    column: pa.ChunkedArray, name: str, plan: ColumnPlan, weight: str | None
) -> tuple[ColumnFacts, npt.NDArray[Any]]:
    """The facts of a column, and its canonical column; empty for one that is left out."""
    kind, reading, unit = plan.kinds.get(name), plan.readings.get(name), plan.units.get(name)
    role = "feature" if kind else "left out"
    if name == plan.target.name:
        role, reading, unit = "target", plan.target.reading, plan.target.unit
        kind = FeatureKind.NUMERIC if plan.target.classes is None else FeatureKind.CATEGORICAL
    elif name == weight:
        role, kind = "weight", FeatureKind.NUMERIC
    try:
        cells = plain(column, name)
    except TableError:  # the inference left it out
        cells = column
    if kind is None:
        reason = plan.left_out.get(name) or "it is not used"
        return ColumnFacts(name, role, cells.null_count, _example(cells), left_out=reason), np.empty(0)
    values = canonical_cells(cells, kind, name, reading)
    absent = is_missing(values)
    facts: dict[str, Any] = {
        "kind": str(kind),
        "unit": unit,
        "read_as": None if reading is None else reading.describe(),
    }
    odd = [plan.notes.get(name)]
    if kind is FeatureKind.CATEGORICAL:
        counts = Counter(values[~absent].tolist())
        facts |= {"categories": [most for most, _ in counts.most_common(_CATEGORIES)], "different": len(counts)}
    elif not absent.all():
        ends = [float(end) for end in (np.nanmin(values), np.nanmax(values))]
        facts["min"], facts["max"] = map(format_date, ends) if kind is FeatureKind.DATE else ends
        odd += [_sentinel(values[~absent], end) for end in ends] if role == "feature" else []
    said = [text for text in odd if text]
    return ColumnFacts(name, role, int(absent.sum()), _example(cells), oddities=said, **facts), values


def _sentinel(present: npt.NDArray[np.float64], end: float) -> str | None:
    """What to say of the smallest or largest number if it looks like a code for missing values; None if it doesn't."""
    rest = present[present != end]
    count = len(present) - len(rest)
    if end not in _SENTINELS or count < 2 or len(rest) < 3:
        return None
    gap = float(np.abs(rest - end).min())
    if gap > np.ptp(rest) or (end <= -9.0 and rest.min() >= 0.0):
        return f"{end:.12g} in {count} cells may stand for missing values: if so, leave these cells empty"
    return None


def _example(cells: pa.ChunkedArray) -> str | None:
    """The first cell that is there, as text, cut to `_LONGEST_EXAMPLE` characters."""
    if cells.null_count == len(cells):
        return None
    first = next(chunk for chunk in cells.chunks if chunk.null_count < len(chunk))
    cell = pc.drop_null(first)[0].as_py()
    text = f"{cell:.12g}" if isinstance(cell, float) else str(cell)
    return text if len(text) <= _LONGEST_EXAMPLE else f"{text[: _LONGEST_EXAMPLE - 1]}…"


MOST_COLUMNS = 40
"""Of more columns, those without anything odd are counted only."""
_WIDEST_NAME, _WIDEST_RANGE = 28, 34


def report_lines(report: DataReport, source: str, width: int | None = None) -> list[str]:
    """The report in lines: a table of the columns, what was left out and why, and leak suspects.

    Args:
        report: The report.
        source: Name of the file.
        width: Columns of the terminal: sentences are wrapped, and rows of the table cut; None for lines of any length.
    """
    out = [column for column in report.columns if column.role == "left out"]
    used = [column for column in report.columns if column.role != "left out"]
    plain = [column for column in used if column.role == "feature" and not (column.oddities or column.read_as)]
    hidden = plain[max(0, MOST_COLUMNS - (len(used) - len(plain))) :] if len(used) > MOST_COLUMNS else []
    lines = [f"{source}: {report.rows:,} rows, {len(report.columns)} columns"]
    lines += [f"  note: {note}" for note in report.notes]
    shown = [column for column in used if column not in hidden]
    rows = [("column", "kind", "missing", "range or categories", "example"), *map(_row, shown)]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    for number, (name, kind, missing, *others) in enumerate(rows):
        span, example = (cell.ljust(size) for cell, size in zip(others, widths[3:], strict=True))
        cells = f"  {name.ljust(widths[0])}  {kind.ljust(widths[1])}  {missing.rjust(widths[2])}  {span}  {example}"
        lines.append(_cut(cells.rstrip(), width or len(cells)))
        if number:
            column = shown[number - 1]
            recognised = [f"read as {column.read_as}"] if column.read_as else []
            lines += [f"      {text}" for text in (*recognised, *column.oddities)]
    if hidden:
        kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(column.kind for column in hidden).most_common())
        lines.append(f"  and {len(hidden)} more columns ({kinds}); --json lists all")
    lines += [f"  left out {column.name!r}: {column.left_out}" for column in out[:MOST_COLUMNS]]
    if len(out) > MOST_COLUMNS:
        lines.append(f"  left out {len(out) - MOST_COLUMNS} more columns; --json lists all")
    lines += [f"  leak suspect: {suspect.message}" for suspect in report.leak_suspects]
    return [part for line in lines for part in _wrapped(line, width)]


def _wrapped(line: str, width: int | None) -> list[str]:
    if width is None or len(line) <= width:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()))
    return textwrap.wrap(line.strip(), width, initial_indent=indent, subsequent_indent=indent + "  ")


def _row(column: ColumnFacts) -> tuple[str, ...]:
    if column.categories is not None:
        span = f"{column.different}: {', '.join(column.categories)}"
    else:
        span = "" if column.min is None else f"{_written(column.min)} to {_written(column.max)} {column.unit or ''}"
    kind = (column.kind or "") + (f" ({column.role})" if column.role != "feature" else "")
    name, span = _cut(column.name, _WIDEST_NAME), _cut(span.rstrip(), _WIDEST_RANGE)
    return name, kind, f"{column.missing:,}", span, column.example or ""


def _written(value: float | str | None) -> str:
    if not isinstance(value, float):
        return str(value)
    size = abs(value)
    if size < 10_000 or size >= 1e15:
        return f"{value:.6g}"
    return f"{value:,.0f}" if size >= 100_000 or value.is_integer() else f"{value:,.6g}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
