"""A request for inference: the JSON document with its tensors, options and wanted outputs, strictly read."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import orjson

from murho.model.errors import Problem
from murho.service.codecs.cells import JSON_NAMES
from murho.service.codecs.codec import Asked
from murho.service.codecs.envelope import predict_options, validate_document
from murho.service.codecs.problems import shorten
from murho.service.codecs.query_options import LISTS, value_of_text
from murho.service.errors import BadInputError, TooLargeError
from murho.service.inference_protocol.binary import Blobs, binary_values, header_length
from murho.service.inference_protocol.features import (
    MATRIX,
    MATRIX_DATATYPE,
    check_inputs,
    read_features,
    takes_matrix,
)
from murho.service.inference_protocol.outputs import outputs_of
from murho.service.inference_protocol.tensors import DATATYPES, Tensor, json_values, read_shape, wrong

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import TypeGuard

    from murho.model.engines.prediction import PredictOptions
    from murho.service.inference_protocol.outputs import Output
    from murho.service.jobs import ModelLike
    from murho.service.settings import Settings

__all__ = ["OPTIONS", "InferAsked", "load_json", "read_request"]

MOST_JSON_BYTES = 2**22
"""The parser holds the interpreter's lock until it is through: 20 ms for numbers of this size."""
STRINGS_AND_NAN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|NaN', re.DOTALL)
"""A string that isn't closed goes on to the end, so that the search never begins again within it."""

OPTIONS = ("samples", "seed", "percentiles", "noise", "calibrated", "thresholds")
MICROSECONDS = 1e6
MOST_ID = 1000
NO_SUPPORT = {
    "sequence_id": "sequences: every request stands for itself",
    "sequence_start": "sequences: every request stands for itself",
    "sequence_end": "sequences: every request stands for itself",
    "priority": "priorities: callers take turns",
    "shared_memory_region": "shared memory: send the tensor in the body",
    "shared_memory_byte_size": "shared memory: send the tensor in the body",
    "shared_memory_offset": "shared memory: send the tensor in the body",
    "classification": "classification of outputs: it predicts what the outputs say",
}
"""Parameters of extensions that this service doesn't have."""
HINTS = frozenset({"content_type", "headers"})
"""Parameters for the codecs of other servers' clients. They change nothing here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InferAsked(Asked):
    """What a request asks for.

    Attributes:
        id: The client's name of the request; None: it has none.
        outputs: The wanted outputs in their order, and whether each is to be binary.
    """

    id: str | None
    outputs: tuple[tuple[Output, bool], ...]


def read_request(body: bytes, *, length: str | None, model: ModelLike, settings: Settings) -> InferAsked:
    """Returns the rows, the options and the wanted outputs of a request.

    Args:
        body: The whole body, not compressed.
        length: The header `Inference-Header-Content-Length`; None: there is none, and the body is JSON.
        model: The model that is to answer.
        settings: The limits.

    Raises:
        BadInputError: The document, a tensor, an option or an output is wrong.
        TooLargeError: The request is above a limit.
    """
    size = header_length(length, len(body))
    if size == 0 and body:
        return _raw_request(body, model, settings)
    document = load_json(body if size is None else body[:size])
    _check_keys(document, (), ("id", "parameters", "inputs", "outputs"))
    identifier = document.get("id")
    if identifier is not None and (not isinstance(identifier, str) or len(identifier) > MOST_ID):
        raise wrong(("id",), f"Expected a string of at most {MOST_ID} characters.")
    parameters = _parameters(document, ())
    options, timeout = _options(parameters, settings)
    outputs, options = _outputs(document, parameters, outputs_of(model), options)
    blobs = Blobs(memoryview(body)[len(body) if size is None else size :])
    listed = _inputs(document, model)
    shapes = [(item["name"], read_shape(item.get("shape"), ("inputs", item["name"], "shape"))) for item in listed]
    rows = check_inputs(shapes, model.schema, settings.max_rows)
    tensors = [_tensor(item, shape, blobs) for item, (_, shape) in zip(listed, shapes, strict=True)]
    blobs.finish()
    inputs = read_features(tensors, rows, model.schema)
    return InferAsked(inputs, options, timeout, id=identifier, outputs=outputs)


def load_json(text: bytes) -> dict[str, Any]:
    """Returns the object that is JSON; NaN, which some clients write for a missing value, is null.

    Raises:
        BadInputError: It is no JSON object.
        TooLargeError: It is too long.
    """
    if len(text) > MOST_JSON_BYTES:
        raise TooLargeError(
            f"The JSON of the request has {len(text)} bytes; at most {MOST_JSON_BYTES} are read. Send large tables as "
            "binary tensors to /v2, or as Arrow or CSV elsewhere."
        )
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        try:
            document = orjson.loads(STRINGS_AND_NAN.sub(_null_for_nan, text))
        except orjson.JSONDecodeError:
            raise BadInputError([Problem("", f"The request isn't valid JSON in UTF-8: {error}")]) from None
    if not isinstance(document, dict):
        raise BadInputError([Problem("", f"Expected a JSON object, not {JSON_NAMES.get(type(document), 'this')}.")])
    return document


def _null_for_nan(found: re.Match[bytes]) -> bytes:
    return b"null" if found[0] == b"NaN" else found[0]


def _raw_request(body: bytes, model: ModelLike, settings: Settings) -> InferAsked:
    """Returns what a body asks for that is nothing but the only input; all outputs are binary.

    Raises:
        BadInputError: The model has several inputs, or the body holds no whole rows.
    """
    if not takes_matrix(model.schema):
        message = "A request without JSON is for models with one input, and this one has an input for each feature."
        raise BadInputError([Problem("", message)])
    width, itemsize = len(model.schema.features), 8
    if len(body) % (width * itemsize):
        message = f"The body has {len(body)} bytes; a row of {width} {MATRIX_DATATYPE} takes {width * itemsize}."
        raise BadInputError([Problem("", message)])
    shape = (len(body) // (width * itemsize), width)
    rows = check_inputs([(MATRIX, shape)], model.schema, settings.max_rows)
    tensor = Tensor(
        MATRIX, MATRIX_DATATYPE, shape, binary_values(memoryview(body), MATRIX_DATATYPE, shape, ("inputs", MATRIX))
    )
    options, timeout = _options({}, settings)
    outputs, options = _outputs({}, {"binary_data_output": True}, outputs_of(model), options)
    return InferAsked(read_features([tensor], rows, model.schema), options, timeout, id=None, outputs=outputs)


def _inputs(document: dict[str, Any], model: ModelLike) -> list[dict[str, Any]]:
    """Returns the inputs, each an object of known keys with a name."""
    inputs = document.get("inputs")
    features = [feature.name for feature in model.schema.features]
    if not isinstance(inputs, list) or not inputs:
        found = "an empty list" if inputs == [] else JSON_NAMES.get(type(inputs), "this")
        named = f"{MATRIX!r}" if takes_matrix(model.schema) else ", ".join(map(repr, features))
        raise wrong(("inputs",), f"Expected a list of tensors, not {found}. The inputs of this model: {named}.")
    for index, item in enumerate(inputs):
        if not isinstance(item, dict):
            raise wrong(("inputs", index), f"Expected an object, not {JSON_NAMES.get(type(item), 'this')}.")
        _check_keys(item, ("inputs", index), ("name", "shape", "datatype", "parameters", "data"))
        if not isinstance(item.get("name"), str):
            raise wrong(("inputs", index, "name"), "Expected the name of the input, a string.")
    return inputs


def _tensor(item: dict[str, Any], shape: tuple[int, ...], blobs: Blobs) -> Tensor:
    """Returns an input with its elements."""
    name, datatype = item["name"], item.get("datatype")
    place = ("inputs", name)
    if not isinstance(datatype, str) or datatype not in DATATYPES:
        shown = repr(shorten(datatype)) if isinstance(datatype, str) else JSON_NAMES.get(type(datatype), "this")
        raise wrong((*place, "datatype"), f"Expected one of {', '.join(DATATYPES)}, not {shown}.")
    parameters = _parameters(item, place)
    _check_known(parameters, ("binary_data_size",), (*place, "parameters"))
    if "binary_data_size" not in parameters:
        if "data" not in item:
            raise wrong(place, "The input has neither data nor the parameter binary_data_size.")
        return Tensor(name, datatype, shape, json_values(item["data"], datatype, shape, place))
    if "data" in item:
        raise wrong(place, "The input has data, and the parameter binary_data_size too: one of both is wanted.")
    data = blobs.take(parameters["binary_data_size"], (*place, "parameters", "binary_data_size"))
    return Tensor(name, datatype, shape, binary_values(data, datatype, shape, place))


def _options(parameters: Mapping[str, Any], settings: Settings) -> tuple[PredictOptions, float | None]:
    """Returns the options of a request, and the seconds in which the answer is wanted."""
    _check_known(parameters, (*OPTIONS, "timeout", "binary_data_output"), ("parameters",))
    document: dict[str, Any] = {"inputs": None}
    for name in OPTIONS:
        value = parameters.get(name)
        if name in LISTS and isinstance(value, str):  # parameters of the protocol can't be lists
            value = [value_of_text(part.strip()) for part in value.split(",")] if value.strip() else []
        elif name in LISTS and type(value) in (int, float):
            value = [value]
        document[name] = value
    timeout = parameters.get("timeout")
    if timeout is not None and (type(timeout) is not int or timeout < 0):
        raise wrong(("parameters", "timeout"), "Expected a number of microseconds, a whole number from 0.")
    try:
        options = predict_options(validate_document(document), settings.samples, settings.max_samples)
    except BadInputError as error:
        moved = [Problem(f"/parameters{item.pointer}", item.message) for item in error.problems]
        raise BadInputError(moved, error.total, more=error.more) from None
    return options, timeout / MICROSECONDS if timeout else None


def _outputs(
    document: Mapping[str, Any], parameters: Mapping[str, Any], table: tuple[Output, ...], options: PredictOptions
) -> tuple[tuple[tuple[Output, bool], ...], PredictOptions]:
    """Returns the wanted outputs, and the options with what they need."""
    default = _flag(parameters, "binary_data_output", ("parameters",))
    wanted = document.get("outputs")
    if not wanted and (wanted is None or wanted == []):
        return tuple(
            (output, default) for output in table if output.include is None and output.absence(options) is None
        ), options
    if not isinstance(wanted, list):
        raise wrong(("outputs",), f"Expected a list of outputs, not {JSON_NAMES.get(type(wanted), 'this')}.")
    by_name = {output.name: output for output in table}
    found: dict[str, tuple[Output, bool]] = {}
    for index, item in enumerate(wanted):
        place = ("outputs", index)
        if not isinstance(item, dict):
            raise wrong(place, f"Expected an object, not {JSON_NAMES.get(type(item), 'this')}.")
        _check_keys(item, place, ("name", "parameters"))
        name = item.get("name")
        if not isinstance(name, str) or name not in by_name:
            shown = repr(shorten(name)) if isinstance(name, str) else JSON_NAMES.get(type(name), "this")
            raise wrong((*place, "name"), f"There is no output {shown}; there are {', '.join(by_name)}.")
        if name in found:
            raise wrong((*place, "name"), f"The output {name!r} is there twice.")
        output = by_name[name]
        if (reason := output.absence(options)) is not None:
            raise wrong((*place, "name"), f"The output {name!r} {reason}")
        own = _parameters(item, place)
        _check_known(own, ("binary_data",), (*place, "parameters"))
        found[name] = output, _flag(own, "binary_data", (*place, "parameters"), default=default)
    includes = {output.include for output, _ in found.values()}
    return tuple(found.values()), replace(options, draws="draws" in includes, mc_error="mc_error" in includes)


def _parameters(item: Mapping[str, Any], place: tuple[str | int, ...]) -> dict[str, Any]:
    """Returns the parameters of a part of a request."""
    parameters = item.get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise wrong((*place, "parameters"), f"Expected an object, not {JSON_NAMES.get(type(parameters), 'this')}.")
    return parameters


def _check_known(parameters: Mapping[str, Any], known: Collection[str], place: tuple[str | int, ...]) -> None:
    for name in parameters:
        if name in NO_SUPPORT:
            raise wrong((*place, name), f"This service has no {NO_SUPPORT[name]}.")
        if name not in known and name not in HINTS:
            raise wrong((*place, name), f"There is no parameter {shorten(name)!r}; there are {', '.join(known)}.")


def _check_keys(item: Mapping[str, Any], place: tuple[str | int, ...], known: tuple[str, ...]) -> None:
    for name in item:
        if name not in known:
            raise wrong((*place, name), f"There is no key {shorten(name)!r}; there are {', '.join(known)}.")


def _flag(parameters: Mapping[str, Any], name: str, place: tuple[str | int, ...], *, default: bool = False) -> bool:
    value = parameters.get(name, default)
    if not _is_flag(value):
        raise wrong((*place, name), f"Expected true or false, not {JSON_NAMES.get(type(value), 'this')}.")
    return value


def _is_flag(value: object) -> TypeGuard[bool]:
    return isinstance(value, bool)
