"""Whatever bytes, byte count, shape and datatype come for a feature: an answer, or an error of the protocol.

Documents and bodies with faults anywhere are those of `tests.service.mutants`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from murho.service.protocols.infer_requests import DTYPES
from tests.service.protocols.support import binary, error_of, outputs, row_tensors, text_bytes, with_blobs

if TYPE_CHECKING:
    import httpx

    from tests.service.support import AppClient

FUZZ = settings(
    max_examples=250,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
SIZES = st.sampled_from([-1, 0, 1, 2, 3, 4, 2**31, 2**62]) | st.integers(0, 40)


def check(response: httpx.Response) -> None:
    if response.status_code != 200:
        assert response.status_code in {400, 413}, response.text
        error_of(response, response.status_code)
        return
    assert all(np.isfinite(values).all() for values in outputs(response).values())


@st.composite
def hostile_rows(draw: st.DrawFn) -> tuple[dict[str, Any], bytes]:
    """A good request with one input of any datatype whose bytes, size and shape need not fit."""
    inputs = row_tensors()
    blob = draw(
        st.binary(max_size=40) | st.lists(st.binary(max_size=4), max_size=3).map(lambda made: text_bytes(*made))
    )
    hostile = draw(st.sampled_from(inputs))
    del hostile["data"]
    hostile |= {
        "datatype": draw(st.sampled_from(list(DTYPES))),
        "shape": draw(st.just([1]) | st.lists(SIZES, min_size=1, max_size=2)),
        "parameters": {"binary_data_size": draw(st.just(len(blob)) | SIZES)},
    }
    return {"inputs": inputs, "parameters": {"samples": draw(st.integers(0, 3))}}, blob


@given(sent=hostile_rows())
@FUZZ
def test_any_bytes_in_the_place_of_a_feature(client: AppClient, sent: tuple[dict[str, Any], bytes]) -> None:
    check(client.post("/v2/models/cars/infer", **with_blobs(sent[0], sent[1])))


@given(rows=st.lists(st.lists(st.floats(width=32), min_size=3, max_size=3), min_size=1, max_size=3))
@FUZZ
def test_any_numbers_in_a_matrix(client: AppClient, rows: list[list[float]]) -> None:
    matrix = np.array(rows, "<f4")
    document = {"inputs": [binary("x", matrix, "FP32")]}
    check(client.post("/v2/models/numbers/infer", **with_blobs(document, matrix.tobytes())))
