"""The answer to a request for inference: a JSON document, and behind it the outputs that were asked for as bytes.

The outputs of a model are the fields of its answers (`model.predictive.prediction`), as one table of tensors. Requests,
answers and metadata go over the table, and none of them knows whether a model predicts a number or a class.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np
import orjson

from murho.model.predictive.prediction import (
    CLASS_FIELDS,
    EXTRAPOLATION,
    NUMBER_FIELDS,
    AnswerField,
    Axis,
    PredictOptions,
    Unit,
)
from murho.service.predict.answers import Encoded, Result, answer_facts
from murho.service.predict.json_bodies import encode_document
from murho.service.predict.options import ResponseModel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from murho.model.files import JSON

LENGTH_HEADER = "Inference-Header-Content-Length"
LENGTH_BYTES = 4
"""Of each element of BYTES."""
BYTES = "BYTES"
Option: TypeAlias = Literal["percentiles", "thresholds", "samples"]
OPTION_OF_AXIS: dict[Axis, Option] = {
    Axis.LEVELS: "percentiles",
    Axis.THRESHOLDS: "thresholds",
    Axis.SAMPLES: "samples",
}
"""The option whose values, or whose number, an axis goes over."""
EXAMPLES: dict[Option, str] = {"percentiles": "5,50,95", "thresholds": "20,30", "samples": "256"}


class Output(NamedTuple):
    """One output of a model.

    Attributes:
        name: Its name.
        field: The field of the answer.
        classes: Names of the classes; None: the model predicts a number.
        within: The field that it is a part of, such as Monte Carlo errors, which are computed only when asked for.
    """

    name: str
    field: AnswerField
    classes: tuple[str, ...] | None = None
    within: AnswerField | None = None

    @property
    def datatype(self) -> str:
        """Its datatype in the protocol; a class goes by its name."""
        return {Unit.CLASS: BYTES, Unit.CLASS_SET: "BOOL", Unit.TRUTH: "BOOL"}.get(self.field.unit, "FP64")

    @property
    def options(self) -> tuple[Option, ...]:
        """The options that its axes depend on."""
        return tuple(OPTION_OF_AXIS[axis] for axis in self.field.axes if axis in OPTION_OF_AXIS)

    @property
    def include(self) -> str | None:
        """The part of an answer that a request has to name: `draws`, `mc_error` or `extrapolation`."""
        if self.within is not None:
            return self.within.name
        return self.field.name if self.field.name in ("draws", EXTRAPOLATION.name) else None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape in metadata: -1 for each size that depends on the request."""
        return tuple(len(self.classes or ()) if axis is Axis.CLASSES else -1 for axis in self.field.axes)

    @property
    def on_request(self) -> bool:
        """Whether it is there only if the request asks for it, or has an option that it needs."""
        return self.include is not None or "thresholds" in self.options

    def absence(self, options: PredictOptions) -> str | None:
        """Return why a request with these options can't have this output; None if it can."""
        if not self.field.without_draws and not options.samples:
            return "needs draws, and the parameter samples is 0."
        missing = next((name for name in self.options if not getattr(options, name)), None)
        return None if missing is None else f"needs the parameter {missing}, such as {EXAMPLES[missing]!r}."

    def values(self, prediction: Any) -> NDArray[Any]:
        """Its array of a prediction, `[B, …]`, which has it."""
        source = prediction if self.within is None else getattr(prediction, self.within.name)
        found: NDArray[Any] = getattr(source, self.field.name)
        return np.array(self.classes, dtype=object)[found] if self.field.unit is Unit.CLASS else found


@lru_cache(maxsize=64)
def outputs_of(classes: tuple[str, ...] | None) -> tuple[Output, ...]:
    """Return the outputs of a model of a number, or of classes, those first that are there by default."""
    found = []
    for each in (*(NUMBER_FIELDS if classes is None else CLASS_FIELDS), EXTRAPOLATION):
        if each.parts:
            found += [Output(f"{part.name}_{each.name}", part, classes, within=each) for part in each.parts]
        else:
            found.append(Output(each.name, each, classes))
    return tuple(found)


class OutputTensor(ResponseModel):
    """One output."""

    name: str
    datatype: str
    shape: list[int]
    parameters: dict[str, bool | int | float | str] | None = None
    """binary_data_size: bytes behind the JSON."""
    data: list[Any] | None = None
    """The elements, row-major and flat."""


class InferResponse(ResponseModel):
    """An answer."""

    model_name: str
    model_version: str
    id: str | None = None
    parameters: dict[str, bool | int | float | str]
    outputs: list[OutputTensor]


def encode_inference(request_id: str | None, outputs: tuple[tuple[Output, bool], ...], result: Result) -> Encoded:
    """Return the answer.

    Args:
        request_id: The client's name of the request; None: it has none.
        outputs: The wanted outputs, and whether each is to be binary.
        result: The answer.
    """
    head: JSON = {"model_name": result.model.name, "model_version": result.model.version}
    if request_id is not None:
        head["id"] = request_id
    head["parameters"] = _facts(result)
    described, blobs = [], []
    for output, binary in outputs:
        values = output.values(result.prediction)
        part: JSON = {"name": output.name, "datatype": output.datatype, "shape": list(values.shape)}
        if binary:
            blobs.append(pack_values(values))
            part["parameters"] = {"binary_data_size": len(blobs[-1])}
        else:
            part["data"] = values.ravel().tolist() if values.dtype == object else values.ravel()
        described.append(part)
    pieces = _document(head, described)
    if not blobs:
        return Encoded(pieces, "application/json")
    document = b"".join(pieces)
    return Encoded([document, *blobs], "application/octet-stream", {LENGTH_HEADER: str(len(document))})


def pack_values(values: NDArray[Any]) -> bytes:
    """Return the elements in row-major order: numbers and truth values packed, or texts as BYTES."""
    if values.dtype != object:
        return np.ascontiguousarray(values, np.bool_ if values.dtype == np.bool_ else "<f8").tobytes()
    texts = [text.encode() for text in values.ravel()]
    return b"".join(part for text in texts for part in (len(text).to_bytes(LENGTH_BYTES, "little"), text))


def _document(head: JSON, outputs: list[JSON]) -> Iterator[bytes]:
    before = orjson.dumps(head)[:-1] + b',"outputs":['
    for output in outputs:
        yield before
        yield from encode_document(output)
        before = b","
    yield b"]}"


def _facts(result: Result) -> JSON:
    """Return what belongs to the whole answer, in the types that parameters of the protocol can have."""
    facts = answer_facts(result)
    del facts["model"]
    facts["percentiles"] = facts.pop("levels")
    return {name: _parameter(fact) for name, fact in facts.items() if fact not in ((), [])}


def _parameter(fact: Any) -> Any:
    if isinstance(fact, tuple):
        return ",".join(f"{value:.17g}" if not value.is_integer() else f"{value:.0f}" for value in fact)
    return orjson.dumps(fact).decode() if isinstance(fact, list | dict) else fact
