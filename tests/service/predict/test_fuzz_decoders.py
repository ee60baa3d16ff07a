"""Every decoder on any bytes, on good ones with a fault in them, and on good ones: it reads or refuses, never fails."""

from __future__ import annotations

import gzip
import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from murho.model.errors import MurhoError
from murho.service.predict.compression import decompressed
from murho.service.predict.formats import reader_of
from murho.service.settings import Settings
from tests.service.support import NAMES, SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable

FUZZ = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
LIMITS = Settings(max_body_bytes=10**6, max_rows=1000)

CELLS: dict[str, st.SearchStrategy[Any]] = {
    "Weight": st.floats(-1e6, 1e6),
    "Horsepower": st.none() | st.floats(0.0, 500.0),
    "Automatic": st.booleans(),
    "Year": st.none() | st.dates().map(str),
    "Origin/plant": st.sampled_from(["Europe", "USA", "Ünknown"]),
}
ROWS = st.lists(st.fixed_dictionaries(CELLS), min_size=1, max_size=5)


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    types = [pa.float64(), pa.float64(), pa.bool_(), pa.string(), pa.string()]
    arrays = [pa.array([row[name] for row in rows], kind) for name, kind in zip(NAMES, types, strict=True)]
    return pa.table(dict(zip(NAMES, arrays, strict=True)))


def as_json(rows: list[dict[str, Any]]) -> bytes:
    return json.dumps({"inputs": rows}).encode()


def as_csv(rows: list[dict[str, Any]]) -> bytes:
    sink = io.BytesIO()
    pa.csv.write_csv(table_of(rows), sink)
    return sink.getvalue()


def as_arrow(rows: list[dict[str, Any]]) -> bytes:
    sink, table = io.BytesIO(), table_of(rows)
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def as_parquet(rows: list[dict[str, Any]]) -> bytes:
    sink = io.BytesIO()
    pa.parquet.write_table(table_of(rows), sink)
    return sink.getvalue()


def as_npy(rows: list[dict[str, Any]]) -> bytes:
    sink = io.BytesIO()
    np.save(sink, np.array([[row["Weight"]] * len(NAMES) for row in rows]))
    return sink.getvalue()


FORMS: dict[str, Callable[[list[dict[str, Any]]], bytes]] = {
    "application/json": as_json,
    "text/csv": as_csv,
    "application/vnd.apache.arrow.stream": as_arrow,
    "application/vnd.apache.parquet": as_parquet,
    "application/x-npy": as_npy,
}
READS_EVERY_FEATURE = [name for name in FORMS if name != "application/x-npy"]
"""An array of numbers has no place for texts and dates."""


def decode(media_type: str, body: bytes, query: dict[str, str] | None = None) -> int | None:
    """Number of rows; None where the request is refused."""
    try:
        inputs = reader_of(media_type).decode(body, query or {}, SCHEMA, LIMITS).inputs
    except MurhoError:
        return None
    assert set(inputs.columns) == set(NAMES)
    assert {len(column) for column in inputs.columns.values()} == {inputs.count}
    return inputs.count


@pytest.mark.parametrize("media_type", READS_EVERY_FEATURE)
@FUZZ
@given(rows=ROWS)
def test_good_rows_are_read(media_type: str, rows: list[dict[str, Any]]) -> None:
    assert decode(media_type, FORMS[media_type](rows)) == len(rows)


@pytest.mark.parametrize("media_type", FORMS)
@FUZZ
@given(body=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(media_type: str, body: bytes) -> None:
    decode(media_type, body)


@pytest.mark.parametrize("media_type", FORMS)
@FUZZ
@given(rows=ROWS, data=st.data())
def test_a_fault_anywhere_is_read_or_refused(media_type: str, rows: list[dict[str, Any]], data: st.DataObject) -> None:
    body = bytearray(FORMS[media_type](rows))
    where = data.draw(st.integers(0, len(body) - 1))
    kind = data.draw(st.sampled_from(["change", "cut", "insert", "remove"]))
    if kind == "change":
        body[where] ^= data.draw(st.integers(1, 255))
    elif kind == "cut":
        del body[where:]
    elif kind == "insert":
        body[where:where] = data.draw(st.binary(min_size=1, max_size=8))
    else:
        del body[where : where + data.draw(st.integers(1, 16))]
    decode(media_type, bytes(body))


@pytest.mark.parametrize("media_type", FORMS)
@FUZZ
@given(
    query=st.dictionaries(
        st.sampled_from(["samples", "percentiles", "seed", "noise", "calibrated", "thresholds", "include"])
        | st.text(max_size=5),
        st.text(max_size=12) | st.sampled_from(["0", "true", "5,50", "1e400", "-1", "draws,mc_error", "9" * 30]),
        max_size=3,
    )
)
def test_any_options_are_read_or_refused(media_type: str, query: dict[str, str]) -> None:
    row = {"Weight": 3000.0, "Horsepower": None, "Automatic": True, "Year": None, "Origin/plant": "USA"}
    decode(media_type, FORMS[media_type]([row]), query)


@FUZZ
@given(body=st.binary(max_size=200), whole=st.booleans())
def test_any_compressed_bytes_are_read_or_refused(body: bytes, whole: bool) -> None:
    sent = gzip.compress(body) if whole else b"\x1f\x8b\x08" + body
    try:
        read = decompressed(sent, "gzip", LIMITS.max_body_bytes)
    except MurhoError:
        read = None
    assert read == body or not whole
