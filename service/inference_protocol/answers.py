"""The answer to a request for inference: a JSON document, and behind it the outputs that were asked for as bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
from starlette.responses import Response

from murho.service.codecs.compression import accepted_coding, compressed
from murho.service.codecs.json_output import encode_document
from murho.service.inference_protocol.binary import LENGTH_HEADER, encode_values

if TYPE_CHECKING:
    from murho.service.codecs.codec import Answered
    from murho.service.inference_protocol.outputs import Values
    from murho.service.inference_protocol.requests import InferAsked

__all__ = ["infer_response", "values_in"]

BINARY = "application/octet-stream"


def values_in(asked: InferAsked) -> int:
    """Returns about how many numbers the answer has."""
    return asked.inputs.count * sum(output.size(asked.options) for output, _ in asked.outputs)


def infer_response(asked: InferAsked, answered: Answered, accept_encoding: str) -> Response:
    """Returns the answer; compressed, if the client accepts that."""
    name, version = answered.model
    head: dict[str, Any] = {"model_name": name, "model_version": version}
    if asked.id is not None:
        head["id"] = asked.id
    head["parameters"] = _facts(answered)
    described, blobs = [], []
    for output, binary in asked.outputs:
        values = output.values(answered.prediction)
        assert values is not None, output.name  # noqa: S101 - the request was refused if it can't be there
        part: dict[str, Any] = {"name": output.name, "datatype": output.datatype, "shape": list(values.shape)}
        if binary:
            blobs.append(encode_values(values, output.datatype))
            part["parameters"] = {"binary_data_size": len(blobs[-1])}
            described.append(orjson.dumps(part))
        else:
            described.append(encode_document(part | {"data": _flat(values)}))
    document = b"".join([orjson.dumps(head)[:-1], b',"outputs":[', b",".join(described), b"]}"])
    headers = {"vary": "accept-encoding"}
    if blobs:
        headers[LENGTH_HEADER] = str(len(document))
    body = b"".join([document, *blobs])
    coding = accepted_coding(accept_encoding)
    if coding is not None and (small := compressed(body, coding)) is not None:
        body, headers["content-encoding"] = small, coding
    return Response(body, headers=headers, media_type=BINARY if blobs else "application/json")


def _flat(values: Values) -> Any:
    """Returns the elements in row-major order, as the encoder takes them."""
    flat = values.ravel()
    return flat.tolist() if flat.dtype == object else flat


def _facts(answered: Answered) -> dict[str, Any]:
    """Returns what belongs to the whole answer, in the types that parameters of the protocol can have."""
    prediction, options = answered.prediction, answered.options
    facts: dict[str, Any] = {
        "target": answered.target,
        "samples": prediction.samples,
        "seed": prediction.seed,
        "calibrated": prediction.calibrated,
        "percentiles": _listed(options.percentiles),
    }
    if prediction.classes is not None:
        facts["classes"] = orjson.dumps(prediction.classes).decode()
        facts["coverage"] = options.coverage
    if options.thresholds:
        facts["thresholds"] = _listed(options.thresholds)
    if answered.warnings:
        facts["warnings"] = orjson.dumps(answered.warnings).decode()
    return facts


def _listed(values: tuple[float, ...]) -> str:
    return ",".join(f"{value:.17g}" if not value.is_integer() else f"{value:.0f}" for value in values)
