from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pytest

from murho.model.tables.schema import Feature, FeatureKind, Schema
from murho.service.errors import BadInputError
from murho.service.predict.answers import Terms
from murho.service.protocols.infer_answers import packed
from murho.service.protocols.infer_requests import DTYPES, InferCodec
from murho.service.settings import Settings
from tests.service.protocols.support import (
    binary,
    error_of,
    outputs,
    row_tensors,
    text_bytes,
    with_blobs,
)
from tests.service.support import SCHEMA, AppClient, FakeModel

PATH = "/v2/models/cars/infer"


def read(data: bytes, datatype: str, *shape: int) -> list[Any]:
    """The column of a model of one feature that may be missing, from the bytes of its tensor."""
    kind = FeatureKind.CATEGORICAL if datatype == "BYTES" else FeatureKind.NUMERIC
    if datatype == "BOOL":
        kind = FeatureKind.BOOLEAN
    ends = (None, None) if kind is FeatureKind.CATEGORICAL else (0.0, 1.0)
    categories = ("Europe", "USA") if kind is FeatureKind.CATEGORICAL else ()
    model = FakeModel(schema=Schema((Feature("a", kind, None, True, ends[0], ends[1], categories),), SCHEMA.target, {}))
    tensor = {"name": "a", "shape": shape, "datatype": datatype, "parameters": {"binary_data_size": len(data)}}
    text = orjson.dumps({"inputs": [tensor]})
    asked = InferCodec(str(len(text))).decode(text + data, Terms({}, model.schema, Settings()))
    column: list[Any] = asked.inputs.columns["a"].tolist()
    return column


@pytest.mark.parametrize("datatype", [name for name in DTYPES if name not in ("BYTES", "BF16")])
def test_numbers_are_packed_and_little_endian(datatype: str) -> None:
    values = np.array([0, 1, 1], DTYPES[datatype]).tobytes()
    assert read(values, datatype, 3, 1) == [0, 1, 1]
    with pytest.raises(BadInputError, match=f"where {datatype} of the shape"):
        read(values + b"\0", datatype, 3)


def test_texts_have_their_lengths_before_them() -> None:
    encoded = text_bytes(b"USA", b"", "Düsseldorf".encode())
    assert encoded == packed(np.array(["USA", "", "Düsseldorf"], dtype=object))
    assert read(encoded, "BYTES", 3) == ["USA", None, "Düsseldorf"]


@pytest.mark.parametrize(
    ("data", "count", "said"),
    [
        (b"", 1, "takes 4"),
        (b"\x03\0\0\0ab", 1, "said to have 3 bytes, and 2 are left"),
        (text_bytes(b"abcd") + b"\0\0", 2, "said to have 0 bytes, and 0 are left"),
        (text_bytes(b"a", b"b"), 1, "5 bytes are left behind the 1 elements"),
        (text_bytes(b"\xff"), 1, "isn't text in UTF-8"),
        (text_bytes(b"a" * 65_537), 1, "the text takes 65537 bytes; a cell holds at most 65536"),
    ],
)
def test_texts_that_lie_about_their_length_are_refused(data: bytes, count: int, said: str) -> None:
    with pytest.raises(BadInputError) as caught:
        read(data, "BYTES", count)
    assert said in caught.value.problems[0].message


def test_a_byte_of_a_boolean_is_0_or_1() -> None:
    with pytest.raises(BadInputError, match="0 or 1"):
        read(b"\0\2", "BOOL", 2)


@pytest.mark.parametrize("given", ["", "-1", "1e3", "0x10", "\uff14", "9" * 20, str(2**31)])
def test_a_header_that_is_no_size_within_the_body_is_refused(given: str) -> None:
    with pytest.raises(BadInputError, match="Inference-Header-Content-Length"):
        InferCodec(given).decode(b"{}", Terms({}, FakeModel().schema, Settings()))


def test_binary_inputs_come_in_their_order_between_json_ones(client: AppClient) -> None:
    weight, automatic = np.array([3000.0, 2000.0], "<f4"), np.array([True, False])
    year = text_bytes(b"1975-06-01", b"")
    inputs = [
        row_tensors(2)[4],
        binary("Weight", weight, "FP32"),
        {"name": "Year", "shape": [2, 1], "datatype": "BYTES", "parameters": {"binary_data_size": len(year)}},
        row_tensors(2)[1],
        binary("Automatic", automatic, "BOOL"),
    ]
    blobs = (weight.tobytes(), year, automatic.tobytes())
    response = client.post(PATH, **with_blobs({"inputs": inputs}, *blobs))
    np.testing.assert_array_equal(outputs(response)["mean"], [130.0, 120.0])
    assert "left behind the JSON" in error_of(client.post(PATH, **with_blobs({"inputs": inputs}, *blobs[:2])))
    assert "1 bytes that belong to no tensor" in error_of(
        client.post(PATH, **with_blobs({"inputs": inputs}, *blobs, b"x"))
    )
