"""Requests of the Open Inference Protocol: each form is read, and what does not fit is an error of the protocol.

Documents and bodies with faults anywhere are those of `tests.service.mutants`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pytest

from murho.model.tables.schema import Feature, FeatureKind, Schema
from murho.service.errors import BadInputError
from murho.service.predict.answers import Terms
from murho.service.protocols.infer_answers import pack_values
from murho.service.protocols.infer_requests import DTYPES, InferCodec
from murho.service.settings import Settings
from tests.service.protocols.support import (
    LENGTH,
    binary,
    error_of,
    infer,
    outputs,
    row_tensors,
    tensor,
    text_bytes,
    with_blobs,
)
from tests.service.support import SCHEMA, AppClient, FakeModel, make_client

MATRIX = np.array([[3000.0, 100.0, 1.0], [2000.0, np.nan, 0.0]])
PATH = "/v2/models/numbers/infer"


def test_the_facts_of_the_answer_are_its_parameters(client: AppClient) -> None:
    parameters = {"samples": 3, "seed": 9, "percentiles": "2.5, 50", "thresholds": 20, "calibrated": True}
    document = infer(client, row_tensors(Weight={"data": [9000.0]}), id="a", parameters=parameters).json()
    warnings = document["parameters"].pop("warnings")
    assert "/inputs/Weight/0" in warnings
    assert document["id"] == "a"
    assert document["model_name"] == "cars"
    assert document["model_version"] == "1"
    assert document["parameters"] == {
        "target": "Consumption",
        "samples": 3,
        "seed": 9,
        "calibrated": True,
        "percentiles": "2.5,50",
        "thresholds": "20",
    }
    assert [output["name"] for output in document["outputs"]][-2:] == ["percentiles", "exceedance"]
    assert "id" not in infer(client, row_tensors()).json()


def test_without_draws_there_is_the_mean_alone(client: AppClient) -> None:
    assert list(outputs(infer(client, row_tensors(), parameters={"samples": 0}))) == ["mean"]
    error = error_of(infer(client, row_tensors(), parameters={"samples": 0}, outputs=[{"name": "std"}]))
    assert error == "/outputs/0/name: The output 'std' needs draws, and the parameter samples is 0."


def test_one_matrix_has_all_features_that_are_numbers(client: AppClient) -> None:
    as_json = {"name": "x", "shape": [2, 3], "datatype": "FP64", "data": [3000, 100, 1, 2000, None, 0]}
    nested = as_json | {"data": [[3000, 100, 1], [2000, None, 0]]}
    expected = [130.0, 20.0]
    for sent in (as_json, nested):
        np.testing.assert_array_equal(outputs(infer(client, [sent], "numbers"))["mean"], expected)
    for datatype, dtype in (("FP64", "<f8"), ("FP32", "<f4"), ("FP16", "<f2")):
        values = MATRIX.astype(dtype)
        response = client.post(PATH, **with_blobs({"inputs": [binary("x", values, datatype)]}, values.tobytes()))
        np.testing.assert_array_equal(outputs(response)["mean"], expected)
    upper = (MATRIX.astype("<f4").view("<u4") >> 16).astype("<u2")
    response = client.post(PATH, **with_blobs({"inputs": [binary("x", upper, "BF16")]}, upper.tobytes()))
    assert outputs(response)["mean"] == pytest.approx(expected, rel=0.01)


def test_a_model_of_numbers_takes_one_tensor_a_feature_too(client: AppClient) -> None:
    power = np.array([[100], [90]], "<i2")
    inputs = [
        tensor("Automatic", [True, False], "BOOL"),
        binary("Horsepower", power, "INT16"),
        tensor("Weight", [[3000], [2000]], "UINT32", shape=[2, 1]),
    ]
    response = client.post(PATH, **with_blobs({"inputs": inputs}, power.tobytes()))
    np.testing.assert_array_equal(outputs(response)["mean"], [130.0, 110.0])


def test_a_body_may_be_the_matrix_alone(client: AppClient) -> None:
    response = client.post(PATH, content=MATRIX.tobytes(), headers={LENGTH: "0"})
    assert response.headers["content-type"] == "application/octet-stream"
    np.testing.assert_array_equal(outputs(response)["mean"], [130.0, 20.0])
    error = error_of(client.post(PATH, content=MATRIX.tobytes()[:-1], headers={LENGTH: "0"}))
    assert error == "/inputs/x: There are 47 bytes, where FP64 of the shape [1, 3] takes 24."
    error = error_of(client.post("/v2/models/cars/infer", content=MATRIX.tobytes(), headers={LENGTH: "0"}))
    assert "models with one input" in error
    assert "The body is empty" in error_of(client.post(PATH, content=b"", headers={LENGTH: "0"}))


def test_nan_in_json_is_a_missing_value(client: AppClient) -> None:
    inputs = b'[{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [3000, NaN, 1]}]'
    text = b'{"id": "NaN \\" NaN", "inputs": ' + inputs + b"}"
    response = client.post(PATH, content=text)
    assert response.json()["id"] == 'NaN " NaN'
    assert outputs(response)["mean"] == [30.0]
    for broken in (text.replace(b"NaN, 1", b"Infinity, 1"), text[:-1], b'{"inputs": [NaN, "' + b'\\"' * 100_000):
        assert "isn't valid JSON" in error_of(client.post(PATH, content=broken))


def test_a_missing_text_is_null_or_empty(client: AppClient) -> None:
    for missing in (None, ""):
        found = outputs(infer(client, row_tensors(Year={"data": [missing]})))
        np.testing.assert_array_equal(found["mean"], [130.0])
        error = error_of(infer(client, row_tensors(1, **{"Origin/plant": {"data": [missing]}})))
        assert error.startswith("/inputs/Origin~1plant/0: ")
        assert "isn't accepted: 'Origin/plant' had no missing cells in training" in error


def test_a_number_is_a_category(client: AppClient) -> None:
    for data, datatype, named in (([0.1], "FP32", "'0.1'"), ([4.0], "FP64", "'4'"), ([7], "INT8", "'7'")):
        sent = {"Origin/plant": {"data": data, "datatype": datatype}}
        assert named in infer(client, row_tensors(1, **sent)).json()["parameters"]["warnings"]


def test_whole_numbers_keep_their_digits_beside_null() -> None:
    schema = replace(SCHEMA, features=tuple(replace(each, missing=True) for each in SCHEMA.features))
    model = FakeModel(schema=schema)
    sent = {"Origin/plant": {"data": [2**53 + 1, None], "datatype": "INT64"}}
    with make_client(model) as client:
        outputs(infer(client, row_tensors(2, Weight={"data": [3000, None], "datatype": "INT64"}, **sent)))
    assert model.asked["Origin/plant"].tolist() == ["9007199254740993", None]
    np.testing.assert_array_equal(model.asked["Weight"], [3000.0, np.nan])


def x_with(**changes: Any) -> dict[str, Any]:
    """Return a good request of one matrix, with changes to its tensor."""
    return {"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP64", "data": [3000, 100, 1], **changes}]}


def asking(**parts: Any) -> dict[str, Any]:
    return {**x_with(), **parts}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], "Expected a JSON object such as"),
        (asking(input=1), "/input: There is no key 'input' here. Did you mean 'inputs'?"),
        (x_with(shape=[True, 3]), "/inputs/x/shape/0: Expected a whole number, not a boolean."),
        (x_with(shape=[0, 3], data=[]), "/inputs: The tensors have no rows"),
        (x_with(shape=[2, 3]), "/inputs/x: There are 3 values, where the shape [2, 3] has 6."),
        (x_with(data=[[1, 2]]), "/inputs/x/0: Expected a list of values, as the shape [1, 3] says."),
        (x_with(data=[1, 2, 3]), "/inputs/x/0/2: Expected 0 or 1, not 3."),
        (x_with(datatype="INT8"), "/inputs/x: A number doesn't fit into INT8."),
        (x_with(datatype="INT64", data=[1, 2, 1.5]), "/inputs/x/2: Expected a whole number"),
        (x_with(datatype="BF16"), "/inputs/x: BF16 tensors have to be sent as binary data."),
        (x_with(data=None), "/inputs/x: The input has neither data nor"),
        (x_with(parameters={"binary_data_size": 24}), "/inputs/x: The input has both data and"),
        (asking(parameters={"percentiles": "5;50"}), "/parameters/percentiles/0: Expected a number"),
        (
            asking(outputs=[{"name": "mean", "parameters": {"binary_data": "no"}}]),
            "/outputs/0/parameters/binary_data: Expected true or false",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_place(client: AppClient, document: Any, said: str) -> None:
    error = error_of(client.post(PATH, document))
    assert error.startswith(said), error


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"Weight": {"datatype": "BYTES", "data": ["3000"]}},
            "/inputs/Weight: 'Weight' is numeric: it takes a datatype",
        ),
        (
            {"Weight": {"shape": [1, 2], "data": [1, 2]}},
            "/inputs/Weight: The shape is [1, 2], where [1] or [1, 1] is expected.",
        ),
        (
            {"Weight": {"shape": [2], "data": [1, 2]}},
            "/inputs/Horsepower: The shape is [1], where [2] or [2, 1] is expected.",
        ),
        (
            {"Origin/plant": {"datatype": "BOOL", "data": [True]}},
            "/inputs/Origin~1plant: 'Origin/plant' is categorical",
        ),
        (
            {"Weight": {"name": "Weights"}},
            "/inputs/Weights: 'Weights' is not a feature of this model. Did you mean 'Weight'",
        ),
        ({"Weight": {"name": "Consumption"}}, "/inputs/Weight: The feature 'Weight' is absent"),
        ({"Weight": {"name": "Year"}}, "/inputs/Year: There is more than one column of this name."),
    ],
)
def test_a_tensor_that_does_not_fit_its_feature_is_refused(
    client: AppClient, changes: dict[str, Any], said: str
) -> None:
    error = error_of(infer(client, row_tensors(**changes)))
    assert said in error, error


def test_values_far_outside_are_pointed_at(client: AppClient) -> None:
    far = 1.79e308
    matrix = {"name": "x", "shape": [2, 3], "datatype": "FP64", "data": [3000, 100, 1, 3000, 1e300, 1]}
    assert "/inputs/x/1/1" in infer(client, [matrix], "numbers").json()["parameters"]["warnings"]
    error = error_of(infer(client, [matrix | {"data": [3000, 100, 1, far, far, 1]}], "numbers"))
    assert "/inputs/x/1/0: The value is so far outside" in error
    error = error_of(infer(client, row_tensors(2, Weight={"data": [far, 1]}, Horsepower={"data": [far, 1]})))
    assert "/inputs/Weight/0: The value is so far outside" in error


def test_limits_are_those_of_predict(client: AppClient) -> None:
    row = [3000.0, 100.0, 1.0]
    many = {"name": "x", "shape": [1001, 3], "datatype": "FP64", "data": row * 1001}
    assert "at most 1000" in error_of(infer(client, [many], "numbers"), 413)
    huge = {"name": "x", "shape": [10**11, 3], "datatype": "FP64", "data": row}
    assert "at most 1000" in error_of(infer(client, [huge], "numbers"), 413)
    long = b'{"inputs": [' + b"[]," * 2_000_000 + b"[]]}"
    assert "binary tensors" in error_of(client.post(PATH, content=long), 413)
    deep = b'{"inputs": ' + b"[" * 40_000 + b"]" * 40_000 + b"}"
    assert "isn't valid JSON" in error_of(client.post(PATH, content=deep))


def test_what_clients_of_other_servers_add_is_no_error(client: AppClient) -> None:
    inputs = row_tensors(Weight={"parameters": {"content_type": "np"}}, Year={"parameters": None})
    assert infer(client, inputs, parameters={"content_type": "pd", "timeout": 0}).status_code == 200


CARS = "/v2/models/cars/infer"


def read(data: bytes, datatype: str, *shape: int) -> list[Any]:
    """Return the column of a model of one feature that may be missing, from the bytes of its tensor."""
    kind = FeatureKind.CATEGORICAL if datatype == "BYTES" else FeatureKind.NUMERIC
    if datatype == "BOOL":
        kind = FeatureKind.BOOLEAN
    ends = (None, None) if kind is FeatureKind.CATEGORICAL else (0.0, 1.0)
    categories = ("Europe", "USA") if kind is FeatureKind.CATEGORICAL else ()
    model = FakeModel(schema=Schema((Feature("a", kind, None, True, ends[0], ends[1], categories),), SCHEMA.target, {}))
    tensor = {"name": "a", "shape": shape, "datatype": datatype, "parameters": {"binary_data_size": len(data)}}
    text = orjson.dumps({"inputs": [tensor]})
    parsed = InferCodec(str(len(text))).decode(text + data, Terms({}, model.schema, Settings()))
    column: list[Any] = parsed.inputs.columns["a"].tolist()
    return column


@pytest.mark.parametrize("datatype", [name for name in DTYPES if name not in ("BYTES", "BF16")])
def test_numbers_are_packed_and_little_endian(datatype: str) -> None:
    values = np.array([0, 1, 1], DTYPES[datatype]).tobytes()
    assert read(values, datatype, 3, 1) == [0, 1, 1]
    with pytest.raises(BadInputError, match=f"where {datatype} of the shape"):
        read(values + b"\0", datatype, 3)


def test_texts_have_their_lengths_before_them() -> None:
    encoded = text_bytes(b"USA", b"", "Düsseldorf".encode())
    assert encoded == pack_values(np.array(["USA", "", "Düsseldorf"], dtype=object))
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
    response = client.post(CARS, **with_blobs({"inputs": inputs}, *blobs))
    np.testing.assert_array_equal(outputs(response)["mean"], [130.0, 120.0])
    assert "left behind the JSON" in error_of(client.post(CARS, **with_blobs({"inputs": inputs}, *blobs[:2])))
    assert "1 bytes that belong to no tensor" in error_of(
        client.post(CARS, **with_blobs({"inputs": inputs}, *blobs, b"x"))
    )
