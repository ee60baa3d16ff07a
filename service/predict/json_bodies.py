"""JSON bodies: of a request, options and rows in one document; of an answer.

A good document is decoded by types that are made from the schema of the model, so that its rows become columns without
a look at their cells. Any other is parsed as plain JSON, and then every value in it is asked: that finds what is wrong,
and reads what has more than one type, such as a category that is a number.
"""

from __future__ import annotations

import re
import time
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import orjson

from murho.model.predictive.answer_columns import names_of_classes
from murho.model.tables.schema import FeatureKind, Schema
from murho.service.errors import BadInputError, TooLargeError, wrong
from murho.service.predict.answers import Codec, Encoded, ParsedRequest, Result, Terms, calibration_of, head_of
from murho.service.predict.budgets import foreign_form
from murho.service.predict.json_rows import (
    JSON_NAMES,
    PIECE_CELLS,
    Form,
    Inputs,
    check_rows,
    column_of,
    decode_cells,
    parse_inputs,
    refuse_unknown,
)
from murho.service.predict.options import PredictRequest, options_of, predict_options, validate_document

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from murho.model.predictive.prediction import AnswerField, Detail, PredictOptions, Unit
    from murho.service.settings import Settings

PIECE_VALUES = 4096
"""Numbers encoded at once, in about half a millisecond: the encoder holds the interpreter's lock."""
MOST_CONTAINERS = 100_000
"""Lists and objects of a document without types: they take the parser ten times longer than numbers, and the collector
of garbage longer yet."""
SEND_TABLES = "Send large tables as Arrow, Parquet or CSV, or as binary tensors to /v2."
STRINGS_AND_NAN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|NaN', re.DOTALL)
"""A string that isn't closed goes on to the end, so that the search never begins again within it."""

MISSING = "JSON has no {word}: send null for a value that is missing."
INFINITE = "JSON has no {word}, and inputs are finite: send a number, or null for a value that is missing."
HINTS = {
    **dict.fromkeys(("nan", "none", "undefined", "n/a"), MISSING),
    **dict.fromkeys(("infinity", "inf"), INFINITE),
    "true": "JSON writes true, not {word}.",
    "false": "JSON writes false, not {word}.",
    "'": 'JSON has double quotes: "…", not {word}…{word}.',
}
"""What stands where a parser stops, in lower case → what to do; longer words before those that they begin with."""

OPTIONS = tuple(name for name in PredictRequest.model_fields if name != "inputs")
IDS = OPTIONS.index("ids")
"""They are others in every request."""
MOST_KEPT, MOST_KEPT_BYTES = 256, 512
"""Options of requests as they were sent, and their bytes, for which the next one like them needs no look at them."""
NUMBERS = frozenset({FeatureKind.NUMERIC, FeatureKind.BOOLEAN})
CELLS: dict[FeatureKind, Any] = {
    FeatureKind.NUMERIC: float,
    FeatureKind.BOOLEAN: bool,
    FeatureKind.DATE: str,
    FeatureKind.CATEGORICAL: str,
}


def document_of(body: bytes, terms: Terms, place: str = "keys of the document", *, nan: bool = False) -> dict[str, Any]:
    """Return the document of a request; options are in it, at a place, and not in the query; see `load_json`."""
    if terms.query:
        refuse_unknown(list(terms.query), f"With a JSON body, options are {place}, not query parameters.")
    return load_json(body, terms.settings.max_json_bytes, nan=nan)


def load_json(body: bytes, most: int, *, nan: bool = False) -> dict[str, Any]:
    """Return the object that is JSON.

    Args:
        body: JSON in UTF-8.
        most: The most bytes.
        nan: Whether NaN, which some clients write for a missing value, is null.

    Raises:
        BadInputError: It is no JSON object, for example because of NaN, Infinity or a number that float64 can't hold.
        TooLargeError: It is too long, or has too many lists and objects.
    """
    if len(body) > most:
        raise TooLargeError(f"The JSON of the request has {len(body)} bytes; at most {most} are read. {SEND_TABLES}")
    if not body.strip():
        raise wrong("", 'The body is empty. Send a JSON object such as {"inputs": [{…}]}.')
    if (count := body.count(b"[") + body.count(b"{")) > MOST_CONTAINERS:
        raise TooLargeError(
            f"The JSON of the request has {count} lists and objects; at most {MOST_CONTAINERS} are read. {SEND_TABLES}"
        )
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if nan and error.doc.startswith("NaN", error.pos):
            text = STRINGS_AND_NAN.sub(lambda found: b"null" if found[0] == b"NaN" else found[0], body)
            return load_json(text, most + len(text) - len(body))
        fault = foreign_form(body) or _hint(error)
        raise wrong("", f"The body isn't valid JSON in UTF-8. {fault}") from None
    if not isinstance(document, dict):
        raise wrong("", f'Expected a JSON object such as {{"inputs": [{{…}}]}}, not {JSON_NAMES[type(document)]}.')
    return document


def _hint(error: orjson.JSONDecodeError) -> str:
    """Return what is wrong, and what to send instead of the word at which the parser stopped."""
    found = error.doc[error.pos : error.pos + 9]
    for word, hint in HINTS.items():
        if found.lower().startswith(word):
            return f"{hint.format(word=found[: len(word)])} ({error})"
    return f"{error}. For CSV, send the header Content-Type: text/csv." if error.pos == 0 else str(error)


class JSONCodec(Codec):
    """The codec of `application/json`."""

    media_type = "application/json"
    explains = True

    def __init__(self) -> None:
        self._documents: dict[int, _Documents] = {}

    def reads(self, media_type: str) -> bool:
        """Return true for JSON under each of its names, and for a body without a media type."""
        return media_type in ("", self.media_type) or (
            media_type.startswith("application/") and media_type.endswith("+json")
        )

    def decode(self, body: bytes, terms: Terms) -> ParsedRequest:
        """Return the rows and the options of a document; see `Codec.decode`."""
        schema, settings = terms.schema, terms.settings
        documents = self._documents.get(id(schema))
        if documents is None:
            if len(self._documents) >= MOST_KEPT:
                self._documents.clear()
            documents = self._documents[id(schema)] = _Documents(schema)
        if terms.kind is PredictRequest and not terms.query and (parsed := documents.read(body, settings)) is not None:
            return parsed
        request = validate_document(terms.kind, document_of(body, terms))
        options = predict_options(request, settings, schema.target)
        return ParsedRequest(parse_inputs(request.inputs, schema, settings.max_rows), options, request)

    def encode(self, result: Result) -> Encoded:
        """Return the document; see `Codec.encode`."""
        return Encoded(encode_answer(result), self.media_type)


class _Documents:
    """The typed documents of one schema.

    Args:
        schema: The schema. It is kept, so that its `id` stays its own.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._names = tuple(feature.name for feature in schema.features)
        self._numbers = [index for index, feature in enumerate(schema.features) if feature.kind in NUMBERS]
        self._options: dict[tuple[object, ...], tuple[PredictOptions, PredictRequest]] = {}
        self._decoder: msgspec.json.Decoder[Any] | None = None
        with suppress(ValueError):  # the name of a feature has quotes
            self._decoder = msgspec.json.Decoder(self._document())

    def _document(self) -> type[msgspec.Struct]:
        cells = [
            CELLS[each.kind] | (None if each.accepts_missing else CELLS[each.kind]) for each in self.schema.features
        ]
        fields = [f"f{index}" for index in range(len(cells))]
        names = dict(zip(fields, self._names, strict=True))
        lists = [list[cell] for cell in cells]  # type: ignore[valid-type]
        row, columns = (
            msgspec.defstruct(name, zip(fields, of, strict=True), rename=names, forbid_unknown_fields=True, gc=False)
            for name, of in (("Row", cells), ("Columns", lists))
        )
        inputs = list[row | tuple[*cells]] | columns  # type: ignore[valid-type]
        options = [(name, msgspec.Raw, msgspec.Raw(b"")) for name in OPTIONS]
        return msgspec.defstruct("Document", [("inputs", inputs), *options], forbid_unknown_fields=True, gc=False)

    def read(self, body: bytes, settings: Settings) -> ParsedRequest | None:
        """Return what a document asks for; None if it isn't plain to see, or if something is wrong with it."""
        if self._decoder is None or len(body) > settings.max_json_bytes:
            return None
        try:
            rows, *said = msgspec.structs.astuple(self._decoder.decode(body))
            options, request = self._read_options(tuple(map(bytes, said)), settings)
        except (msgspec.MsgspecError, ValueError, RecursionError, BadInputError):
            return None
        if isinstance(rows, list):
            if not rows or len(set(map(type, rows))) > 1:
                return None
            form = Form.MATRIX if type(rows[0]) is tuple else Form.RECORDS
            cells = tuple(zip(*(rows if form is Form.MATRIX else map(msgspec.structs.astuple, rows)), strict=True))
        else:
            form, cells = Form.COLUMNS, msgspec.structs.astuple(rows)
            if len(set(map(len, cells))) > 1 or not cells[0]:
                return None
        if (columns := self._columns(cells, settings.max_rows)) is None:
            return None
        return ParsedRequest(Inputs(form, columns, len(cells[0])), options, request)

    def _columns(self, cells: Sequence[Sequence[Any]], most: int) -> dict[str, NDArray[Any]] | None:
        """Return canonical columns of the cells of each feature; None if one of the cells can't be read."""
        check_rows(len(cells[0]), most)
        columns: dict[str, NDArray[Any]] = {}
        few = len(cells[0]) <= PIECE_CELLS
        # In one matrix, where None becomes NaN.
        numbers = iter(np.array([*map(cells.__getitem__, self._numbers)], dtype=np.float64) if few else ())
        for name, feature, of_feature in zip(self._names, self.schema.features, cells, strict=True):
            if few and feature.kind in NUMBERS:
                column: NDArray[Any] = next(numbers)
                columns[name] = feature.without_codes(column) if feature.missing_words else column
            else:
                columns[name], refused = (column_of if few else decode_cells)(feature, of_feature)
                if refused:
                    return None
        return columns

    def _read_options(self, said: tuple[bytes, ...], settings: Settings) -> tuple[PredictOptions, PredictRequest]:
        """Return the options, complete and as they were sent.

        Args:
            said: The options as they were sent, in the order of `OPTIONS`.
            settings: The defaults and the limits.

        Raises:
            BadInputError, ValueError: One of them is wrong.
        """
        key = (settings.samples, settings.max_samples, *said)
        kept = self._options.get(key)
        if kept is None:
            given = {name: orjson.loads(text) for name, text in zip(OPTIONS, said, strict=True) if text}
            kept = options_of(given, settings, self.schema.target)
            if sum(map(len, said)) <= MOST_KEPT_BYTES and not said[IDS]:
                if len(self._options) >= MOST_KEPT:
                    self._options.clear()
                self._options[key] = kept
        return kept


def encode_answer(result: Result) -> Iterator[bytes]:
    """Return the answer as JSON in UTF-8, in pieces; see `PredictResponse` and `ClassPredictResponse`.

    Keys that were not requested are absent; keys that need draws are null if there are none.
    """
    document, prediction, options = head_of(result), result.prediction, result.parsed.options
    for field, detail in _fields_of(prediction.answer_fields, options):
        value = getattr(prediction, field.name)
        if value is not None:
            if field.parts:
                parsed = (part.name for part in field.parts if part.is_in(options))
                value = {name: np.ascontiguousarray(getattr(value, name)) for name in parsed}
            elif field.numeric:
                value = np.ascontiguousarray(value)  # the encoder takes arrays in one layout of memory
            else:
                value = _ClassNames(value, field.unit, prediction.classes or ())
            if field.detail is not None:
                value = {**detail, "values": value}
        document[field.name] = value
    if result.ids is not None:
        document["ids"] = result.ids
    document |= result.explained or {}
    document["calibrated"] = prediction.calibrated
    document["extrapolation"] = prediction.extrapolation
    if result.adapted is not None:
        document["calibration"] = calibration_of(result.adapted)
    document["warnings"] = result.warnings
    if result.values <= PIECE_VALUES:
        return iter((orjson.dumps(document, _as_list, orjson.OPT_SERIALIZE_NUMPY),))
    return encode_document(document)


@lru_cache(1024)  # most requests ask for the same
def _fields_of(fields: tuple[AnswerField, ...], options: PredictOptions) -> list[tuple[AnswerField, dict[str, Any]]]:
    """Return the fields that an answer has, each with what it says besides its values."""
    return [
        (field, {} if field.detail is None else {field.detail.name: _detail(field.detail, options)})
        for field in fields
        if field.is_in(options)
    ]


def _detail(detail: Detail, options: PredictOptions) -> Any:
    value = getattr(options, detail.option)
    if detail.whole and detail.listed:
        return [int(number) if number.is_integer() else number for number in value]
    return value


class _ClassNames:
    """Stands for a list with a class a row, or with a list of classes a row; names are made where they are written.

    Args:
        values: Indices of classes `[B]`, or whether each class is in a set `[B, C]`.
        unit: Which of the two.
        classes: Names of the C classes.
    """

    def __init__(self, values: NDArray[Any], unit: Unit, classes: tuple[str, ...]) -> None:
        self._values, self._unit, self._classes = values, unit, classes
        self.size = values.size

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, rows: slice) -> list[Any]:
        """Return the names of some rows."""
        return names_of_classes(self._values[rows], self._unit, self._classes)


def _as_list(value: _ClassNames) -> list[Any]:
    """Return what the encoder has no text for as a list."""
    return value[:]


def encode_document(document: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield an object as JSON in UTF-8, in pieces; arrays in it, at any depth of objects, are lists.

    It is what ``orjson.dumps`` writes, byte for byte.
    """
    before = b"{"
    for name, value in document.items():
        yield before + orjson.dumps(name) + b":"
        before = b","
        if isinstance(value, dict):
            yield from encode_document(value)
        elif isinstance(value, np.ndarray | _ClassNames):
            yield from _array(value)
        else:
            yield orjson.dumps(value)
    yield b"{}" if before == b"{" else b"}"


def _array(values: NDArray[Any] | _ClassNames) -> Iterator[bytes]:
    rows = max(1, PIECE_VALUES * len(values) // max(1, values.size))
    before = b"["
    for start in range(0, len(values), rows):
        yield before + orjson.dumps(values[start : start + rows], option=orjson.OPT_SERIALIZE_NUMPY)[1:-1]
        before = b","
        time.sleep(0)  # whoever waits for the lock gets it now
    yield b"[]" if before == b"[" else b"]"
