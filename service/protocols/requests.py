"""A request for inference: the JSON document with its tensors, options and wanted outputs, strictly read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from murho.model.errors import Problem
from murho.service.errors import BadInputError
from murho.service.predict.codec import Asked
from murho.service.predict.json_requests import load_json
from murho.service.predict.problems import shorten
from murho.service.predict.rows import JSON_NAMES
from murho.service.protocols.binary import Blobs, binary_values, header_length
from murho.service.protocols.features import (
    MATRIX,
    MATRIX_DATATYPE,
    check_inputs,
    read_features,
    takes_matrix,
)
from murho.service.protocols.outputs import outputs_of
from murho.service.protocols.parameters import (
    check_keys,
    check_known,
    flag_of,
    parameters_of,
    read_options,
)
from murho.service.protocols.tensors import DATATYPES, Tensor, json_values, read_shape, wrong

if TYPE_CHECKING:
    from collections.abc import Mapping

    from murho.model.predictive.prediction import PredictOptions
    from murho.service.engine.jobs import ModelLike
    from murho.service.protocols.outputs import Output
    from murho.service.settings import Settings

__all__ = ["InferAsked", "read_request"]

MOST_ID = 1000


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
    document = load_json(body if size is None else body[:size], settings.max_json_bytes, nan=True)
    check_keys(document, (), ("id", "parameters", "inputs", "outputs"))
    identifier = document.get("id")
    if identifier is not None and (not isinstance(identifier, str) or len(identifier) > MOST_ID):
        raise wrong(("id",), f"Expected a string of at most {MOST_ID} characters.")
    parameters = parameters_of(document, ())
    options, timeout = read_options(parameters, settings, model.schema.target)
    outputs, options = _outputs(document, parameters, outputs_of(model), options)
    blobs = Blobs(memoryview(body)[len(body) if size is None else size :])
    listed = _inputs(document, model)
    shapes = [(item["name"], read_shape(item.get("shape"), ("inputs", item["name"], "shape"))) for item in listed]
    rows = check_inputs(shapes, model.schema, settings.max_rows)
    tensors = [_tensor(item, shape, blobs) for item, (_, shape) in zip(listed, shapes, strict=True)]
    blobs.finish()
    inputs = read_features(tensors, rows, model.schema)
    return InferAsked(inputs, options, timeout, id=identifier, outputs=outputs)


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
    options, timeout = read_options({}, settings, model.schema.target)
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
        check_keys(item, ("inputs", index), ("name", "shape", "datatype", "parameters", "data"))
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
    parameters = parameters_of(item, place)
    check_known(parameters, ("binary_data_size",), (*place, "parameters"))
    if "binary_data_size" not in parameters:
        if "data" not in item:
            raise wrong(place, "The input has neither data nor the parameter binary_data_size.")
        return Tensor(name, datatype, shape, json_values(item["data"], datatype, shape, place))
    if "data" in item:
        raise wrong(place, "The input has data, and the parameter binary_data_size too: one of both is wanted.")
    data = blobs.take(parameters["binary_data_size"], (*place, "parameters", "binary_data_size"))
    return Tensor(name, datatype, shape, binary_values(data, datatype, shape, place))


def _outputs(
    document: Mapping[str, Any], parameters: Mapping[str, Any], table: tuple[Output, ...], options: PredictOptions
) -> tuple[tuple[tuple[Output, bool], ...], PredictOptions]:
    """Returns the wanted outputs, and the options with what they need."""
    default = flag_of(parameters, "binary_data_output", ("parameters",))
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
        check_keys(item, place, ("name", "parameters"))
        name = item.get("name")
        if not isinstance(name, str) or name not in by_name:
            shown = repr(shorten(name)) if isinstance(name, str) else JSON_NAMES.get(type(name), "this")
            raise wrong((*place, "name"), f"There is no output {shown}; there are {', '.join(by_name)}.")
        if name in found:
            raise wrong((*place, "name"), f"The output {name!r} is there twice.")
        output = by_name[name]
        if (reason := output.absence(options)) is not None:
            raise wrong((*place, "name"), f"The output {name!r} {reason}")
        own = parameters_of(item, place)
        check_known(own, ("binary_data",), (*place, "parameters"))
        found[name] = output, flag_of(own, "binary_data", (*place, "parameters"), default=default)
    includes = {output.include for output, _ in found.values()}
    return tuple(found.values()), replace(options, draws="draws" in includes, mc_error="mc_error" in includes)
