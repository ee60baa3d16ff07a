"""The data report of a training: each column of the table with kind, range and an example, and leak suspects."""

from __future__ import annotations

import re
import shlex
import textwrap
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from murho.model.errors import counted, printable
from murho.model.tables.cells import format_date
from murho.model.tables.formats import notes_of, unit_of
from murho.model.tables.inference import Inference, far_numbers, infer_column, infer_feature
from murho.model.tables.overrides import ColumnOverride
from murho.model.tables.schema import Columns, FeatureKind, Schema, is_missing
from murho.model.tables.schema_inference import IGNORED, ColumnPlan, columns_from_table
from murho.model.tables.splits import column_codes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    import pyarrow as pa

    from murho.model.arrays import Array, Doubles
    from murho.model.tables.readings import ReadingHints

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
_BEFORE = frozenset({"lag", "prev", "previous", "last", "old", "yesterday", "before", "prior", "past", "ago"})


@dataclass(frozen=True, slots=True)
class Suspect:
    """A feature that may leak the target.

    Attributes:
        column: The feature.
        reason: Why it is suspected, as the end of a sentence that begins with its name.
    """

    column: str
    reason: str


def leak_sentences(suspects: Sequence[Suspect]) -> Iterator[str]:
    """The suspicions with what to do, one for all columns of the same reason."""
    for reason in dict.fromkeys(suspect.reason for suspect in suspects):
        names = [suspect.column for suspect in suspects if suspect.reason == reason]
        several, options = len(names) > 1, " ".join(f"--ignore {shlex.quote(name)}" for name in names)
        subject, known = (": each", "they are") if several else ("", "it is")
        yield (
            f"{', '.join(map(repr, names))}{subject} {reason}: if {known} not known when the target is asked for, "
            f"give {options}"
        )


def leak_suspects(columns: Columns, schema: Schema, targets: Doubles) -> list[Suspect]:
    """The features that may leak the target, each once, the surest first.

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
    """The place of each cell in the order of all, ``[N]``, from 0; equal cells in the order of their rows."""
    return np.argsort(np.argsort(column, kind="stable"), kind="stable").astype(np.float64)


def share_told(column: Array, targets: Doubles, *, ordered: bool) -> float:
    """The share of the targets' variance that a column tells, whatever the form of the relation.

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


class ReportedColumn(NamedTuple):
    """A column of the table.

    Attributes:
        name: Its name.
        role: ``target``, ``feature``, ``left out``, or ``weight``.
        unit: Unit of its numbers, if one is known.
        found: What its cells tell.
    """

    name: str
    role: str
    unit: str | None
    found: Inference

    @property
    def remarks(self) -> list[str]:
        """What to say of it, a line each."""
        reading = self.found.reading
        return [*([f"read as {reading.describe()}"] if reading else []), *self.found.remarks]

    @property
    def ends(self) -> tuple[float | str, ...]:
        """Smallest and largest value, dates as text; none of categories."""
        ends = self.found.range or ()
        return tuple(map(format_date, ends)) if self.found.kind is FeatureKind.DATE else ends

    def to_json(self) -> dict[str, Any]:
        """The column as JSON data; of one that is left out only why, its missing cells, and an example."""
        facts = {"name": self.name, "role": self.role, "unit": self.unit, **asdict(self.found), "range": self.ends}
        brief = ("name", "role", "missing", "example", "left_out")
        return {key: facts[key] for key in brief} if self.role == "left out" else facts


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
    columns: list[ReportedColumn]
    leak_suspects: list[Suspect]
    notes: list[str]

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        return asdict(self) | {"columns": [column.to_json() for column in self.columns]}


def describe_table(table: pa.Table, plan: ColumnPlan, targets: Doubles, *, weight: str | None = None) -> DataReport:
    """Describe the table of a training.

    Args:
        table: All columns, N rows.
        plan: What was inferred of them.
        targets: ``[N]``, NaN where missing.
        weight: The column of weights, if there is one.
    """
    schema, found = plan.schema, dict(plan.columns)
    roles = dict.fromkeys((feature.name for feature in schema.features), "feature") | {schema.target.name: "target"}
    units = {feature.name: feature.unit for feature in schema.features} | {schema.target.name: schema.target.unit}
    if weight is not None:
        roles[weight], found[weight] = "weight", infer_column(table.column(weight), weight, FeatureKind.NUMERIC)
    columns = [
        ReportedColumn(name, roles.get(name, "left out"), units.get(name), found[name]) for name in table.column_names
    ]
    suspects = []
    # The numbers of more than two classes have no order, so no column can copy them.
    if schema.target.classes is None or len(schema.target.classes) == ORDERED_CLASSES:
        usual = np.isfinite(targets)
        usual[far_numbers(targets)] = False  # beside such a number, all others look alike
        labelled = np.flatnonzero(usual)
        looked_at = labelled[np.linspace(0, len(labelled) - 1, min(_LEAK_ROWS, len(labelled))).astype(np.intp)]
        cells = columns_from_table(table, schema, rows=looked_at)
        suspects = leak_suspects(cells, schema, targets[looked_at])
    return DataReport(table.num_rows, columns, suspects, notes_of(table))


def describe_columns(
    table: pa.Table, hints: ReadingHints, ignored: Collection[str], overrides: Mapping[str, ColumnOverride]
) -> DataReport:
    """Describe a table of which no column is the target yet. What can't be read is left out, with the reason.

    Args:
        table: All columns, N rows.
        hints: What decides where columns leave open how they are to be read.
        ignored: Columns that are left out.
        overrides: Column → kind and unit given by the user.
    """
    columns = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        given = overrides.get(name, ColumnOverride())
        found, _ = infer_feature(column, name, given.kind, hints)
        if name in ignored:
            found = replace(found, left_out=IGNORED)
        unit = given.unit or (found.reading.unit if found.reading else unit_of(table, name))
        columns.append(ReportedColumn(name, "left out" if found.left_out else "feature", unit, found))
    return DataReport(table.num_rows, columns, [], notes_of(table))


MOST_COLUMNS = 40
"""Of more columns, others than the target and those with something odd are counted only."""
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
    shown = used
    if len(used) > MOST_COLUMNS:
        shown = sorted(used, key=lambda column: column.role == "feature" and not column.remarks)[:MOST_COLUMNS]
    rows = [["column", "kind", "missing", "range or categories", "example"]]
    rows += [list(map(printable, _row(column))) for column in shown]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    lines = [f"{source}: {counted(report.rows, 'row')}, {counted(len(report.columns), 'column')}"]
    lines += [f"  note: {note}" for note in report.notes]
    for cells, remarks in zip(rows, [[], *(column.remarks for column in shown)], strict=True):
        row = "".join(f"  {cell.ljust(size)}" for cell, size in zip(cells, widths, strict=True)).rstrip()
        lines += [_cut(row, width or len(row)), *(f"      {text}" for text in remarks)]
    if len(used) > len(shown):
        lines.append(f"  and {len(used) - len(shown)} more columns; --json lists all")
    lines += [f"  left out {column.name!r}: {column.found.left_out}" for column in out[:MOST_COLUMNS]]
    if len(out) > MOST_COLUMNS:
        lines.append(f"  left out {len(out) - MOST_COLUMNS} more columns; --json lists all")
    lines += [f"  leak suspect: {sentence}" for sentence in leak_sentences(report.leak_suspects)]
    if width is None:
        return lines
    return [part for line in lines for part in textwrap.wrap(line, width, subsequent_indent="    ")]


def _row(column: ReportedColumn) -> tuple[str, ...]:
    found = column.found
    span = " to ".join(map(_written, column.ends)) + (f" {column.unit}" if column.unit and column.ends else "")
    if found.kind is FeatureKind.CATEGORICAL:
        span = _cut(f"{found.different}: {', '.join(found.categories)}", _WIDEST_RANGE)
    kind = found.kind + (f" ({column.role})" if column.role != "feature" else "")
    return (
        _cut_within(column.name, _WIDEST_NAME),
        kind,
        f"{found.missing:,}",
        span,
        found.example or "",
    )


def _written(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value + 0.0:.6g}"  # no "-0"


def _cut_within(text: str, width: int) -> str:
    """A name without its middle: long names often differ at their ends alone."""
    return text if len(text) <= width else f"{text[: width // 2]}…{text[width // 2 + 1 - width :]}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
