from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from murho.service.errors import BadInputError
from murho.service.protocols.binary import Blobs, binary_values, encode_values, header_length
from murho.service.protocols.tensors import DATATYPES
from tests.service.protocols.support import (
    LENGTH,
    binary,
    error_of,
    outputs,
    row_tensors,
    text_bytes,
    with_blobs,
)

if TYPE_CHECKING:
    from tests.service.support import AppClient

PATH = "/v2/models/cars/infer"


def read(data: bytes, datatype: str, *shape: int) -> Any:
    return binary_values(memoryview(data), datatype, shape, ("inputs", "a"))


@pytest.mark.parametrize("datatype", [name for name, dtype in DATATYPES.items() if dtype is not None])
def test_numbers_are_packed_and_little_endian(datatype: str) -> None:
    values = np.array([0, 1, 1], DATATYPES[datatype])
    found = read(encode_values(values, datatype), datatype, 3, 1)
    assert found.dtype == DATATYPES[datatype]
    np.testing.assert_array_equal(found, values)
    with pytest.raises(BadInputError, match=f"where {datatype} of the shape"):
        read(encode_values(values, datatype) + b"\0", datatype, 3)


def test_texts_have_their_lengths_before_them() -> None:
    values = np.array(["USA", "", "Düsseldorf"], dtype=object)
    encoded = encode_values(values, "BYTES")
    assert encoded == text_bytes(b"USA", b"", "Düsseldorf".encode())
    assert read(encoded, "BYTES", 3).tolist() == ["USA", None, "Düsseldorf"]


@pytest.mark.parametrize(
    ("data", "count", "said"),
    [
        (b"", 1, "at least 4, 4 for the length of each element"),
        (text_bytes(b"ab"), 2, "at least 8"),
        (b"\x03\0\0\0ab", 1, "said to have 3 bytes, and 2 are left"),
        (b"\xff\xff\xff\xff", 1, "said to have 4294967295 bytes, and 0 are left"),
        (text_bytes(b"abcd") + b"\0\0", 2, "said to have 0 bytes, and 0 are left"),
        (text_bytes(b"a", b"b"), 1, "5 bytes are left behind the 1 elements"),
        (text_bytes(b"\xff"), 1, "isn't text in UTF-8"),
        (b"", 10**12, "where BYTES of the shape"),
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


@pytest.mark.parametrize("given", ["", "-1", "1e3", "0x10", "\uff14", "9" * 20, str(2**31), "11"])
def test_a_header_that_is_no_size_within_the_body_is_refused(given: str) -> None:
    with pytest.raises(BadInputError, match="Inference-Header-Content-Length"):
        header_length(given, 10)


def test_a_header_is_the_size_of_the_json() -> None:
    assert header_length(None, 10) is None
    assert header_length(" 10 ", 10) == 10
    assert header_length("0", 10) == 0


def test_blobs_are_taken_in_order_and_add_up() -> None:
    blobs = Blobs(memoryview(b"abc"))
    assert bytes(blobs.take(2, ())) == b"ab"
    for size in (2, -1, True, 1.0, None, "1"):
        with pytest.raises(BadInputError):
            blobs.take(size, ())
    with pytest.raises(BadInputError, match="1 bytes that belong to no tensor"):
        blobs.finish()
    assert bytes(blobs.take(1, ())) == b"c"
    blobs.finish()


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


@pytest.mark.parametrize("length", [str(2**31), "99999999999999999999", "-5", "a"])
def test_a_lying_header_is_an_error_and_the_service_lives(client: AppClient, length: str) -> None:
    assert LENGTH in error_of(client.post(PATH, content=b"{}", headers={LENGTH: length}))
    assert client.get("/v2/health/live").json() == {"live": True}
