"""The rows of a request as JSON: records, a matrix or columns are decoded to canonical columns; and their problems.

It is strict: a number is a JSON number. The types of a whole column are checked at once, so that a good column needs no
Python code per cell. Every error names its cell by a JSON pointer in the form of the request: `/inputs/3/Horsepower`
for records, `/inputs/3/2` for a matrix, `/inputs/Horsepower/3` for columns.

A request can be wrong in a million places; listing them all would cost more than its answer. So problems are collected,
put in the order of the request, and cut to a readable number.
"""

from __future__ import annotations

import difflib
import math
import time
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache, partial
from itertools import islice
from operator import itemgetter
from types import NoneType
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from murho.model.errors import Problem
from murho.model.tables.cells import LONGEST_TEXT, explain_long_text, format_date, parse_date
from murho.model.tables.overrides import composed
from murho.model.tables.schema import Columns, Feature, FeatureKind, Schema, json_cells
from murho.service.errors import BadInputError, TooLargeError, wrong

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from murho.service.engine.jobs import ModelLike

MOST_GUESSES = 10
"""Unknown names for which the closest feature is looked for."""
FORMS = "a list of objects (records), a list of lists (a matrix) or an object of lists (columns)"
PIECE_CELLS = 2**14
"""Decoded at once."""
MAX_DATE_LENGTH = 64
"""The longest ISO 8601 date-time with a fraction and an offset is far shorter."""
MAX_LISTED = 50
MAX_NAME = 100

JSON_NAMES: dict[type, str] = {
    NoneType: "null",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "an object",
}


ABSENT = object()
"""Marks a feature for which a row has no cell."""
TYPES: dict[FeatureKind, frozenset[type]] = {
    FeatureKind.NUMERIC: frozenset({int, float}),
    FeatureKind.BOOLEAN: frozenset({bool}),
    FeatureKind.DATE: frozenset({str}),
    FeatureKind.CATEGORICAL: frozenset({str, int, float}),
}
EXPECTED = {
    FeatureKind.NUMERIC: "a number",
    FeatureKind.BOOLEAN: "true or false",
    FeatureKind.DATE: 'an ISO 8601 date in a string, such as "2024-05-31"',
    FeatureKind.CATEGORICAL: "a category in a string",
}


def shorten(text: str, limit: int = MAX_NAME) -> str:
    """Return the text, cut to `limit` characters; a request can hold names of any length."""
    return text if len(text) <= limit else f"{text[:limit]}…"


def pointer(*parts: str | int) -> str:
    """Return the RFC 6901 JSON pointer to a place; very long names are cut.

    Example:
        >>> pointer("inputs", 3, "km/h")
        '/inputs/3/km~1h'
    """
    place = ""
    for part in parts:
        place += f"/{part}" if isinstance(part, int) else "/" + shorten(part).replace("~", "~0").replace("/", "~1")
    return place


def refuse_unknown(unknown: Sequence[str], message: str) -> None:
    """Check that there are no unknown names; `message` tells what to do about them.

    Raises:
        BadInputError: There are.
    """
    if unknown:
        listed = (Problem(pointer(name), f"{shorten(name)!r}: {message}") for name in unknown[:MAX_LISTED])
        raise BadInputError(listed, len(unknown))


class Problems:
    """Collects the problems in the rows of one request.

    Problems are listed by row, and those of a row in the order in which they are added.

    Args:
        move: From a pointer, as it is added, to that in the body of the request.
    """

    def __init__(self, move: Callable[[str], str] = str) -> None:
        self._move = move
        self._entries: list[tuple[int, Problem]] = []
        self.total = 0

    @property
    def listed(self) -> int:
        """Number of problems with a message so far."""
        return len(self._entries)

    def add(self, row: int, where: str, message: str) -> None:
        """Add one problem."""
        self.add_rows([row], lambda _: where, lambda _: message)

    def add_rows(self, rows: Sequence[int], where: Callable[[int], str], explain: Callable[[int], str]) -> None:
        """Add a problem for each of the ascending rows, with a message only for those that can be listed."""
        for row in islice(rows, MAX_LISTED):
            self._entries.append((row, Problem(self._move(where(row)), explain(row))))
        self.total += len(rows)

    def raise_any(self) -> None:
        """Raise the collected problems, if there are any.

        Raises:
            BadInputError: There is at least one problem.
        """
        if self._entries:
            self._entries.sort(key=itemgetter(0))
            raise BadInputError((problem for _, problem in self._entries[:MAX_LISTED]), self.total)


def wrong_at(place: tuple[str | int, ...], message: str) -> BadInputError:
    """Return the error of one thing at one place of a document."""
    return wrong(pointer(*place), message)


class Form(StrEnum):
    """The form of the rows in a request."""

    RECORDS = "records"
    MATRIX = "matrix"
    COLUMNS = "columns"


@dataclass(frozen=True, slots=True)
class Inputs:
    """The rows of one request.

    Attributes:
        form: The form of the rows in the request.
        columns: Canonical columns `[B]` by feature, all the schema's features in its order.
        count: The number of rows, B.
        move: From a pointer below `/inputs` to that in the body of the request.
    """

    form: Form
    columns: Mapping[str, NDArray[Any]]
    count: int
    move: Callable[[str], str] = str

    def pointer(self, row: int, feature: str) -> str:
        """Return the JSON pointer to a cell in the body of the request."""
        return self.move(_cell_pointer(self.form, row, feature, list(self.columns).index(feature)))


def parse_inputs(inputs: object, schema: Schema, max_rows: int, move: Callable[[str], str] = str) -> Inputs:
    """Return the rows of a request as canonical columns.

    Args:
        inputs: The parsed JSON value of `inputs`.
        schema: The features of the model.
        max_rows: The most rows of one request.
        move: See `Inputs`.

    Raises:
        BadInputError: The form or a cell is wrong; every problem has its pointer.
        TooLargeError: There are more than `max_rows` rows.
    """
    problems = Problems(move)
    cells: Mapping[str, Sequence[Any]] = {}
    form = Form.COLUMNS
    if isinstance(inputs, dict):
        cells = _from_columns(inputs, schema, max_rows, problems)
    elif isinstance(inputs, list) and inputs:
        check_rows(len(inputs), max_rows)
        form = Form.MATRIX if isinstance(inputs[0], list) else Form.RECORDS
        read = _from_matrix if form is Form.MATRIX else _from_records
        cells = read(inputs, schema, problems)
    else:
        found = "an empty list" if isinstance(inputs, list) else JSON_NAMES.get(type(inputs), "this")
        problems.add(0, "/inputs", f"Expected {FORMS} with at least one row, not {found}.")
    columns: dict[str, NDArray[Any]] = {}
    for position, feature in enumerate(schema.features):
        if (column := cells.get(feature.name)) is not None:
            where = partial(_cell_pointer, form, name=feature.name, position=position)
            columns[feature.name] = read_column(feature, column, where, problems)
    problems.raise_any()
    return Inputs(form, columns, len(inputs) if isinstance(inputs, list) else len(next(iter(columns.values()))), move)


def _from_records(rows: list[Any], schema: Schema, problems: Problems) -> dict[str, list[Any]]:
    """Return the cells of a list of objects by feature."""
    _refuse_other_forms(rows, dict, "an object, as a list of records has", problems)
    names = dict.fromkeys(feature.name for feature in schema.features)
    for row, record in enumerate(rows):
        if not record.keys() <= names.keys():
            rows[row] = record = with_composed_names(record)
            _refuse_unknown(row, [name for name in record if name not in names], ("inputs", row), schema, problems)
    return {name: [record.get(name, ABSENT) for record in rows] for name in names}


def with_composed_names(cells: dict[str, Any]) -> dict[str, Any]:
    """Return cells by names in Unicode's form NFC, as features have them, unless two would get the same name."""
    named = {composed(name): cell for name, cell in cells.items()}
    return named if len(named) == len(cells) else cells


def _from_matrix(rows: list[Any], schema: Schema, problems: Problems) -> dict[str, tuple[Any, ...]]:
    """Return the cells of a list of lists by feature."""
    _refuse_other_forms(rows, list, "a list, as the first row is", problems)
    names = [feature.name for feature in schema.features]
    listed = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
    problems.add_rows(
        [row for row, cells in enumerate(rows) if len(cells) != len(names)],
        partial(pointer, "inputs"),
        lambda row: f"The row has {len(rows[row])} values; this model takes {len(names)} in this order: {listed}.",
    )
    problems.raise_any()
    return dict(zip(names, zip(*rows, strict=True), strict=True))


def _from_columns(inputs: dict[str, Any], schema: Schema, max_rows: int, problems: Problems) -> dict[str, list[Any]]:
    """Return the cells of an object of lists by feature, without the features that can't be read."""
    known = {feature.name for feature in schema.features}
    inputs = with_composed_names(inputs)
    _refuse_unknown(0, [name for name in inputs if name not in known], ("inputs",), schema, problems)
    if inputs.keys() & known and not any(isinstance(column, list | dict) for column in inputs.values()):
        problems.add(0, "/inputs", "Expected a list of rows, not one row: put the object in a list, [{…}].")
        problems.raise_any()
    cells: dict[str, list[Any]] = {}
    for feature in schema.features:
        where = pointer("inputs", feature.name)
        column = inputs.get(feature.name, ABSENT)
        if column is ABSENT:
            problems.add(0, where, explain_cell(feature, ABSENT))
        elif not isinstance(column, list):
            found = JSON_NAMES.get(type(column), "this")
            advice = "in an object of columns every feature has a list with one value a row"
            problems.add(0, where, f"Expected a list, not {found}: {advice}.")
        else:
            cells[feature.name] = column
    counts = {name: len(column) for name, column in cells.items()}
    most = max(counts.values(), default=0)
    check_rows(most, max_rows)
    if not most and (counts or not known):
        problems.add(0, "/inputs", "The columns are empty; at least one row is needed.")
    elif len(set(counts.values())) > 1:
        first = next(iter(counts))
        for name, count in counts.items():
            if count != counts[first]:
                message = f"The column has {count} values, but {first!r} has {counts[first]}."
                problems.add(0, pointer("inputs", name), message)
        problems.raise_any()
    return cells


def check_rows(count: int, max_rows: int) -> None:
    """Check the number of rows.

    Raises:
        TooLargeError: There are more than `max_rows`.
    """
    if count > max_rows:
        raise TooLargeError(f"The request has {count} rows; this service takes at most {max_rows} at once. Send parts.")


def _refuse_other_forms(rows: list[Any], expected: type, words: str, problems: Problems) -> None:
    """Raise if a row has another form than the first."""
    problems.add_rows(
        [row for row, cells in enumerate(rows) if type(cells) is not expected],
        partial(pointer, "inputs"),
        lambda row: f"Expected {words}, not {JSON_NAMES.get(type(rows[row]), 'this')}.",
    )
    problems.raise_any()


def _refuse_unknown(
    row: int, unknown: list[str], base: tuple[str | int, ...], schema: Schema, problems: Problems
) -> None:
    """Add a problem for each unknown name, with a message only for those that can be listed."""
    room = max(0, MAX_LISTED - problems.listed)
    for name in islice(unknown, room):
        problems.add(row, pointer(*base, name), explain_unknown(name, schema, problems))
    problems.total += max(0, len(unknown) - room)


def explain_unknown(name: str, schema: Schema, problems: Problems) -> str:
    """Return why a name is no feature, and for the first problems the feature that is probably meant.

    Beyond what is listed there is no message, as it takes some time to find.
    """
    if problems.listed >= MAX_LISTED:
        return ""
    shown = shorten(name)
    if name == schema.target.name:
        return f"{shown!r} is the target, which the model predicts; leave it out."
    if name in schema.left_out:
        return f"{shown!r} was left out in training ({schema.left_out[name]}); leave it out."
    names = [feature.name for feature in schema.features]
    # difflib takes quadratic time in the length of a name.
    close = difflib.get_close_matches(name, names, n=1) if shown == name and problems.listed < MOST_GUESSES else []
    return f"{shown!r} is not a feature of this model" + (
        f". Did you mean {close[0]!r}?" if close else "; leave it out."
    )


def _cell_pointer(form: Form, row: int, name: str, position: int) -> str:
    if form is Form.COLUMNS:
        return pointer("inputs", name, row)
    return pointer("inputs", row, position if form is Form.MATRIX else name)


def read_column(
    feature: Feature, cells: Sequence[Any], where: Callable[[int], str], problems: Problems
) -> NDArray[Any]:
    """Return the canonical column of one feature; see `decode_cells`.

    Args:
        feature: The feature.
        cells: One parsed JSON value a row `[B]`, or ABSENT.
        where: The pointer to the cell of a row.
        problems: Gets the rows whose cell can't be used.
    """
    column, refused = decode_cells(feature, cells)
    problems.add_rows(refused, where, lambda row: explain_cell(feature, cells[row]))
    return column


def decode_cells(feature: Feature, cells: Sequence[Any]) -> tuple[NDArray[Any], Sequence[int]]:
    """Return the canonical column of one feature and the rows whose cell can't be used.

    Args:
        feature: The feature, which gives the expected type.
        cells: One parsed JSON value a row `[B]`, or ABSENT.

    Returns:
        The column `[B]`, float64 with NaN for missing or object with None for missing; and the refused rows, in
        ascending order. The column has no meaning in refused rows.
    """
    if len(cells) > PIECE_CELLS:
        columns, refused = [], []
        for start in range(0, len(cells), PIECE_CELLS):
            column, rows = decode_cells(feature, cells[start : start + PIECE_CELLS])
            columns.append(column)
            refused += [start + row for row in rows]
            time.sleep(0)  # whoever waits for the interpreter's lock gets it now
        return np.concatenate(columns), refused
    allowed = TYPES[feature.kind]
    if feature.reading is not None:  # training has read texts as numbers, or such as 12312020 as dates
        allowed |= {str} if feature.kind is FeatureKind.NUMERIC else {int}
    if feature.accepts_missing:
        allowed |= {NoneType}
    if set(map(type, cells)) <= allowed:
        return column_of(feature, cells)
    wrong = {row for row, cell in enumerate(cells) if type(cell) not in allowed}
    column, unreadable = column_of(feature, [None if row in wrong else cell for row, cell in enumerate(cells)])
    return column, sorted(wrong.union(unreadable))


def column_of(feature: Feature, cells: Sequence[Any]) -> tuple[NDArray[Any], Sequence[int]]:
    """Return the canonical column `[B]` of cells whose types are right, and the rows whose content is wrong."""
    broken: set[Any] = set()
    if feature.kind is FeatureKind.CATEGORICAL:
        names: dict[Any, str | None] = {None: None}
        for cell in set(cells) - {None}:
            name = names[cell] = feature.category(cell)
            # Too long, or a word for a missing cell, such as "NA".
            long = isinstance(cell, str) and 4 * len(cell) > LONGEST_TEXT < len(cell.encode())
            if long or (name is None and not feature.accepts_missing):
                broken.add(cell)
        column = np.empty(len(cells), dtype=object)
        column[:] = list(map(names.get, cells))
    elif feature.kind is FeatureKind.DATE or (feature.reading is not None and str in set(map(type, cells))):
        parse = parse_date if feature.reading is None else feature.reading.parse
        values: dict[Any, float | None] = {None: None}
        for cell in set(cells) - {None}:
            text = str(cell) if feature.kind is FeatureKind.DATE else cell
            missing = isinstance(text, str) and feature.means_missing(text.strip())
            # Further words, such as "unknown", are NaN too.
            value = values[cell] = math.nan if missing else _read(parse, text)
            if value is None or (math.isnan(value) and isinstance(cell, str) and not feature.accepts_missing):
                broken.add(cell)
        column = np.array(list(map(values.get, cells)), dtype=np.float64)  # None becomes NaN
    else:
        # NumPy reads None as NaN. The JSON parser has refused NaN, Infinity and numbers that float64 can't hold.
        return feature.without_codes(np.array(cells, dtype=np.float64)), ()
    return column, [row for row, cell in enumerate(cells) if cell in broken] if broken else ()


def _read(parse: Callable[[str], float], cell: Any) -> float | None:
    """Return the value of a cell; NaN for a word for a missing one, None for one that can't be read."""
    if isinstance(cell, str):
        return _parse_cell(parse, cell) if len(cell) <= MAX_DATE_LENGTH else None
    return float(cell)


@lru_cache(4096)  # the same dates come again and again
def _parse_cell(parse: Callable[[str], float], text: str) -> float | None:
    try:
        value = parse(text)
    except ValueError:
        return None
    return None if math.isinf(value) else value


def explain_cell(feature: Feature, cell: object) -> str:
    """Return what is wrong with a refused cell and what is expected in its place."""
    if cell is ABSENT:
        advice = "send null if the value is unknown" if feature.accepts_missing else "it has to have a value"
        return f"The feature {feature.name!r} is absent; {advice}."
    expected = EXPECTED[feature.kind]
    if cell is None or (isinstance(cell, str) and feature.means_missing(cell.strip())):
        shown = "null" if cell is None else f"The string {shorten(cell)!r} means a missing cell, which"
        return f"{shown} isn't accepted: {feature.name!r} had no missing cells in training. Expected {expected}."
    if feature.accepts_missing:
        expected += ", or null if the value is unknown"
    if not isinstance(cell, str):
        return f"Expected {expected}, not {JSON_NAMES.get(type(cell), 'this')}."
    if feature.reading is not None:
        try:
            feature.reading.parse(cell[:MAX_DATE_LENGTH])
        except ValueError as error:
            return f"Expected {expected}, or a string as in training: {shorten(str(error))}."
    if len(cell) > LONGEST_TEXT or len(cell.encode()) > LONGEST_TEXT:
        return f"Expected {expected}: {explain_long_text(len(cell.encode()))}."
    return f"Expected {expected}, not the string {shorten(cell)!r}."


def cells_of(schema: Schema, columns: Columns) -> list[str]:
    """Return the cells of each row of canonical columns as JSON, as a request may have them."""
    written = [json_cells(feature, columns[feature.name]) for feature in schema.features]
    names = [feature.name for feature in schema.features]
    return [orjson.dumps(dict(zip(names, row, strict=True))).decode() for row in zip(*written, strict=True)]


def example_row(model: ModelLike) -> dict[str, Any]:
    """Return one row that the model accepts: the checkpoint's made-up example, else the middle of each range."""
    stored = model.spec.training.get("example")
    if isinstance(stored, dict) and list(stored) == [feature.name for feature in model.schema.features]:
        return stored
    return {feature.name: _middle(feature) for feature in model.schema.features}


def _middle(feature: Feature) -> Any:
    if feature.kind is FeatureKind.CATEGORICAL:
        return feature.categories[0] if feature.categories else None
    if feature.minimum is None or feature.maximum is None:
        return None
    if feature.kind is FeatureKind.BOOLEAN:
        return bool(feature.maximum)
    middle = (feature.minimum + feature.maximum) / 2
    return format_date(float(round(middle))) if feature.kind is FeatureKind.DATE else float(f"{middle:.3g}")
