"""A request for inference: the JSON document with its tensors, options and wanted outputs, strictly read.

`/openapi.json` shows the pydantic models of this module. In the binary tensor extension the bytes of tensors come after
the JSON, one tensor after the other; the header `Inference-Header-Content-Length` has the size of the JSON. Numbers are
little-endian and packed; BOOL is a byte, 0 or 1; each element of BYTES is its length as a 32-bit number and then its
bytes. The inputs are one matrix `x` if all features are numbers, or one tensor a feature.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast, get_args

import numpy as np
from pydantic import BeforeValidator, Field

from murho.model.tables.cells import LONGEST_TEXT, explain_long_text
from murho.model.tables.schema import FeatureKind, Schema, Target
from murho.service.errors import wrong
from murho.service.predict.answers import Codec, Encoded, ParsedRequest, Result, Terms
from murho.service.predict.json_bodies import load_json
from murho.service.predict.json_rows import (
    JSON_NAMES,
    Form,
    Inputs,
    Problems,
    check_rows,
    pointer,
    read_column,
    shorten,
    wrong_at,
)
from murho.service.predict.options import (
    LISTS,
    Many,
    PredictRequest,
    RequestModel,
    options_of,
    validate_document,
    value_of_text,
)
from murho.service.protocols.infer_answers import (
    BYTES,
    LENGTH_BYTES,
    LENGTH_HEADER,
    Output,
    encode_inference,
    outputs_of,
)
from murho.service.tables.table_codec import check_names, number_column, number_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from murho.model.predictive.prediction import PredictOptions
    from murho.service.settings import Settings

MATRIX = "x"
"""The name of the input that has all features."""
MICROSECONDS = 1e6
OPTIONS = {"samples", "seed", "percentiles", "noise", "calibrated", "thresholds", "coverage"}
"""Of `POST /predict`, that are parameters here."""
OF_NUMBERS = (FeatureKind.NUMERIC, FeatureKind.BOOLEAN)
KINDS = {
    FeatureKind.NUMERIC: ("iuf", "a datatype of numbers, such as FP64"),
    FeatureKind.BOOLEAN: ("biuf", "BOOL, or a datatype of numbers"),
    FeatureKind.DATE: ("O", "BYTES: ISO 8601 dates such as 2024-05-31"),
    FeatureKind.CATEGORICAL: ("Oiuf", "BYTES, or a datatype of numbers"),
}
"""Of each kind of feature: the kinds of NumPy's datatypes that it can be read from, and what they are called."""

Datatype = Literal[
    "BOOL",
    "UINT8",
    "UINT16",
    "UINT32",
    "UINT64",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "FP16",
    "BF16",
    "FP32",
    "FP64",
    "BYTES",
]
CODES = ("?", "u1", "<u2", "<u4", "<u8", "i1", "<i2", "<i4", "<i8", "<f2", "<u2", "<f4", "<f8", "O")
DTYPES = dict(zip(get_args(Datatype), map(np.dtype, CODES), strict=True))
"""Each datatype with NumPy's, little-endian. BF16, which is Triton's, is the upper half of a 32-bit float."""
JSON_TYPES: dict[str, tuple[frozenset[type], str]] = {
    "b": (frozenset({bool}), "true or false"),
    "i": (frozenset({int}), "a whole number"),
    "u": (frozenset({int}), "a whole number"),
    "f": (frozenset({int, float}), "a number"),
    "O": (frozenset({str}), "a string"),
}
"""By the kind of NumPy's datatype: the types of JSON values, and what they are called."""
NONE_IS_EMPTY = BeforeValidator(lambda value: {} if value is None else value)
"""Some clients send null for what they leave out."""
Size = Annotated[int, Field(ge=0, lt=10**12)]


class Parameters(RequestModel):
    """Parameters; two of them are for the codecs of other servers' clients, and change nothing here."""

    content_type: Any = None
    headers: Any = None


class InputParameters(Parameters):
    """The parameters of an input."""

    binary_data_size: Annotated[int, Field(ge=0)] | None = None
    """Bytes behind the JSON."""


class InputTensor(RequestModel):
    """One input: a feature, or all of them in the matrix `x`."""

    name: str
    shape: Annotated[list[Size], Field(min_length=1, max_length=2)]
    """[rows], [rows, 1], or [rows, features] of x."""
    datatype: Datatype
    parameters: Annotated[InputParameters, NONE_IS_EMPTY] = InputParameters()
    data: list[Any] | None = None
    """The elements, row-major, flat or nested; null: missing."""


class OutputParameters(Parameters):
    """The parameters of a wanted output."""

    binary_data: bool | None = None
    """Whether it is sent as bytes behind the JSON."""


class WantedOutput(RequestModel):
    """One output that the answer is to have."""

    name: str
    parameters: Annotated[OutputParameters, NONE_IS_EMPTY] = OutputParameters()


class RequestParameters(Parameters):
    """The parameters of a request: options of `POST /predict`, and the protocol's own."""

    samples: Any = None
    seed: Any = None
    percentiles: Any = None
    """A level, or levels in a text such as '5,50,95'."""
    noise: Any = None
    calibrated: Any = None
    thresholds: Any = None
    """A number, or numbers in a text such as '20,30'."""
    coverage: Any = None
    timeout: Annotated[int, Field(ge=0)] | None = None
    """Microseconds."""
    binary_data_output: bool = False
    """Whether outputs are sent as bytes by default."""


class InferRequest(RequestModel):
    """A request for inference."""

    id: Annotated[str, Field(max_length=1000)] | None = None
    """Comes back in the answer."""
    parameters: Annotated[RequestParameters, NONE_IS_EMPTY] = RequestParameters()
    inputs: Many[InputTensor] = Field(min_length=1)
    outputs: Many[WantedOutput] | None = None
    """Without them, those of the model's metadata."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InferParsed(ParsedRequest):
    """What a request asks for.

    Attributes:
        id: The client's name of the request; None: it has none.
        outputs: The wanted outputs in their order, and whether each is to be binary.
    """

    id: str | None
    outputs: tuple[tuple[Output, bool], ...]


def takes_matrix(schema: Schema) -> bool:
    """Return whether all features of a model are numbers, so that one matrix can have them."""
    return all(feature.kind in OF_NUMBERS for feature in schema.features)


class InferCodec(Codec):
    """The codec of one request for inference, and of its answer.

    Args:
        length: The header `Inference-Header-Content-Length`; None: there is none, and the body is JSON.
    """

    media_type = "application/json"
    records = False

    def __init__(self, length: str | None = None) -> None:
        self._length = length

    def decode(self, body: bytes, terms: Terms) -> InferParsed:
        """Return the rows, the options and the wanted outputs of a request; see `Codec.decode`."""
        schema, settings = terms.schema, terms.settings
        size = len(body) if self._length is None else _header_length(self._length, len(body))
        if size or not body:
            document = load_json(body[:size], settings.max_json_bytes, nan=True)
        else:
            document = _of_matrix_alone(len(body), schema)
        request = validate_document(InferRequest, document)
        options, said = _options(request.parameters, settings, schema.target)
        outputs, options = _outputs(request, outputs_of(schema.target.classes), options)
        rows = _check_inputs(request.inputs, schema, settings.max_rows)
        values, left = [], memoryview(body)[size:]
        for each in request.inputs:
            elements, left = _elements(each, left)
            values.append(elements)
        if left:
            raise wrong(
                "", f"The body has {len(left)} bytes that belong to no tensor: the sizes of tensors don't add up."
            )
        inputs = _read_inputs(request.inputs, values, rows, schema)
        return InferParsed(inputs, options, said, id=request.id, outputs=outputs)

    def encode(self, result: Result) -> Encoded:
        """Return the answer; see `Codec.encode`."""
        parsed = cast("InferParsed", result.parsed)
        return encode_inference(parsed.id, parsed.outputs, result)


def _header_length(given: str, size: int) -> int:
    """Return the bytes of the JSON in a body of so many bytes, as the header has it."""
    text = given.strip()
    if not (text.isascii() and text.isdecimal() and len(text) <= 12):
        raise wrong("", f"The header {LENGTH_HEADER} is {given[:80]!r}; it should be the size of the JSON in bytes.")
    if int(text) > size:
        raise wrong("", f"The header {LENGTH_HEADER} says {int(text)} bytes, and the body has {size}.")
    return int(text)


def _of_matrix_alone(size: int, schema: Schema) -> dict[str, Any]:
    """Return the document of a body that is nothing but the only input, FP64; all its outputs are binary."""
    if not takes_matrix(schema):
        raise wrong("", "A request without JSON is for models with one input; this one has an input for each feature.")
    width = len(schema.features)
    sizes = {"shape": [size // (8 * width), width], "parameters": {"binary_data_size": size}}
    return {"inputs": [{"name": MATRIX, "datatype": "FP64", **sizes}], "parameters": {"binary_data_output": True}}


def _options(
    parameters: RequestParameters, settings: Settings, target: Target
) -> tuple[PredictOptions, PredictRequest]:
    """Return the options of a request, complete and as they were sent."""
    given = {name: getattr(parameters, name) for name in OPTIONS & parameters.model_fields_set}
    for name in LISTS & given.keys():  # parameters of the protocol can't be lists
        value = given[name]
        if isinstance(value, str):
            given[name] = value_of_text(value, listed=True)
        elif type(value) in (int, float):
            given[name] = [value]
    if parameters.timeout:
        given["timeout"] = parameters.timeout / MICROSECONDS
    return options_of(given, settings, target, move="/parameters{}".format)


def _outputs(
    request: InferRequest, table: tuple[Output, ...], options: PredictOptions
) -> tuple[tuple[tuple[Output, bool], ...], PredictOptions]:
    """Return the wanted outputs, and the options with what they need."""
    binary = request.parameters.binary_data_output
    if not request.outputs:
        there = [each for each in table if each.include is None and each.absence(options) is None]
        return tuple((each, binary) for each in there), options
    by_name = {output.name: output for output in table}
    found: dict[str, tuple[Output, bool]] = {}
    for index, item in enumerate(request.outputs):
        place, output = ("outputs", index, "name"), by_name.get(item.name)
        if output is None:
            raise wrong_at(place, f"There is no output {shorten(item.name)!r}; there are {', '.join(by_name)}.")
        if item.name in found:
            raise wrong_at(place, f"The output {item.name!r} is there twice.")
        if (reason := output.absence(options)) is not None:
            raise wrong_at(place, f"The output {item.name!r} {reason}")
        own = item.parameters.binary_data
        found[item.name] = output, binary if own is None else own
    includes = {output.include for output, _ in found.values()}
    return tuple(found.values()), replace(options, draws="draws" in includes, mc_error="mc_error" in includes)


def _is_matrix(inputs: Sequence[InputTensor], schema: Schema) -> bool:
    """Return whether the only input is the matrix; a model of one feature of this name reads it as the feature."""
    return [each.name for each in inputs] == [MATRIX] and [each.name for each in schema.features] != [MATRIX]


def _check_inputs(inputs: Sequence[InputTensor], schema: Schema, max_rows: int) -> int:
    """Check names and shapes of the inputs, before their elements are read; return the number of rows."""
    matrix, width, rows = _is_matrix(inputs, schema), len(schema.features), inputs[0].shape[0]
    if not matrix:
        check_names([each.name for each in inputs], schema)
    elif not takes_matrix(schema):
        raise wrong_at(("inputs", MATRIX), "The model has features that are no numbers: send one input a feature.")
    fitting = ([rows, width],) if matrix else ([rows], [rows, 1])
    for each in inputs:
        if each.shape not in fitting:
            expected = f"[rows, {width}]" if matrix else f"[{rows}] or [{rows}, 1]"
            raise wrong_at(("inputs", each.name), f"The shape is {each.shape}, where {expected} is expected.")
    check_rows(rows, max_rows)
    if not rows:
        raise wrong_at(("inputs",), "The tensors have no rows; at least one row is needed.")
    return rows


def _read_inputs(inputs: Sequence[InputTensor], values: Sequence[NDArray[Any]], rows: int, schema: Schema) -> Inputs:
    """Return the rows as canonical columns."""
    if _is_matrix(inputs, schema):
        if DTYPES[inputs[0].datatype].kind not in "iuf":
            raise wrong_at(("inputs", MATRIX), f"The datatype is {inputs[0].datatype}; numbers are expected.")
        matrix = values[0].reshape(rows, -1)
        columns = number_columns(schema, matrix, lambda place, row: pointer("inputs", MATRIX, row, place))
        return Inputs(Form.MATRIX, columns, rows, lambda place: place.replace("/inputs", f"/inputs/{MATRIX}", 1))
    columns, problems = {}, Problems()
    by_name = {each.name: (each.datatype, found) for each, found in zip(inputs, values, strict=True)}
    for feature in schema.features:
        datatype, found = by_name[feature.name]
        kinds, expected = KINDS[feature.kind]
        at = partial(pointer, "inputs", feature.name)
        if DTYPES[datatype].kind not in kinds:
            message = f"{shorten(feature.name)!r} is {feature.kind}: it takes {expected}, not {datatype}."
            problems.add(0, at(), message)
        elif feature.kind in OF_NUMBERS:
            columns[feature.name] = number_column(feature, found, at, problems)
        else:
            cells: list[Any] = found.tolist()
            if found.dtype.kind == "f":  # 0.1 in 32 bits is 0.1 as a category, and not 0.10000000149011612
                cells = [None if value != value else float(str(value)) for value in found]
            columns[feature.name] = read_column(feature, cells, at, problems)
    problems.raise_any()
    return Inputs(Form.COLUMNS, columns, rows)


def _elements(item: InputTensor, left: memoryview) -> tuple[NDArray[Any], memoryview]:
    """Return the elements of a tensor in row-major order, `[count]`, and the bytes behind it that are left.

    Elements are booleans, integers, floats with NaN for missing, or objects: `str` or `int` with None for missing.
    """
    place, size = ("inputs", item.name), item.parameters.binary_data_size
    if (size is None) == (item.data is None):
        both = "neither data nor" if size is None else "both data and"
        raise wrong_at(place, f"The input has {both} the parameter binary_data_size: one of them is wanted.")
    if size is None:
        return _of_json(item, place), left
    if size > len(left):
        raise wrong_at(place, f"{size} bytes are announced, and {len(left)} are left behind the JSON of the body.")
    return _of_bytes(left[:size], item, place), left[size:]


def _of_json(item: InputTensor, place: tuple[str | int, ...]) -> NDArray[Any]:
    """Return the elements that are JSON: flat, or lists of lists. null is missing, and so is NaN."""
    flat, shape, dtype = item.data or [], item.shape, DTYPES[item.datatype]
    if item.datatype == "BF16":
        raise wrong_at(place, "BF16 tensors have to be sent as binary data.")
    if flat and isinstance(flat[0], list):
        for index, row in enumerate(flat):
            if not isinstance(row, list) or [len(row)] != shape[1:]:
                raise wrong_at((*place, index), f"Expected a list of values, as the shape {shape} says.")
        flat = list(chain.from_iterable(flat))
    if len(flat) != math.prod(shape):
        raise wrong_at(place, f"There are {len(flat)} values, where the shape {shape} has {math.prod(shape)}.")
    types, expected = JSON_TYPES[dtype.kind]
    if not set(map(type, flat)) <= types | {NoneType}:
        index = next(index for index, value in enumerate(flat) if type(value) not in types | {NoneType})
        found = JSON_NAMES.get(type(flat[index]), "this")
        raise wrong_at((*place, index), f"Expected {expected} for {item.datatype}, or null, not {found}.")
    if dtype.hasobject:
        values = np.empty(len(flat), dtype=object)
        values[:] = flat
        return values
    try:
        # Integers beside null stay objects, because float64 would round their digits beyond 2^53.
        numbers = np.array(flat, np.float64 if dtype.kind == "f" else object if None in flat else dtype)
    except OverflowError:
        raise wrong_at(place, f"A number doesn't fit into {item.datatype}.") from None
    with np.errstate(over="ignore"):  # infinities are refused with their row, where the features are read
        return numbers.astype(dtype) if dtype.kind == "f" else numbers


def _of_bytes(data: memoryview, item: InputTensor, place: tuple[str | int, ...]) -> NDArray[Any]:
    """Return the elements that are bytes: numbers as a view, so that nothing is allocated that isn't in the body."""
    dtype, count = DTYPES[item.datatype], math.prod(item.shape)
    least = count * (LENGTH_BYTES if item.datatype == BYTES else dtype.itemsize)
    if len(data) < least or (item.datatype != BYTES and len(data) != least):
        message = f"There are {len(data)} bytes, where {item.datatype} of the shape {item.shape} takes {least}."
        raise wrong_at(place, message)
    if item.datatype == BYTES:
        return _texts(data, count, place)
    numbers = np.frombuffer(data, np.uint8 if dtype == np.bool_ else dtype)
    if dtype == np.bool_:
        if (numbers > 1).any():
            raise wrong_at((*place, int((numbers > 1).argmax())), "A byte of BOOL is 0 or 1.")
        return numbers.view(np.bool_)
    return (numbers.astype(np.uint32) << 16).view(np.float32) if item.datatype == "BF16" else numbers


def _texts(data: memoryview, count: int, place: tuple[str | int, ...]) -> NDArray[Any]:
    """Return texts."""
    values = np.empty(count, dtype=object)
    position = 0
    for index in range(count):
        start = position + LENGTH_BYTES
        position = start + int.from_bytes(data[position:start], "little")
        if start > len(data) or position > len(data):
            left = max(0, len(data) - start)
            raise wrong_at(
                (*place, index), f"The element is said to have {position - start} bytes, and {left} are left."
            )
        if position - start > LONGEST_TEXT:
            raise wrong_at((*place, index), f"Of the element, {explain_long_text(position - start)}.")
        try:
            values[index] = str(data[start:position], "utf-8")
        except UnicodeDecodeError:
            raise wrong_at((*place, index), "The element isn't text in UTF-8.") from None
    if position != len(data):
        raise wrong_at(place, f"{len(data) - position} bytes are left behind the {count} elements of BYTES.")
    return values
