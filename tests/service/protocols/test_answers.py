from __future__ import annotations

import gzip
import json
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from murho.model.predictive.prediction import AnswerField, Axis, Prediction, PredictOptions, Unit
from murho.service.predict.answers import Answered
from murho.service.predict.rows import Form, Inputs
from murho.service.protocols.answers import infer_response
from murho.service.protocols.outputs import Output, outputs_of
from murho.service.protocols.requests import InferAsked
from tests.service.protocols.support import LENGTH, text_bytes
from tests.service.support import FakeModel

if TYPE_CHECKING:
    from starlette.responses import Response

LABEL = Output("label", AnswerField("mean", (Axis.ROWS,), Unit.CLASS), ("a", "bé"))
"""Indices of classes, which go by their names; here they come from the mean."""


def answer(*outputs: tuple[Output, bool], rows: int = 2, accept: str = "", offset: Any = 0.1) -> Response:
    inputs = Inputs(Form.MATRIX, {"a": np.zeros(rows)}, rows, ("a",))
    asked = InferAsked(inputs, PredictOptions(), id=None, outputs=outputs)
    prediction = Prediction(0, 7, calibrated=False, mean=np.arange(rows) + offset)
    return infer_response(asked, Answered(("cars", "1"), "y", asked.options, prediction, []), accept)


MEAN = outputs_of(FakeModel())[0]


def test_texts_are_strings_or_bytes() -> None:
    document = json.loads(bytes(answer((LABEL, False), offset=0).body))
    assert document["outputs"] == [{"name": "label", "datatype": "BYTES", "shape": [2], "data": ["a", "bé"]}]
    response = answer((LABEL, True), (MEAN, False), offset=0)
    length = int(response.headers[LENGTH])
    described = json.loads(bytes(response.body)[:length])["outputs"]
    assert described[0]["parameters"] == {"binary_data_size": 12}
    assert described[1]["data"] == [0, 1]
    assert bytes(response.body)[length:] == text_bytes(b"a", "bé".encode())


@pytest.mark.parametrize(
    ("accept", "coding"),
    [
        ("gzip", "gzip"),
        ("deflate", "deflate"),
        ("gzip;q=0, deflate", "deflate"),
        ("deflate, gzip", "gzip"),
        ("br", None),
        ("", None),
    ],
)
def test_an_answer_is_compressed_as_the_client_accepts(accept: str, coding: str | None) -> None:
    plain, response = answer((MEAN, True), rows=500), answer((MEAN, True), rows=500, accept=accept)
    assert response.headers.get("content-encoding") == coding
    assert response.headers[LENGTH] == plain.headers[LENGTH]
    body = bytes(response.body)
    opened = gzip.decompress(body) if coding == "gzip" else zlib.decompress(body) if coding else body
    assert opened == plain.body


def test_a_large_answer_is_the_same_json() -> None:
    document = json.loads(bytes(answer((MEAN, False), rows=20_000).body))
    assert document["outputs"][0]["shape"] == [20_000]
    np.testing.assert_array_equal(document["outputs"][0]["data"], np.arange(20_000) + 0.1)


def test_an_output_says_why_it_is_absent() -> None:
    table = {output.name: output for output in outputs_of(FakeModel())}
    options = PredictOptions(thresholds=(1.0,))
    assert [name for name, output in table.items() if output.absence(options) is not None] == []
    without = replace(options, samples=0)
    assert [name for name, output in table.items() if output.absence(without) is None] == ["mean"]
    assert "thresholds" in str(table["exceedance"].absence(PredictOptions()))
    assert [name for name, output in table.items() if not output.on_request] == [
        "mean",
        "std",
        "epistemic_std",
        "aleatoric_std",
        "percentiles",
    ]
