"""The JSON bodies of MLflow's scoring protocol, which SageMaker's containers answer too.

Exactly one key has the rows: `dataframe_split` (`{"columns": […], "data": [[…]]}`), `dataframe_records` (a list of
objects), `instances` or `inputs` (records, a matrix, or columns). `params` has the options of `POST /predict`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import orjson
from pydantic import BaseModel, ConfigDict, Field

from murho.model.errors import Problem
from murho.service.errors import BadInputError
from murho.service.predict.answers import answer_columns, answer_facts
from murho.service.predict.codec import Asked
from murho.service.predict.json_requests import load_json
from murho.service.predict.options import check_options, predict_options
from murho.service.predict.problems import pointer, shorten
from murho.service.predict.rows import JSON_NAMES, Inputs, check_rows, parse_inputs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from murho.model.tables.schema import Schema
    from murho.service.predict.answers import Answered
    from murho.service.settings import Settings

__all__ = ["ScoringRequest", "ScoringResponse", "encode_predictions", "read_scoring"]

ROWS = ("dataframe_split", "dataframe_records", "instances", "inputs")
OTHER_KEYS = ("params",)
PIECE_ROWS = 256
"""Rows encoded at once: objects take far more memory than numbers, and the encoder holds the interpreter's lock."""


class ScoringRequest(BaseModel):
    """Rows under exactly one of four keys, and the options of `POST /predict`; for `/openapi.json`."""

    model_config = ConfigDict(extra="forbid")

    dataframe_split: dict[str, Any] | None = Field(None, description='{"columns": ["a"], "data": [[1]]}')
    dataframe_records: list[Any] | None = Field(None, description='[{"a": 1}]')
    instances: list[Any] | None = Field(None, description="Records, or a matrix.")
    inputs: Any = Field(None, description="Records, a matrix, or columns.")
    params: dict[str, Any] | None = None


class ScoringResponse(BaseModel):
    """One object a row, with the columns of `murho predict`, and what belongs to the whole answer."""

    predictions: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _Rows(Inputs):
    """The rows of a request.

    Attributes:
        move: From pointers as `parse_inputs` has them to pointers into the body.
    """

    move: Callable[[str], str]

    def pointer(self, row: int, feature: str) -> str:
        """Returns the pointer to a cell in the form of the request."""
        return self.move(Inputs.pointer(self, row, feature))


def read_scoring(body: bytes, schema: Schema, settings: Settings) -> Asked:
    """Returns the rows and the options of a request.

    Args:
        body: JSON in UTF-8, not compressed.
        schema: The features of the model.
        settings: The limits.

    Raises:
        BadInputError: A key, a row or an option is wrong; pointers are those of this body.
        TooLargeError: The request is above a limit.
    """
    document = load_json(body, settings.max_json_bytes, nan=True)
    unknown = [key for key in document if key not in (*ROWS, *OTHER_KEYS)]
    given = [key for key in ROWS if key in document]
    if unknown:
        message = f"There is no key {shorten(unknown[0])!r}; there are {', '.join((*ROWS, *OTHER_KEYS))}."
        raise BadInputError([Problem(pointer(unknown[0]), message)])
    if len(given) != 1:
        found = " and ".join(given) if given else "none of them"
        raise BadInputError([Problem("", f"Expected one of {', '.join(ROWS)}; the body has {found}.")])
    (key,) = given
    rows = document[key]
    params = document.get("params")
    if params is not None and not isinstance(params, dict):
        raise BadInputError([Problem("/params", f"Expected an object, not {JSON_NAMES.get(type(params), 'this')}.")])
    if params and "inputs" in params:
        raise BadInputError([Problem("/params/inputs", "The rows are beside params, not in them.")])
    try:
        request = check_options(params or {})
        options = predict_options(request, settings, schema.target)
    except BadInputError as error:
        raise _moved(error, lambda place: f"/params{place}") from None
    if key == "dataframe_split":
        rows, names = _split_columns(rows, settings.max_rows)
        positions = {pointer("inputs", name): index for index, name in enumerate(names)}
        move = partial(_place_in_split, positions=positions)
    else:
        move = partial(_place_in_rows, key=key)
    try:
        inputs = parse_inputs(rows, schema, settings.max_rows)
    except BadInputError as error:
        raise _moved(error, move) from None
    return Asked(_Rows(inputs.form, inputs.columns, inputs.count, inputs.names, move), options, request.timeout)


def encode_predictions(answered: Answered) -> Iterator[bytes]:
    """Yields the answer in pieces: `predictions` has one object a row, with the columns of `murho predict`."""
    columns = answer_columns(answered)
    names, count = list(columns), len(answered.prediction)
    before = b'{"predictions":['
    for start in range(0, count, PIECE_ROWS):
        cells = [values[start : start + PIECE_ROWS].tolist() for values in columns.values()]
        rows = [dict(zip(names, row, strict=True)) for row in zip(*cells, strict=True)]
        yield before + orjson.dumps(rows)[1:-1]  # NaN, which stands for a number that there isn't, becomes null
        before = b","
    yield b"]," + orjson.dumps(answer_facts(answered))[1:]


def _split_columns(split: object, max_rows: int) -> tuple[dict[str, list[Any]], list[str]]:
    """Returns the columns of a data frame in MLflow's split form, and their names in its order."""
    where = "dataframe_split"
    if not isinstance(split, dict):
        message = f'Expected an object such as {{"columns": […], "data": [[…]]}}, not {JSON_NAMES.get(type(split))}.'
        raise BadInputError([Problem(pointer(where), message)])
    unknown = [key for key in split if key not in ("columns", "data", "index")]
    if unknown:
        message = f"There is no key {shorten(unknown[0])!r}; there are columns, data and index."
        raise BadInputError([Problem(pointer(where, unknown[0]), message)])
    names, data = split.get("columns"), split.get("data")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        message = "Expected the names of the columns, a list of strings."
        raise BadInputError([Problem(pointer(where, "columns"), message)])
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name in seen:
            message = f"There is more than one column {shorten(name)!r}."
            raise BadInputError([Problem(pointer(where, "columns", index), message)])
        seen.add(name)
    if not isinstance(data, list) or not data:
        raise BadInputError([Problem(pointer(where, "data"), "Expected a list with at least one row.")])
    check_rows(len(data), max_rows)
    for index, row in enumerate(data):
        if not isinstance(row, list) or len(row) != len(names):
            found = f"a list of {len(row)}" if isinstance(row, list) else JSON_NAMES.get(type(row), "this")
            message = f"Expected a list of {len(names)} cells, one for each column, not {found}."
            raise BadInputError([Problem(pointer(where, "data", index), message)])
    flat = list(chain.from_iterable(data))
    return {name: flat[index :: len(names)] for index, name in enumerate(names)}, names


def _place_in_rows(place: str, key: str) -> str:
    """Returns the pointer to a cell below another key than `inputs`."""
    return place.replace("/inputs", f"/{key}", 1)


def _place_in_split(place: str, positions: dict[str, int]) -> str:
    """Returns the pointer to a cell of a split data frame, from one to a cell of columns.

    Args:
        place: The pointer to a column, or to a cell of one, as `parse_inputs` has it.
        positions: The pointer to each column, and its position in the data frame.
    """
    column, _, row = place.rpartition("/")
    if place in positions:
        return pointer("dataframe_split", "columns", positions[place])
    if column in positions:
        return pointer("dataframe_split", "data", int(row), positions[column])
    return pointer("dataframe_split", "columns")  # a feature that has no column


def _moved(error: BadInputError, move: Callable[[str], str]) -> BadInputError:
    """Returns the error with pointers into this body."""
    problems = (Problem(move(item.pointer), item.message) for item in error.problems)
    return BadInputError(problems, error.total, more=error.more)
