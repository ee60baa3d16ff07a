"""The requests of the benchmark: random rows within the training range, as bytes that are ready to be sent."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pyarrow as pa

from murho.model.tables.schema import FeatureKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from murho.model.tables.schema import Schema

__all__ = ["ARROW", "Requests", "arrow_table", "http", "mixed", "oip_body", "records", "rows_of", "stored"]

ARROW = "application/vnd.apache.arrow.stream"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DISTINCT = 64
"""Different rows that one-row requests go round."""
ANY_SEED = 4096
"""Different seeds where every request has a new one: more than a service keeps the draws of."""


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests in a file, one after the other.

    Attributes:
        file: Its path.
        sizes: The length of each, in bytes.
    """

    file: Path
    sizes: tuple[int, ...]


def stored(requests: Sequence[bytes], file: Path) -> Requests:
    """Writes requests to a file."""
    file.write_bytes(b"".join(requests))
    return Requests(file, tuple(map(len, requests)))


def http(path: str, body: bytes, media_type: str = "application/json", accept: str = "application/json") -> bytes:
    """The bytes of a POST request."""
    head = (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: {media_type}\r\naccept: {accept}\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def records(schema: Schema, count: int, seed: int = 0) -> dict[str, list[Any]]:
    """Random columns of plain values, ``[B]`` each, within the training range."""
    rng = np.random.default_rng(seed)
    columns: dict[str, list[Any]] = {}
    for feature in schema.features:
        if feature.kind is FeatureKind.CATEGORICAL:
            columns[feature.name] = rng.choice(feature.categories, count).tolist()
            continue
        low, high = feature.minimum or 0.0, feature.maximum or 0.0
        values = rng.uniform(low, high, count)
        if feature.kind is FeatureKind.BOOLEAN:
            columns[feature.name] = (values > (low + high) / 2).tolist()
        elif feature.kind is FeatureKind.DATE:
            dates = (EPOCH + timedelta(days=round(value)) for value in values)
            columns[feature.name] = [f"{date:%Y-%m-%d}" for date in dates]
        else:
            columns[feature.name] = values.round(3).tolist()
    return columns


def rows_of(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Columns as records."""
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


def arrow_table(schema: Schema, count: int, seed: int = 0) -> bytes:
    """A table of random rows as an Arrow stream; for numeric features alone."""
    batch = pa.record_batch(
        {name: np.array(values, dtype=np.float64) for name, values in records(schema, count, seed).items()}
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def oip_body(schema: Schema, row: Mapping[str, Any]) -> bytes:
    """A request of the Open Inference Protocol, one tensor a feature."""
    inputs = []
    for feature in schema.features:
        text = feature.kind in (FeatureKind.CATEGORICAL, FeatureKind.DATE)
        parameters = {"content_type": "str"} if text else {"content_type": "np"}
        inputs.append(
            {
                "name": feature.name,
                "shape": [1, 1],
                "datatype": "BYTES" if text else "FP64",
                "parameters": parameters,
                "data": [row[feature.name]],
            }
        )
    return orjson.dumps({"inputs": inputs})


def mixed(rows: Sequence[Mapping[str, Any]], *, new_seeds: bool) -> list[dict[str, Any]]:
    """Requests for one row each with different options, and with seeds out of four, or a new one each."""
    rng = np.random.default_rng(0)
    requests: list[dict[str, Any]] = []
    for number in range(ANY_SEED if new_seeds else len(rows) * 4):
        request: dict[str, Any] = {"inputs": [rows[number % len(rows)]], "samples": 256}
        if new_seeds:
            request["seed"] = 1000 + number
        else:
            request["seed"] = int(rng.integers(4))
            request["samples"] = int(rng.choice([64, 256]))
            request["percentiles"] = [[5, 50, 95], [1, 10, 50, 90, 99], [50], []][int(rng.integers(4))]
            request["noise"] = bool(rng.random() < 0.7)
            request["calibrated"] = bool(rng.random() < 0.7)
            if rng.random() < 0.3:
                request["thresholds"] = [20.0, 30.0]
        requests.append(request)
    return requests
