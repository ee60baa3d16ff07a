"""`POST /invocations`: what MLflow's clients and SageMaker ask a scoring server.

The default model answers. Exactly one key of a JSON body has the rows: `dataframe_split`
(`{"columns": […], "data": [[…]]}`), `dataframe_records` (a list of objects), `instances` (records or a matrix) or
`inputs` (records, a matrix, or columns). `params` has the options of `POST /predict`. CSV, Arrow, Parquet and npy are
as there.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

import orjson
from pydantic import Field

from murho.service.errors import wrong
from murho.service.predict.answers import Codec, Encoded, ParsedRequest, Result, Terms, answer_columns, answer_facts
from murho.service.predict.json_bodies import document_of
from murho.service.predict.json_rows import parse_inputs, pointer, wrong_at
from murho.service.predict.options import Many, RequestModel, ResponseModel, options_of, validate_document
from murho.service.predict.routes import CODECS, Endpoint, answer, reader_of, writer_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

ROWS = ("dataframe_split", "dataframe_records", "instances", "inputs")
PIECE_ROWS = 256
"""Rows encoded at once: objects take far more memory than numbers, and the encoder holds the interpreter's lock."""


class DataframeSplit(RequestModel):
    """A data frame in pandas' split form."""

    columns: Many[str]
    data: Many[list[Any]] = Field(min_length=1)
    index: Any = None


class ScoringRequest(RequestModel):
    """Rows under exactly one of four keys, and the options of `POST /predict`."""

    dataframe_split: DataframeSplit | None = None
    """{"columns": ["a"], "data": [[1]]}"""
    dataframe_records: list[Any] | None = None
    """[{"a": 1}]"""
    instances: list[Any] | None = None
    """Records, or a matrix."""
    inputs: Any = None
    """Records, a matrix, or columns."""
    params: dict[str, Any] | None = None


class ScoringResponse(ResponseModel):
    """One object a row, with the columns of `murho predict`, and what belongs to the whole answer."""

    predictions: list[dict[str, Any]]


class ScoringCodec(Codec):
    """The codec of JSON as MLflow has it; see `Codec`."""

    media_type = "application/json"

    def decode(self, body: bytes, terms: "Terms") -> ParsedRequest:
        """Return the rows and the options of a request; pointers are those of this body. See `Codec.decode`."""
        schema, settings = terms.schema, terms.settings
        request = validate_document(ScoringRequest, document_of(body, terms, "in its params", nan=True))
        given = [key for key in ROWS if key in request.model_fields_set]
        if len(given) != 1:
            found = " and ".join(given) if given else "none of them"
            raise wrong("", f"Expected one of {', '.join(ROWS)}; the body has {found}.")
        rows: Any = getattr(request, given[0])
        options, said = options_of(request.params or {}, settings, schema.target, terms.kind, "/params{}".format)
        if request.dataframe_split is not None:
            rows, move = _split(request.dataframe_split)
        else:
            move = partial(_below, given[0])
        return ParsedRequest(parse_inputs(rows, schema, settings.max_rows, move), options, said)

    def encode(self, result: "Result") -> Encoded:
        """Return the answer: `predictions` has one object a row, with the columns of `murho predict`."""
        return Encoded(_pieces(result), self.media_type)


def _pieces(result: "Result") -> "Iterator[bytes]":
    columns = answer_columns(result)
    names, count = list(columns), len(result.prediction)
    before = b'{"predictions":['
    for start in range(0, count, PIECE_ROWS):
        cells = [values[start : start + PIECE_ROWS].tolist() for values in columns.values()]
        rows = [dict(zip(names, row, strict=True)) for row in zip(*cells, strict=True)]
        yield before + orjson.dumps(rows)[1:-1]  # NaN, which stands for a number that there isn't, becomes null
        before = b","
    rest = {"extrapolation": result.prediction.extrapolation, **answer_facts(result)}
    yield b"]," + orjson.dumps(rest, option=orjson.OPT_SERIALIZE_NUMPY)[1:]


SCORING = ScoringCodec()


def _below(key: str, place: str) -> str:
    """Return the pointer to a cell below another key than `inputs`."""
    return place.replace("/inputs", f"/{key}", 1)


def _split(split: DataframeSplit) -> "tuple[dict[str, list[Any]], Callable[[str], str]]":
    """Return the columns of a data frame, and from pointers to their cells those into the frame."""
    names, width = split.columns, len(split.columns)
    if len(set(names)) < width:
        raise wrong_at(("dataframe_split", "columns"), "There is more than one column of a name.")
    for index, row in enumerate(split.data):
        if len(row) != width:
            message = f"Expected a list of {width} cells, one for each column, not a list of {len(row)}."
            raise wrong_at(("dataframe_split", "data", index), message)
    positions = {pointer("inputs", name): index for index, name in enumerate(names)}

    def move(place: str) -> str:
        column, _, row = place.rpartition("/")
        if column in positions:
            return pointer("dataframe_split", "data", int(row), positions[column])
        # A feature may have no column.
        return pointer("dataframe_split", "columns", *([positions[place]] if place in positions else []))

    return {name: list(cells) for name, cells in zip(names, zip(*split.data, strict=True), strict=True)}, move


def _codecs(headers: "Mapping[str, str]") -> "tuple[Codec, Codec]":
    """Return the codecs of a request and its answer, which is JSON unless another format is asked for."""
    reader, writer = reader_of(headers.get("content-type", "")), writer_of(headers.get("accept", ""), CODECS[0])
    return (SCORING if reader is CODECS[0] else reader), (SCORING if writer is CODECS[0] else writer)


INVOCATIONS = Endpoint(
    "invocations",
    ("/invocations",),
    "Predict in the forms of MLflow and SageMaker with",
    'Answers `{"predictions": [{"mean": …, "std": …, …}]}`, one object a row.',
    partial(answer, codecs=_codecs),
    ScoringRequest,
    (ScoringResponse,),
    tag="scoring",
)
