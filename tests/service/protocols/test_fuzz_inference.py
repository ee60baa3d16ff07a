"""Whatever tensors, byte counts and headers come, the answer is one or an error of the protocol, and never a 5xx."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from murho.service.protocols.infer_requests import DTYPES
from tests.service.protocols.support import LENGTH, error_of, outputs
from tests.service.support import NAMES, ROW

if TYPE_CHECKING:
    import httpx

    from tests.service.support import AppClient

FUZZ = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
SCALARS: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([*NAMES, *DTYPES, "x", "mean", "std", "draws", "samples"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
SIZES = st.sampled_from([-1, 0, 1, 2, 3, 4, 2**31, 2**62]) | st.integers(0, 40)
SHAPES = st.lists(SIZES, max_size=3) | VALUES
NAMES_OF_INPUTS = st.sampled_from([*NAMES, "x", "y"]) | st.text(max_size=5)
PARAMETERS = st.dictionaries(
    st.sampled_from(["samples", "seed", "percentiles", "noise", "thresholds", "timeout", "binary_data_output", "a"]),
    SCALARS | st.just("5,50"),
    max_size=3,
)
INPUTS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "name": NAMES_OF_INPUTS | VALUES,
            "shape": SHAPES,
            "datatype": st.sampled_from(list(DTYPES)) | VALUES,
            "data": st.lists(SCALARS, max_size=6) | VALUES,
            "parameters": st.fixed_dictionaries({"binary_data_size": SIZES}) | VALUES,
        },
    ),
    max_size=6,
)
OUTPUTS = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from(["mean", "std", "draws", "exceedance", "percentiles", "q"])}),
    max_size=3,
)
DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={"id": VALUES, "inputs": INPUTS | VALUES, "parameters": PARAMETERS | VALUES, "outputs": OUTPUTS | VALUES},
)
LENGTHS = st.none() | st.integers(-2, 400).map(str) | st.text(st.characters(codec="ascii", categories=["L", "N"]))


def check(response: httpx.Response) -> None:
    if response.status_code != 200:
        assert response.status_code in {400, 413}, response.text
        error_of(response, response.status_code)
        return
    assert all(np.isfinite(values).all() for values in outputs(response).values())


def as_json(document: object) -> bytes:
    """As clients write it: NaN and numbers of any size, also where JSON has none."""
    try:
        return orjson.dumps(document)
    except orjson.JSONEncodeError:
        return repr(document).replace("'", '"').replace("None", "null").replace("nan", "NaN").encode()


@given(document=DOCUMENTS, blob=st.binary(max_size=60), length=LENGTHS, model=st.sampled_from(["cars", "numbers"]))
@FUZZ
def test_any_document_and_any_bytes(
    client: AppClient, document: dict[str, Any], blob: bytes, length: str | None, model: str
) -> None:
    text = as_json(document)
    for size in (length, str(len(text))):
        headers = {} if size is None else {LENGTH: size}
        check(client.post(f"/v2/models/{model}/infer", content=text + blob, headers=headers))


@st.composite
def hostile_rows(draw: st.DrawFn) -> tuple[dict[str, Any], bytes]:
    """A good request with one input of any datatype whose bytes, size and shape need not fit."""
    inputs: list[dict[str, Any]] = [
        {"name": name, "shape": [1], "datatype": "BYTES" if isinstance(cell, str) else "FP64", "data": [cell]}
        for name, cell in ROW.items()
    ]
    inputs[2] |= {"datatype": "BOOL"}
    blob = draw(st.binary(max_size=40) | st.lists(st.binary(max_size=4), max_size=3).map(lengths_before))
    size = draw(st.just(len(blob)) | SIZES)
    hostile = draw(st.sampled_from(inputs))
    del hostile["data"]
    hostile |= {
        "datatype": draw(st.sampled_from(list(DTYPES))),
        "shape": draw(st.just([1]) | st.lists(SIZES, min_size=1, max_size=2)),
        "parameters": {"binary_data_size": size},
    }
    return {"inputs": inputs, "parameters": {"samples": draw(st.integers(0, 3))}}, blob


def lengths_before(texts: list[bytes]) -> bytes:
    return b"".join(len(text).to_bytes(4, "little") + text for text in texts)


@given(sent=hostile_rows())
@FUZZ
def test_any_bytes_in_the_place_of_a_feature(client: AppClient, sent: tuple[dict[str, Any], bytes]) -> None:
    document, blob = sent
    text = orjson.dumps(document)
    check(client.post("/v2/models/cars/infer", content=text + blob, headers={LENGTH: str(len(text))}))


@given(values=st.lists(st.floats(width=32), min_size=1, max_size=9), rows=SIZES)
@FUZZ
def test_any_matrix(client: AppClient, values: list[float], rows: int) -> None:
    array = np.array(values, "<f4")
    document = {
        "inputs": [
            {"name": "x", "shape": [rows, 3], "datatype": "FP32", "parameters": {"binary_data_size": array.nbytes}}
        ]
    }
    text = orjson.dumps(document)
    headers = {LENGTH: str(len(text))}
    check(client.post("/v2/models/numbers/infer", content=text + array.tobytes(), headers=headers))
    check(client.post("/v2/models/numbers/infer", content=array.tobytes(), headers={LENGTH: "0"}))


@given(body=st.binary(max_size=60), coding=st.sampled_from(["gzip", "deflate", "identity"]))
@FUZZ
def test_any_body(client: AppClient, body: bytes, coding: str) -> None:
    for path in ("/v2/models/cars/infer", "/v2/repository/index", "/v2/repository/models/boats/unload"):
        response = client.post(path, content=body, headers={"content-encoding": coding})
        assert response.status_code in {200, 400, 404}
        if response.status_code != 200:
            error_of(response, response.status_code)
