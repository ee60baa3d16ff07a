"""The answer to a request for inference: a JSON document, and behind it the outputs that were asked for as bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from murho.service.predict.answers import encode_document
from murho.service.predict.compression import accepted_coding
from murho.service.protocols.binary import LENGTH_HEADER, encode_values
from murho.service.tables.spool import response_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from starlette.responses import Response

    from murho.service.predict.answers import Answered
    from murho.service.protocols.outputs import Values
    from murho.service.protocols.requests import InferAsked
    from murho.service.tables.spool import SpoolRoom

__all__ = ["infer_response", "values_in"]

BINARY = "application/octet-stream"


def values_in(asked: InferAsked) -> int:
    """Returns about how many numbers the answer has."""
    return asked.inputs.count * sum(output.size(asked.options) for output, _ in asked.outputs)


def infer_response(
    asked: InferAsked, answered: Answered, accept_encoding: str, room: SpoolRoom | None = None
) -> Response:
    """Returns the answer; compressed, if the client accepts that. `room`: for a large one (`response_of`)."""
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
        else:
            part["data"] = _flat(values)
        described.append(part)
    pieces: Iterable[bytes] = _document(head, described)
    headers = {"vary": "accept-encoding"}
    if blobs:
        document = b"".join(pieces)
        headers[LENGTH_HEADER] = str(len(document))
        pieces = [document, *blobs]
    media_type = BINARY if blobs else "application/json"
    return response_of(pieces, room, headers, media_type, accepted_coding(accept_encoding))


def _document(head: dict[str, Any], outputs: list[dict[str, Any]]) -> Iterator[bytes]:
    before = orjson.dumps(head)[:-1] + b',"outputs":['
    for output in outputs:
        yield before
        yield from encode_document(output)
        before = b","
    yield b"]}"


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
