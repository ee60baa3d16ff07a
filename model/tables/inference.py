"""What kind a column is, by all its cells, and how they are written; or the reason why it is no feature.

``1,234`` alone says neither whether its comma parts thousands nor whether it is a decimal comma, and ``03/04/2020``
leaves the month open. Other cells of the column mostly tell. If none does, the user's option decides, then the other
columns of the table, then what is usual.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from murho.model.arrays import Bools, Doubles, Places
from murho.model.errors import TableError, format_count
from murho.model.tables.cells import days_of, format_date, parse_date
from murho.model.tables.columns import (
    Distinct,
    canonical_cells,
    distinct,
    holds_durations,
    holds_text,
    merged_numbers,
    plain,
    plain_numbers,
    stored_kind,
)
from murho.model.tables.readings import (
    MARK,
    NO_HINTS,
    ORDER,
    PIVOT,
    DateOrder,
    DateReading,
    DecimalMark,
    NumberReading,
    Reading,
    ReadingHints,
    date_parts,
    fitting_answers,
    is_missing_word,
    number_parts,
    parse_texts,
    readings_of,
    words_for,
)
from murho.model.tables.schema import FeatureKind

_ROWS_FOR_HINTS = 2_048
"""First rows of a table from which columns learn of each other."""


def _split_words(texts: Collection[str], names: Collection[str]) -> tuple[tuple[str | None, str], ...]:
    """Words, each with its column, from texts such as ``unknown`` and ``Glucose=0``."""
    parts = [(*text.rpartition("=")[::2], text) for text in texts]
    return tuple((column, word) if column in names else (None, text) for column, word, text in parts)


def hints_of_table(
    table: pa.Table,
    *,
    decimal: DecimalMark | None = None,
    date_order: DateOrder | None = None,
    pivot: int = PIVOT,
    missing_value: Collection[str] = (),
    keep: Collection[str] = (),
    skip: Collection[str] = (),
) -> ReadingHints:
    """Return what the options say, and else what the columns of a table that leave nothing open agree on.

    Args:
        table: The table.
        decimal: The option ``--decimal``.
        date_order: The option ``--date-order``.
        pivot: The option ``--pivot-year``.
        missing_value: The option ``--missing-value``.
        keep: The option ``--keep``.
        skip: Columns that do not count.
    """
    rows = table.slice(0, _ROWS_FOR_HINTS)
    columns = [
        [text for text in distinct(plain(column, name)).values if not text.isdigit()]  # 12102020 proves nothing
        for name, column in zip(rows.column_names, rows.columns, strict=True)
        if name not in skip and holds_text(column.type)
    ]
    decided: dict[str, tuple[str, str]] = {}
    for question, parse, given in ((MARK, number_parts, decimal), (ORDER, date_parts, date_order)):
        fits = [fitting_answers(parse_texts(texts, parse), question) for texts in columns]
        proven = {answers[0] for answers, misfits in fits if len(answers) == 1 and not misfits}
        if given or len(proven) == 1:
            decided[question] = (given, "") if given else (proven.pop(), ", as in other columns")
    return ReadingHints(
        decided, pivot, _split_words(missing_value, table.column_names), _split_words(keep, table.column_names)
    )


_MOSTLY, _ALMOST_ALL = 0.8, 0.95
"""A text column with at least this share of numbers or dates is refused: its other cells are likely mistakes. For
readings it is the second: other texts among ``$3`` are rather categories than mistakes."""
_MOST_WORDS = 0.8
"""Share of the cells of a column with a reading that may be words for a missing cell."""
_IDENTIFIER_VALUES = 20
"""A column with this many distinct values or fewer is never taken for an identifier."""
_NAMES_OF_IDENTIFIERS = re.compile(
    r"(?:^|[_\s.-])(?:id|ids|uid|uuid|guid|key|index|rownum|row_number|rowid|rownames)$|^unnamed: ?[0-9]+$"
    r"|^__index_level_|(?-i:(?<=[a-z])I[dD]$)",
    re.IGNORECASE,
)
_FREQUENT, _LONGEST_EXAMPLE = 5, 40
_WITH_UNIT = re.compile(r"[0-9][0-9.,]*\s*[^\W\d_]+[^\d\s]*")


@dataclass(frozen=True, slots=True)
class Inference:
    """What all cells of a column tell.

    Attributes:
        kind: Kind of the cells.
        missing: Number of missing cells.
        left_out: Reason why the column is no feature; None for a feature.
        example: The first cell that is there, as it is written; None if there is none.
        reading: How the cells are written, if not as plain numbers, ISO 8601 dates or categories.
        remarks: What was decided about the reading without proof.
        range: Smallest and largest number, or date in days since 1970-01-01 UTC; None for categories.
        categories: The most frequent categories.
        different: Number of different values.
    """

    kind: FeatureKind
    missing: int
    left_out: str | None
    example: str | None
    reading: Reading | None = None
    remarks: tuple[str, ...] = ()
    range: tuple[float, float] | None = None
    categories: tuple[str, ...] = ()
    different: int = 0


def infer_column(
    column: pa.ChunkedArray,
    name: str,
    declared: FeatureKind | None = None,
    hints: ReadingHints = NO_HINTS,
    *,
    codes: bool = False,
) -> Inference:
    """Infer the kind of a column, and whether it is a feature.

    Args:
        column: The whole column ``[N]``.
        name: The column's name, for messages.
        declared: Kind given by the user. It replaces the inferred kind, and the column is not tested for identifiers.
        hints: What decides where the cells leave open how they are to be read.
        codes: Whether whole numbers with leading zeros are categories.

    Returns:
        The inferred properties.

    Raises:
        TableError: A cell doesn't fit the kind, most cells but not all are numbers or dates, or a number is infinite;
            the message names column and row (from 1).
    """
    cells = plain(column, name, hints.missing(name))
    stored = stored_kind(cells)
    if stored is None:
        reason = f"cells of the type {column.type!s:.60} can't be used"
        return Inference(declared or FeatureKind.CATEGORICAL, cells.null_count, reason, example_of(cells))
    kind, reading, note = _kind(cells, stored, name, declared, hints, codes=codes)
    if holds_durations(column.type) and kind is FeatureKind.NUMERIC:
        reading = NumberReading(unit="s")
    notes = [note] if note else []
    values, counts, merged, ends, left_out = np.empty(0), Counter[str](), 0, None, None
    if kind is FeatureKind.CATEGORICAL:
        texts = canonical_cells(plain(column, name, frozenset()), kind, name, words=frozenset())
        counts = Counter(text or "" for text in texts)
        words = hints.missing(name, categories=True).intersection(counts)
        gone = {word: counts.pop(word) for word in [*counts] if word in words}
        notes += _of_words(gone, words_for(name, hints.missing_words))
        missing, different = sum(gone.values()), len(counts)
    else:
        values = canonical_cells(cells, kind, name, reading, hints.missing(name))
        present = values[~np.isnan(values)]
        missing, different = len(values) - len(present), len(np.unique(present))
        ends = (float(present.min()), float(present.max())) if present.size else None
        merged = merged_numbers(cells, values) if kind is FeatureKind.NUMERIC and reading is None else 0
    if not different:  # texts such as "nan" are missing too
        left_out = "every cell is missing"
    elif different == 1 and not missing:
        left_out = (
            f"its {merged + 1:,} different whole numbers are equal {_TOO_LONG}" if merged else "every cell is the same"
        )
    elif declared is None and reading is None:
        if kind is FeatureKind.CATEGORICAL:
            left_out = _hardly_repeats(counts)
        elif kind is FeatureKind.NUMERIC:
            left_out = _numbers_rows(values, different + merged, name)
        left_out = f"{left_out}; {_CODES}" if left_out and note == _CODES else left_out
    if ends and left_out is None:
        notes += _of_odd_numbers(values, name, format_date if kind is FeatureKind.DATE else "{:.6g}".format)
        notes += [f"different whole numbers beyond 2^53 are equal {_TOO_LONG}"] if merged else []
    frequent = tuple(most for most, _ in counts.most_common(_FREQUENT))
    return Inference(kind, missing, left_out, example_of(cells), reading, tuple(notes), ends, frequent, different)


_TOO_LONG = 'in the 16 digits that a number keeps: if they are names, declare kind = "categorical" in the TOML file'


def _of_odd_numbers(values: Doubles, name: str, written: Callable[[float], str]) -> Iterator[str]:
    """Return a number or day that may stand for a missing value, and those that may be slips."""
    code, far = suspected_code(values[~np.isnan(values)]), far_numbers(values)
    others = np.delete(values, far)
    others = others[~np.isnan(others) & (others != code)]
    span = f"all others lie from {written(others.min())} to {written(others.max())}" if len(others) else ""
    if code is not None:
        option = f"--missing-value {shlex.quote(f'{name}={written(code)}')}, or {written(code)} for all columns"
        count = format_count(int((values == code).sum()), "cell")
        yield f"{written(code)}, {count}, may stand for a missing value: {span}; if it does, give {option}"
    for row in far.tolist():
        advice = "if it is a mistake, correct the cell or leave it empty"
        yield f"row {row + 1}: {written(values[row])} is far out, {span}; {advice}"


def _of_words(gone: Mapping[str, int], given: Collection[str]) -> Iterator[str]:
    """Return the words, with counts, that are read as missing categories, but for those that the user has given."""
    for word, count in gone.items():
        if word not in given and word.lower() not in ("", "nan", "-nan", "<na>", "#n/a"):
            cells, keep = format_count(count, "cell"), f"--keep {shlex.quote(word)}"
            yield f"{word!r}, {cells}, is read as a missing value; if it is a category, give {keep}"


MOST_MISFITS = 50
"""More different texts among the numbers or dates of a column are no mistakes."""


def misfits_of(column: pa.ChunkedArray, name: str, hints: ReadingHints) -> Mapping[str, int]:
    """Return the texts, with counts, that do not fit a column of numbers or dates; none if they are too many."""
    try:
        infer_column(column, name, None, hints)
    except TableError as error:
        return error.words
    return {}


def infer_feature(
    column: pa.ChunkedArray,
    name: str,
    declared: FeatureKind | None,
    hints: ReadingHints,
    left_out: str | None = None,
) -> tuple[Inference, ReadingHints]:
    """Return what a feature's cells tell; a few texts among its numbers or dates become words for a missing cell.

    A column that can't be read is no feature, and the reason says how it could be one. If there is a reason to leave
    the column out, the kind of its cells isn't looked at.

    Returns:
        What they tell, and the hints with these words.

    Raises:
        TableError: A cell does not fit the declared kind.
    """
    if left_out is not None:
        cells = plain(column, name, hints.missing(name))
        return Inference(FeatureKind.CATEGORICAL, cells.null_count, left_out, example_of(cells)), hints
    try:
        return infer_column(column, name, declared, hints, codes=True), hints
    except TableError as error:
        if declared is not None:
            raise
        told, words = str(error).removeprefix(f"column {name!r}").lstrip(",: "), error.words
    with suppress(TableError):
        if words:
            own = hints.with_missing(name, words)
            found = infer_column(column, name, None, own)
            listed = ", ".join(f"{word!r} ({count:,})" for word, count in Counter(words).most_common(_FREQUENT))
            listed += f" and {len(words) - _FREQUENT} more" if len(words) > _FREQUENT else ""
            among = "dates" if found.kind is FeatureKind.DATE else "numbers"
            advice = (
                f'if it is meant, declare kind = "categorical" in the TOML file, or give --ignore {shlex.quote(name)}'
            )
            remarks = f"read as missing among {among}: {listed}; {advice}", *found.remarks
            return replace(found, remarks=remarks), own
    return Inference(FeatureKind.CATEGORICAL, column.null_count, told, example_of(column)), hints


def example_of(cells: pa.ChunkedArray) -> str | None:
    """Return the first cell that is there, as text, cut to some characters."""
    for chunk in cells.chunks:
        if chunk.null_count < len(chunk):
            cell = pc.drop_null(chunk)[0].as_py()
            text = f"{cell:.12g}" if isinstance(cell, float) else str(cell)
            return text if len(text) <= _LONGEST_EXAMPLE else f"{text[: _LONGEST_EXAMPLE - 1]}…"
    return None


def _kind(
    cells: pa.ChunkedArray,
    stored: FeatureKind,
    name: str,
    declared: FeatureKind | None,
    hints: ReadingHints,
    *,
    codes: bool,
) -> tuple[FeatureKind, Reading | None, str]:
    """Kind, reading and the note on the reading."""
    if declared in (FeatureKind.CATEGORICAL, FeatureKind.BOOLEAN) or cells.null_count == len(cells):
        return declared or stored, None, ""
    numbered = declared is None and _NAMES_OF_IDENTIFIERS.search(name) is not None
    digits = stored in (FeatureKind.CATEGORICAL, FeatureKind.NUMERIC) and declared is not FeatureKind.NUMERIC
    if digits and not numbered and (days := _days_in_digits(cells)) is not None:
        orders = set.intersection(*(set(each.values) for each in map(date_parts, days.values) if each))
        # The cells alone prove nothing: customers numbered from 13012000, say, are all days, too.
        named = _NAMES_OF_DATES.search(name) is not None
        if declared is FeatureKind.DATE or (named and len(orders) == 1):
            return _text_kind(days, name, FeatureKind.DATE, hints)
        if orders and (named or len(days.values) > _IDENTIFIER_VALUES):
            return FeatureKind.NUMERIC, None, _MAY_BE_DAYS + (_OPEN_ORDER if len(orders) > 1 else "")
    if stored is not FeatureKind.CATEGORICAL:
        return declared or stored, None, ""
    if declared is FeatureKind.DATE or plain_numbers(cells) is None:  # a date such as 20201231
        return _text_kind(distinct(cells), name, declared, hints)
    if hints.answers.get(MARK, "")[:1] == (",",) and pc.any(pc.match_substring(cells, ".")).as_py():
        # "1.234" in a table with decimal commas; a column with "12.5" has decimal points all the same.
        kind, reading, note = _text_kind(distinct(cells), name, declared, hints)
        return kind, None if reading == NumberReading() else reading, note
    if codes and declared is None and _is_code(cells):
        return FeatureKind.CATEGORICAL, None, _CODES
    return FeatureKind.NUMERIC, None, ""


_CODES = 'codes with leading zeros are categories: if they are numbers, declare kind = "numeric" in the TOML file'


def _is_code(cells: pa.ChunkedArray) -> bool:
    """Whether all cells are texts of digits, some with leading zeros; not if all have two digits, as hours have."""
    if not pc.any(pc.match_substring_regex(cells, "^0[0-9]+$")).as_py():
        return False
    whole, pairs = (pc.all(pc.match_substring_regex(cells, form)).as_py() for form in ("^[0-9]+$", "^[0-9]{2}$"))
    return whole and not pairs


_NAMES_OF_DATES = re.compile(
    r"(?<!candi)date|(?:datum|day|tag)$|(?:^|[_\W])(?:data|datum|dato|day|dt|fecha|jour|tag)(?:[_\W]|$)", re.IGNORECASE
)
_MAY_BE_DAYS = 'these may be dates: if so, declare kind = "date" in the TOML file'
_OPEN_ORDER = ", and give --date-order"
_LEAST_DAY, _MOST_DAY = 1_011_800, 31_129_999


def _days_in_digits(cells: pa.ChunkedArray) -> Distinct | None:
    """Return the distinct cells as texts if all are days written as numbers, such as 10142018; None if one is not."""
    numbers = plain_numbers(cells)
    if numbers is None:
        return None
    present = numbers[~np.isnan(numbers)]
    if not ((present >= _LEAST_DAY) & (present <= _MOST_DAY)).all() or (present % 1.0 > 0.0).any():
        return None
    texts = cells if holds_text(cells.type) else pc.cast(pc.cast(cells, pa.int64()), pa.large_string())
    days = distinct(texts)
    return days if all(map(date_parts, days.values)) else None


def _text_kind(
    values: Distinct, name: str, declared: FeatureKind | None, hints: ReadingHints
) -> tuple[FeatureKind, Reading | None, str]:
    if declared is None and {value.lower() for value in values.values} <= {"true", "false"}:
        return FeatureKind.BOOLEAN, None, ""
    texts, counts = values.values, values.counts()
    words = int(counts[[is_missing_word(text) for text in texts]].sum())
    best: tuple[float, Bools, Reading | None] = 0.0, np.ones(0, np.bool_), None
    readings = readings_of(texts, name, hints) if words <= _MOST_WORDS * int(counts.sum()) else ()
    for reading, note in chain([(None, "")], readings):
        kind = FeatureKind.NUMERIC if isinstance(reading, NumberReading) else FeatureKind.DATE
        if declared not in (None, kind):
            continue
        meant = parse_texts(texts, parse_date if reading is None else reading.parse)
        fitting = np.array([text in meant for text in texts])
        if fitting.all():
            notes = [note, *(_of_dates(texts, reading) if kind is FeatureKind.DATE else ())]
            if reading and words:
                notes.append(f"{format_count(words, 'cell')} with a word or sign for a missing value")
            return kind, reading, "; ".join(filter(None, notes))
        share = float(counts[fitting].sum() / counts.sum())
        mostly = _MOSTLY if reading in (None, NumberReading()) else _ALMOST_ALL
        is_sign = len(fitting) - fitting.sum() <= _MOST_SIGNS and fitting.sum() > _IDENTIFIER_VALUES
        if share > best[0] and (declared is not None or share >= mostly or is_sign):
            best = share, fitting, reading
    share, fitting, reading = best
    if declared is not None:
        return declared, reading, ""  # the first cell that does not fit will be named, as the reading expects it
    if share:
        misfits = [(texts[place], int(counts[place])) for place in np.flatnonzero(~fitting)]
        row, word = values.first_row(int(np.argmin(fitting))), misfits[0][0]
        what = "dates" if reading is None else reading.describe()
        raise TableError(
            f"column {name!r}, row {row}: {word!r} among {what} ({int(100 * share)} % of the cells are {what}): if it "
            f"stands for a missing value, give --missing-value {shlex.quote(f'{name}={word}')}; if it is a mistake, "
            'correct the cell or leave it empty; if it is meant, declare kind = "categorical" in the TOML file',
            row=row,
            words=dict(misfits) if len(misfits) <= MOST_MISFITS else None,
        )
    return FeatureKind.CATEGORICAL, None, ""


_MOST_SIGNS = 3
"""So few different texts among many different numbers or dates are signs, not categories, however often they are."""
_TIME, _ZONE = re.compile(r"[0-9]:[0-9]"), re.compile(r"(?:[+-][0-9]{2}:?(?:[0-9]{2})?|Z|[A-Z]{3,4})$", re.IGNORECASE)


def _of_dates(texts: list[str], reading: Reading | None) -> Iterator[str]:
    """Return times without a zone beside others with one, and years of two digits that may be of the other century."""
    timed = list(filter(_TIME.search, texts))
    zoned = list(filter(_ZONE.search, timed))
    if 0 < len(zoned) < len(timed):
        naive = next(text for text in timed if not _ZONE.search(text))
        yield f"{naive!r} has no time zone, unlike {zoned[0]!r}: UTC is assumed"
    if isinstance(reading, DateReading):
        now, earlier = datetime.now(UTC), replace(reading, pivot=0)
        late = [text for text in texts if (day := reading.parse(text)) > days_of(now) and earlier.parse(text) < day]
        if late:
            yield (
                f"{late[0]!r} is read as {format_date(reading.parse(late[0]))}, in the future (as {len(late) - 1} more)"
                f": if it is of the 1900s, give --pivot-year {now.year % 100 + 1}"
            )


def _hardly_repeats(counts: Counter[str]) -> str | None:
    """Why texts only identify their rows: mostly they are different."""
    count, different = counts.total(), len(counts)
    if different <= max(_IDENTIFIER_VALUES, count / 2):
        return None
    if 2 * sum(rows for text, rows in counts.items() if _WITH_UNIT.fullmatch(text)) > count:
        return "it holds numbers with a unit: write the numbers alone to use it"
    if different == count:
        return f"it identifies rows: its {count:,} texts are all different"
    return f"its texts hardly repeat: {different:,} of {count:,} are different"


def _numbers_rows(values: Doubles, different: int, name: str) -> str | None:
    """Why whole numbers, of which so many are different, only identify their rows."""
    present = values[~np.isnan(values)]
    count, first = len(present), present.min()
    whole = bool(np.all(present == np.floor(present)))
    if not whole or not _IDENTIFIER_VALUES < count == different:
        return None
    if count == len(values) and first in (0.0, 1.0) and present.max() - first == count - 1:
        return f"it identifies rows: it numbers them from {first:.0f}"
    if _NAMES_OF_IDENTIFIERS.search(name) is not None:
        return "it identifies rows: its name says so, and each has another whole number"
    return None


CODES = frozenset(
    {-1.0, -9.0, -100.0, -200.0, *map(parse_date, ("1899-12-30", "1899-12-31", "1900-01-01", "9999-12-31"))}
    | {sign * code for sign in (-1.0, 1.0) for code in (99.0, 888.0, 999.0, 9999.0, 99999.0, 999999.0)}
)
"""Numbers that people write for a missing value, and days (since 1970-01-01) that spreadsheets do."""
FEWEST, LEAST_SHARE = 3, 0.005
"""Least number of cells with a code, and their least share if the code is near the other numbers."""
FEWEST_OTHERS = 3
"""Least number of other values."""
LARGE = -99.0
SPIKE, LEAST_SHARE_OF_SPIKE = 5, 0.02
"""A code near the others is so many times as frequent as any of them, and has at least such a share of the cells."""


def suspected_code(numbers: Doubles) -> float | None:
    """Return the least or largest number if it is one of `CODES`, frequent, and far outside the others; else None.

    Far outside is: further from the next number than the others are apart. A code below 0 is far outside, too, if it is
    a standard deviation of the others away, and these are never negative or it is at most `LARGE`; or if the others are
    never negative, and it is by far the most frequent number.

    Args:
        numbers: ``[N]``, without NaN.
    """
    values, counts = np.unique(numbers, return_counts=True)
    if len(values) <= FEWEST_OTHERS:
        return None
    for place, others in ((0, values[1:]), (-1, values[:-1])):
        value, count = float(values[place]), int(counts[place])
        if value not in CODES or count < FEWEST:
            continue
        gap = float(np.abs(others - value).min())
        if gap >= np.ptp(others):
            return value
        if count < LEAST_SHARE * len(numbers) or value > 0.0 or (others.min() < 0.0 and value > LARGE):
            continue
        spike = count >= max(SPIKE * np.delete(counts, place).max(), LEAST_SHARE_OF_SPIKE * len(numbers))
        if gap >= np.std(numbers[numbers != value]) or (spike and others.min() >= 0.0):
            return value
    return None


MOST_FAR, TIMES_AS_FAR, FEWEST_NUMBERS = 3, 100.0, 20


def far_numbers(numbers: Doubles) -> Places:
    """Places of at most `MOST_FAR` numbers that lie `TIMES_AS_FAR` times as far from the median as all others do.

    Args:
        numbers: ``[N]``; NaN where one is missing.
    """
    present = np.flatnonzero(~np.isnan(numbers))
    if len(present) < FEWEST_NUMBERS:
        return present[:0]
    distances = np.abs(numbers[present] - np.median(numbers[present]))
    furthest = np.argsort(-distances, kind="stable")[: MOST_FAR + 1]
    far = distances[furthest]
    count = max((place for place in range(1, len(far)) if far[place - 1] >= TIMES_AS_FAR * far[place] > 0.0), default=0)
    return np.sort(present[furthest[:count]])
