"""Rows and answers as Arrow streams: for large tables, where pyarrow is installed and the service reads Arrow."""

from __future__ import annotations

import io
import json
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import numpy as np

from murho_client._cells import ArrayColumn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from murho_client._data import Batch

__all__ = ["LEAST_CELLS", "MEDIA_TYPE", "arrow_answer", "arrow_body", "is_installed", "query_of"]

MEDIA_TYPE = "application/vnd.apache.arrow.stream"
LEAST_CELLS = 10_000
"""Cells of a request from which on Arrow is quicker: below, both take a few milliseconds."""
FACTS = b"murho"
"""Key of the answer's metadata that has what belongs to the whole answer."""
SPREADS = ("std", "epistemic_std", "aleatoric_std")


def is_installed() -> bool:
    """Whether pyarrow can be imported; it isn't imported for that."""
    return find_spec("pyarrow") is not None


def arrow_body(batch: Batch, names: Sequence[str]) -> bytes | None:
    """The rows as an Arrow stream; None for a column of mixed types, which Arrow has no column for.

    Args:
        batch: The rows.
        names: The columns' names.
    """
    pa = import_module("pyarrow")
    try:
        table = pa.table([_column(pa, column) for column in batch.columns], names=list(names))
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return None
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _column(pa: Any, column: Sequence[Any]) -> Any:
    if isinstance(column, ArrayColumn):
        return pa.array(np.ascontiguousarray(column.values), from_pandas=True)  # NaN and NaT are nulls
    return pa.array(list(column))


def query_of(options: Mapping[str, Any]) -> str:
    """The options as query parameters; lists are separated by commas."""
    return urlencode({name: _text(value) for name, value in options.items()}, safe=",")


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def arrow_answer(body: bytes) -> dict[str, Any] | None:
    """The answer in an Arrow stream, in the form of the JSON answer, with arrays for lists; None for other bytes."""
    pa = import_module("pyarrow")
    try:
        table = pa.ipc.open_stream(body).read_all()
        facts = json.loads(table.schema.metadata[FACTS])
        columns = {name: table.column(name) for name in table.column_names}
        return _document(facts, columns)
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError):
        return None


def _document(facts: Mapping[str, Any], columns: Mapping[str, Any]) -> dict[str, Any]:
    document: dict[str, Any] = {
        name: facts[name] for name in ("model", "target", "samples", "seed", "calibrated", "warnings")
    }
    if "draws" in columns:
        document["draws"] = _nested(columns["draws"])
    return document | (_of_number if facts.get("classes") is None else _of_classes)(facts, columns)


def _of_number(facts: Mapping[str, Any], columns: Mapping[str, Any]) -> dict[str, Any]:
    some = facts["samples"] > 0
    document: dict[str, Any] = {"mean": columns["mean"].to_numpy()}
    for name in SPREADS:
        document[name] = columns[name].to_numpy() if some else None
    levels, thresholds = facts["levels"], facts["thresholds"]
    percentiles = [f"p{_label(level)}" for level in levels]
    document["percentiles"] = {"levels": levels, "values": _matrix(columns, percentiles)} if some and levels else None
    if thresholds:
        values = _matrix(columns, [f"exceedance_{_label(value)}" for value in thresholds]) if some else None
        document["exceedance"] = None if values is None else {"thresholds": thresholds, "values": values}
    if some and "mean_mc_error" in columns:
        document["mc_error"] = {name: columns[f"{name}_mc_error"].to_numpy() for name in ("mean", "std")}
        if levels:
            document["mc_error"]["percentiles"] = _matrix(columns, [f"{name}_mc_error" for name in percentiles])
    return document


def _of_classes(facts: Mapping[str, Any], columns: Mapping[str, Any]) -> dict[str, Any]:
    classes, levels = facts["classes"], facts["levels"]

    def of_classes(prefix: str) -> Any:
        return _matrix(columns, [f"{prefix}_{name}" for name in classes])

    document: dict[str, Any] = {
        "classes": classes,
        "prediction": columns["prediction"].to_pylist(),
        "probabilities": of_classes("p"),
    }
    if not facts["samples"]:
        return document
    document["epistemic_std"] = of_classes("epistemic_std")
    document |= {name: columns[name].to_numpy() for name in ("entropy", "epistemic_entropy")}
    if levels:
        values = np.stack([of_classes(f"p{_label(level)}") for level in levels], axis=2)
        document["percentiles"] = {"levels": levels, "values": values}
    document["prediction_set"] = {"coverage": facts["coverage"], "values": columns["prediction_set"].to_pylist()}
    if f"mc_error_{classes[0]}" in columns:
        document["mc_error"] = {"probabilities": of_classes("mc_error")}
    return document


def _nested(column: Any) -> Any:
    """A column of lists, or of lists of lists, as an array."""
    lists, shape = column.combine_chunks(), [len(column)]
    while hasattr(lists, "flatten") and hasattr(lists.type, "value_type"):
        inner = lists.flatten()
        shape.append(len(inner) // len(lists) if len(lists) else 0)
        lists = inner
    return lists.to_numpy().reshape(shape)


def _label(value: float) -> str:
    """The text of a number in the name of a column, as the service writes it."""
    value = float(value)
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


def _matrix(columns: Mapping[str, Any], names: Sequence[str]) -> Any:
    return np.stack([columns[name].to_numpy() for name in names], axis=1)
