"""Decoding of the three JSON forms of `inputs`, records, a matrix or columns, to canonical columns.

Every error names its cell by a JSON pointer in the form of the request: `/inputs/3/Horsepower` for records,
`/inputs/3/2` for a matrix, `/inputs/Horsepower/3` for columns.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from murho.service.errors import TooLargeError
from murho.service.predict.cells import ABSENT, JSON_NAMES, decode_cells, explain_cell
from murho.service.predict.problems import MAX_LISTED, Problems, pointer, shorten

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from murho.model.tables.schema import Feature, Schema

__all__ = ["FORMS", "Form", "Inputs", "check_columns", "check_rows", "explain_unknown", "parse_inputs"]

MOST_GUESSES = 10
"""Unknown names for which the closest feature is looked for."""
FORMS = "a list of objects (records), a list of lists (a matrix) or an object of lists (columns)"


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
        names: The features' names in schema order.
    """

    form: Form
    columns: Mapping[str, NDArray[Any]]
    count: int
    names: tuple[str, ...]

    def pointer(self, row: int, feature: str) -> str:
        """Returns the JSON pointer to a cell in the form of the request."""
        return _cell_pointer(self.form, row, feature, self.names.index(feature))


def parse_inputs(inputs: object, schema: Schema, max_rows: int) -> Inputs:
    """Returns the rows of a request as canonical columns.

    Args:
        inputs: The parsed JSON value of `inputs`.
        schema: The features of the model.
        max_rows: The most rows of one request.

    Raises:
        BadInputError: The form or a cell is wrong; every problem has its pointer.
        TooLargeError: There are more than `max_rows` rows.
    """
    problems = Problems()
    names = tuple(feature.name for feature in schema.features)
    if isinstance(inputs, dict):
        form, cells = Form.COLUMNS, check_columns(inputs, schema, max_rows, problems)
    elif isinstance(inputs, list) and inputs:
        check_rows(len(inputs), max_rows)
        form = Form.MATRIX if isinstance(inputs[0], list) else Form.RECORDS
        read = _from_matrix if form is Form.MATRIX else _from_records
        cells = read(inputs, schema, problems)
    else:
        found = "an empty list" if isinstance(inputs, list) else JSON_NAMES.get(type(inputs), "this")
        problems.add(0, 0, "/inputs", f"Expected {FORMS} with at least one row, not {found}.")
        cells = {}
    columns = {}
    for position, feature in enumerate(schema.features):
        if feature.name not in cells:
            continue
        column = cells[feature.name]
        columns[feature.name], refused = decode_cells(feature, column)
        if refused:
            problems.add_rows(
                refused,
                position,
                partial(_cell_pointer, form, name=feature.name, position=position),
                partial(_explain_row, feature, column),
            )
    problems.raise_any()
    return Inputs(form, columns, len(columns[names[0]]), names)


def _from_records(rows: list[Any], schema: Schema, problems: Problems) -> Mapping[str, Sequence[Any]]:
    """Returns the cells of a list of objects by feature."""
    names = [feature.name for feature in schema.features]
    if set(map(type, rows)) == {dict} and set(map(len, rows)) == {len(names)}:
        try:
            if len(rows) == 1:  # most requests
                return {name: [rows[0][name]] for name in names}
            return {name: list(map(itemgetter(name), rows)) for name in names}
        except KeyError:
            pass  # a row has another name in the place of a feature; reported below, with its pointer
    _refuse_other_forms(rows, dict, "an object, as a list of records has", problems)
    known = frozenset(names)
    for row, record in enumerate(rows):
        if not record.keys() <= known:
            _refuse_unknown(row, [name for name in record if name not in known], ("inputs", row), schema, problems)
    return {name: [record.get(name, ABSENT) for record in rows] for name in names}


def _from_matrix(rows: list[Any], schema: Schema, problems: Problems) -> Mapping[str, Sequence[Any]]:
    """Returns the cells of a list of lists by feature."""
    names = [feature.name for feature in schema.features]
    _refuse_other_forms(rows, list, "a list, as the first row is", problems)
    if set(map(len, rows)) != {len(names)}:
        listed = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
        expected = f"this model takes {len(names)} in this order: {listed}"
        problems.add_rows(
            [row for row, cells in enumerate(rows) if len(cells) != len(names)],
            0,
            lambda row: pointer("inputs", row),
            lambda row: f"The row has {len(rows[row])} values; {expected}.",
        )
        problems.raise_any()
    return dict(zip(names, zip(*rows, strict=True), strict=True))


def check_columns(
    inputs: dict[str, Any], schema: Schema, max_rows: int, problems: Problems
) -> Mapping[str, Sequence[Any]]:
    """Returns the cells of an object of lists by feature, without the features that can't be read.

    Of each list only the length is asked for.

    Raises:
        BadInputError: The lists differ in length.
        TooLargeError: There are more than `max_rows` rows.
    """
    names = [feature.name for feature in schema.features]
    known = frozenset(names)
    if not inputs.keys() <= known:
        unknown = [name for name in inputs if name not in known]
        _refuse_unknown(0, unknown, ("inputs",), schema, problems)
    cells: dict[str, Sequence[Any]] = {}
    for position, feature in enumerate(schema.features):
        where = pointer("inputs", feature.name)
        column = inputs.get(feature.name, ABSENT)
        if column is ABSENT:
            problems.add(0, position, where, explain_cell(feature, ABSENT))
        elif not isinstance(column, list):
            found = JSON_NAMES.get(type(column), "this")
            advice = "in an object of columns every feature has a list with one value a row"
            problems.add(0, position, where, f"Expected a list, not {found}: {advice}.")
        else:
            cells[feature.name] = column
    counts = {name: len(column) for name, column in cells.items()}
    check_rows(max(counts.values(), default=0), max_rows)
    if counts and max(counts.values()) == 0:
        problems.add(0, 0, "/inputs", "The columns are empty; at least one row is needed.")
    elif len(set(counts.values())) > 1:
        first = next(iter(counts))
        for position, (name, count) in enumerate(counts.items()):
            if count != counts[first]:
                message = f"The column has {count} values, but {first!r} has {counts[first]}."
                problems.add(0, position, pointer("inputs", name), message)
        problems.raise_any()
    return cells


def check_rows(count: int, max_rows: int) -> None:
    """Checks the number of rows.

    Raises:
        TooLargeError: There are more than `max_rows`.
    """
    if count > max_rows:
        raise TooLargeError(f"The request has {count} rows; this service takes at most {max_rows} at once. Send parts.")


def _refuse_other_forms(rows: list[Any], expected: type, words: str, problems: Problems) -> None:
    """Raises if a row has another form than the first."""
    if set(map(type, rows)) != {expected}:
        problems.add_rows(
            [row for row, cells in enumerate(rows) if type(cells) is not expected],
            0,
            lambda row: pointer("inputs", row),
            lambda row: f"Expected {words}, not {JSON_NAMES.get(type(rows[row]), 'this')}.",
        )
        problems.raise_any()


def _refuse_unknown(
    row: int, unknown: list[str], base: tuple[str | int, ...], schema: Schema, problems: Problems
) -> None:
    """Adds a problem for each unknown name, with a message only for those that can be listed."""
    room = max(0, MAX_LISTED - problems.listed)
    for position, name in enumerate(islice(unknown, room), start=len(schema.features)):
        problems.add(row, position, pointer(*base, name), explain_unknown(name, schema, problems))
    problems.total += max(0, len(unknown) - room)


def explain_unknown(name: str, schema: Schema, problems: Problems) -> str:
    """Returns why a name is no feature, and for the first problems the feature that is probably meant.

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
    if close:
        return f"{shown!r} is no feature of this model. Did you mean {close[0]!r}?"
    return f"{shown!r} is no feature of this model."


def _explain_row(feature: Feature, column: Sequence[Any], row: int) -> str:
    return explain_cell(feature, column[row])


def _cell_pointer(form: Form, row: int, name: str, position: int) -> str:
    if form is Form.COLUMNS:
        return pointer("inputs", name, row)
    return pointer("inputs", row, position if form is Form.MATRIX else name)
