"""Reads a folder of ``murho export --to onnx`` without Murho: python read_onnx.py FOLDER RECORDS (JSON)."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from math import cos, inf, pi, sin
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime


def scale(x: float | None, to: dict[str, Any]) -> float:
    """Return a cell in standard deviations from the mean; 0 if it is missing."""
    return 0.0 if x is None else (x - to["mean"]) / to["std"]


def clip(x: float, least: float | None, most: float | None) -> float:
    """Return a number within limits; None: there is no such limit."""
    return min(max(x, -inf if least is None else least), inf if most is None else most)


def encode(row: dict[str, Any], to: dict[str, Any]) -> float:
    """Return one input of the graph, as one entry of ``columns`` in encoding.json says."""
    if "numbers" in to:
        total = sum(each["weight"] * scale(row[name], each) for name, each in to["numbers"].items())
        return clip(total, to["least"], to["most"])
    if "zero" in to:
        return 0.0
    x = row[to["feature"]]
    if "missing" in to or x is None:
        return float("missing" in to and x is None)
    if "slope" in to:
        return (clip(scale(x, to), to["floor"], to["ceiling"]) - to["offset"]) * to["slope"]
    if "part" in to:
        day = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=round(x * 86_400))
        share = {"month": (day.month - 1) / 12, "weekday": day.weekday() / 7, "hour": day.hour / 24}[to["part"]]
        return (sin if to["wave"] == "sine" else cos)(2 * pi * share)
    return float(x == to["is"] if "is" in to else x not in to["none_of"])


if __name__ == "__main__":
    folder, records = Path(sys.argv[1]), json.loads(sys.argv[2])
    columns = json.loads((folder / "encoding.json").read_text())["columns"]
    rows = np.array([[encode(row, to) for to in columns] for row in records], dtype=np.float32)
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    names = [each.name for each in session.get_outputs()]
    answer = zip(names, session.run(names, {"rows": rows}), strict=True)
    print(json.dumps({name: values.tolist() for name, values in answer}))
