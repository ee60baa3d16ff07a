"""`POST /predict` and its longer paths that name the model."""

from functools import partial
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request

from murho.model.errors import Problem
from murho.service.codecs.answer import MAX_WARNINGS, describe_outside, encode_answer
from murho.service.codecs.envelope import parse_document, predict_options
from murho.service.codecs.inputs import parse_inputs
from murho.service.errors import BadInputError, TooLargeError
from murho.service.exchange import in_thread_if_large, read_body, require_json, while_connected
from murho.service.parts import Parts, PartsDependency
from murho.service.predictor import RowsNotFiniteError
from murho.service.responses import JSONBytes

if TYPE_CHECKING:
    from murho.model.data.schema import Schema
    from murho.model.engines.prediction import PredictOptions
    from murho.service.codecs.inputs import Inputs
    from murho.service.predictor import ModelLike
    from murho.service.settings import Settings

__all__ = ["router"]

# Above these sizes, decoding or encoding takes more than a few milliseconds.
LARGE_BODY_BYTES = 256 * 1024
LARGE_ANSWER_VALUES = 50_000

router = APIRouter(tags=["predict"])


@router.post("/predict", summary="Predict with the only model, or the default one")
async def predict(request: Request, parts: PartsDependency) -> JSONBytes:
    """Answers each row with the mean, the standard deviation and percentiles of the posterior predictive."""
    with parts.lifecycle.prediction():
        return await _answer(request, parts, parts.registry.snapshot.find_default(parts.settings.default_model))


@router.post("/models/{name}/predict", summary="Predict with the latest version of a model")
async def predict_with_model(name: str, request: Request, parts: PartsDependency) -> JSONBytes:
    """Answers like POST /predict, from the named model."""
    with parts.lifecycle.prediction():
        return await _answer(request, parts, parts.registry.snapshot.find(name))


@router.post("/models/{name}/versions/{version}/predict", summary="Predict with one version of a model")
async def predict_with_version(name: str, version: str, request: Request, parts: PartsDependency) -> JSONBytes:
    """Answers like POST /predict, from the named version of the named model."""
    with parts.lifecycle.prediction():
        return await _answer(request, parts, parts.registry.snapshot.find(name, version))


async def _answer(request: Request, parts: Parts, model: "ModelLike") -> JSONBytes:
    settings = parts.settings
    deadline = parts.scheduler.clock() + settings.request_timeout
    require_json(request)
    body = await read_body(request, settings.request_timeout)
    decode = partial(_decode, body, model.schema, settings)
    inputs, options = await in_thread_if_large(len(body), LARGE_BODY_BYTES, decode)
    work = parts.predictor.predict(model, inputs.columns, options, max_outside=MAX_WARNINGS + 1, deadline=deadline)
    try:
        answer = await while_connected(request, work)
    except RowsNotFiniteError as error:
        message = "The value is so far outside the training range that the prediction isn't finite."
        raise BadInputError(Problem(inputs.pointer(row, name), message) for row, name in error.cells) from None
    parts.telemetry.record(model.name, model.version, inputs.count, answer)
    warnings = describe_outside(answer.outside, inputs)
    encode = partial(
        encode_answer,
        (model.name, model.version),
        model.schema.target.name,
        options,
        answer.prediction,
        warnings,
    )
    values = inputs.count * (4 + len(options.percentiles) + options.samples * options.draws)
    values += inputs.count * (2 + len(options.percentiles)) * options.mc_error
    return JSONBytes(await in_thread_if_large(values, LARGE_ANSWER_VALUES, encode))


def _decode(body: bytes, schema: "Schema", settings: "Settings") -> "tuple[Inputs, PredictOptions]":
    """Returns the rows and options of a body.

    Raises:
        BadInputError: A row or an option is wrong.
        TooLargeError: The request is above a limit.
    """
    document = parse_document(body)
    options = predict_options(document, settings.samples, settings.max_samples)
    inputs = parse_inputs(document.inputs, schema, settings.max_rows)
    values = inputs.count * options.samples
    if options.draws and values > settings.max_draw_values:
        raise TooLargeError(
            f"The draws of {inputs.count} rows and {options.samples} samples are {values} numbers; this "
            f"service lists at most {settings.max_draw_values}. Send fewer rows, or ask for fewer samples."
        )
    return inputs, options
