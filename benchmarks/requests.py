"""Requests for a service: rows of a table, or random ones within the training range, as plain values and as bytes."""

from __future__ import annotations

import csv
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from murho.model.tables.schema import FeatureKind, Schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DISTINCT = 64


def schema_of(version: Path) -> Schema:
    """Return the schema of a checkpoint's version."""
    return Schema.from_json(orjson.loads((version / "model.json").read_bytes())["schema"], "schema")


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


def table_records(schema: Schema, path: Path) -> dict[str, list[Any]]:
    """Return the complete rows of a CSV file with numbers, texts and dates, as columns of plain values."""
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if all(row.values())]
    numeric = {feature.name for feature in schema.features if feature.kind is FeatureKind.NUMERIC}
    return {
        feature.name: [float(row[feature.name]) if feature.name in numeric else row[feature.name] for row in rows]
        for feature in schema.features
    }


def rows_of(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Columns as records."""
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


def bodies_of(columns: Mapping[str, Sequence[Any]], rows: int, samples: int) -> list[bytes]:
    """`DISTINCT` different JSON requests with so many rows of some columns each."""
    known = rows_of(columns)
    known *= -(-(rows + DISTINCT) // len(known))
    return [orjson.dumps({"inputs": known[at : at + rows], "samples": samples}) for at in range(DISTINCT)]


def oip_body(schema: Schema, row: Mapping[str, Any]) -> bytes:
    """Return a request of the Open Inference Protocol, one tensor a feature."""
    inputs = []
    for feature in schema.features:
        text = feature.kind in (FeatureKind.CATEGORICAL, FeatureKind.DATE)
        kind, content = ("BYTES", "str") if text else ("FP64", "np")
        tensor = {"name": feature.name, "shape": [1, 1], "datatype": kind, "data": [row[feature.name]]}
        inputs.append({**tensor, "parameters": {"content_type": content}})
    return orjson.dumps({"inputs": inputs})
