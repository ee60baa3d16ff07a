"""Arrow tables as the rows of a request, whatever format brought them.

Pointers to cells are those of an object of columns in JSON: `/inputs/Horsepower/3`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from murho.model.errors import TableError
from murho.model.tables.columns import canonical_column, is_missing
from murho.service.predict.cells import ABSENT, explain_cell
from murho.service.predict.inputs import Form, Inputs, check_rows, explain_unknown
from murho.service.predict.problems import Problems, pointer, shorten

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from murho.model.tables.schema import Feature, Schema

__all__ = ["check_names", "inputs_of_table", "sentence"]


def check_names(names: Sequence[str], schema: Schema) -> None:
    """Checks the columns of a table before their cells are read.

    The target and columns that training left out may be there; they are not read.

    Raises:
        BadInputError: A feature has no column, or a column is unknown or there twice.
    """
    problems = Problems()
    features = {feature.name: feature for feature in schema.features}
    ignored = {schema.target.name, *schema.left_out}
    seen: set[str] = set()
    for position, name in enumerate(names):
        where = pointer("inputs", name)
        if name in seen:
            problems.add(0, position, where, "There is more than one column of this name. Names must differ.")
        elif name not in features and name not in ignored:
            problems.add(0, position, where, explain_unknown(name, schema, problems))
        seen.add(name)
    for position, (name, feature) in enumerate(features.items(), start=len(names)):
        if name not in seen:
            problems.add(0, position, pointer("inputs", name), explain_cell(feature, ABSENT))
    problems.raise_any()


def inputs_of_table(table: pa.Table, schema: Schema, max_rows: int, first: int = 0) -> Inputs:
    """Returns the rows of a table whose names `check_names` has accepted.

    Args:
        table: The rows.
        schema: The features.
        max_rows: The most rows.
        first: Rows of the request that come before these, for pointers and messages.

    Raises:
        BadInputError: There are no rows, or a cell can't be used: the first of each column is named.
        TooLargeError: There are more than `max_rows` rows.
    """
    check_rows(table.num_rows, max_rows)
    problems = Problems()
    if table.num_rows == 0:
        problems.add(0, 0, "/inputs", "The table has no rows; at least one row is needed.")
        problems.raise_any()
    columns: dict[str, NDArray[Any]] = {}
    for position, feature in enumerate(schema.features):
        try:
            column = canonical_column(table.column(feature.name), feature.kind, feature.name, feature.reading)
        except TableError as error:
            row = (error.row or 1) - 1 + first
            where = pointer("inputs", feature.name) if error.row is None else pointer("inputs", feature.name, row)
            problems.add(row, position, where, sentence(error.moved(first)))
            continue
        columns[feature.name] = column
        if not feature.accepts_missing:
            absent = is_missing(column).nonzero()[0]
            problems.add_rows(
                (absent + first).tolist(),
                position,
                partial(pointer, "inputs", feature.name),
                partial(_explain_missing, feature),
            )
    problems.raise_any()
    names = tuple(feature.name for feature in schema.features)
    return Inputs(Form.COLUMNS, columns, table.num_rows, names)


def sentence(error: TableError) -> str:
    """Returns the message of an error of a table as a sentence of its own; a cell in it can be long."""
    return f"{str(error)[:1].upper()}{shorten(str(error)[1:], 1000)}."


def _explain_missing(feature: Feature, row: int) -> str:  # noqa: ARG001 - the same in every row
    return explain_cell(feature, None)
