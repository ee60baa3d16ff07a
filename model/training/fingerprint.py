"""Fingerprint of a training: the data, options and versions that determine its outcome.

An interrupted training can be resumed if the fingerprint is the same; if not, `differences` lists the changes.
"""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from murho.model.training.options import flag

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from murho.model.data.schema import Columns
    from murho.model.training.options import TrainOptions

__all__ = ["CHANGEABLE", "changes", "differences", "make_fingerprint"]

CHANGEABLE = ("learning_rate", "budget")
"""Options that may change when a training is resumed: a smaller learning rate after a NaN, or another time budget."""


def make_fingerprint(
    columns: Columns,
    targets: NDArray[np.float64],
    target: str,
    options: TrainOptions,
    device: str,
    weights: NDArray[np.float64] | None = None,
) -> dict[str, Any]:
    """The fingerprint of a training.

    Args:
        columns: Canonical columns of the fitted rows, in the order of the table, ``[N]`` each.
        targets: ``[N]``, the target's unit.
        target: The predicted column.
        options: Validated options.
        device: Device of the fit.
        weights: Weights of the rows, ``[N]``; None: there are none.

    Returns:
        sha256 of every column, the options, and the versions of Murho and PyTorch; ready for JSON.
    """
    return {
        "murho": version("murho"),
        "torch": str(torch.__version__),
        "device": device.partition(":")[0],
        "rows": len(targets),
        "target": target,
        "targets": _digest(targets),
        "weights": None if weights is None else _digest(weights),
        "columns": {name: _digest(column) for name, column in columns.items()},
        "options": options.model_dump(mode="json"),
    }


def _digest(column: NDArray[Any]) -> str:
    if column.dtype == object:
        content = json.dumps(column.tolist()).encode()
    else:
        values = np.ascontiguousarray(column)
        content = np.where(np.isnan(values), np.nan, values).tobytes()  # the same bits for every NaN
    return hashlib.sha256(content).hexdigest()


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Reasons why an interrupted training can't be resumed; empty if it can.

    Args:
        then: Fingerprint of the interrupted training, read from JSON.
        now: Fingerprint of the training that is about to start.
    """
    lines = []
    if then["target"] != now["target"]:
        lines.append(f"the target was {then['target']!r}, is {now['target']!r}")
    elif then["rows"] != now["rows"]:
        lines.append(f"the table had {then['rows']} rows with a target, has {now['rows']}")
    else:
        lines += _different_columns(then, now)
    for name in ("murho", "torch"):
        if then[name] != now[name]:
            lines.append(f"{name} was {then[name]}, is {now[name]}")
    if then["device"] != now["device"]:
        lines.append(f"--device was {then['device']}, is {now['device']}")
    lines += [
        f"{flag(name)} was {json.dumps(before)}, is {json.dumps(after)}"
        for name, before, after in _different_options(then, now)
        if name not in CHANGEABLE
    ]
    return lines


def _different_columns(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    before, after = then["columns"], now["columns"]
    lines = [f"column {name!r} is no feature any more" for name in before if name not in after]
    lines += [f"column {name!r} was no feature" for name in after if name not in before]
    lines += [f"column {name!r} has other values" for name in before if after.get(name, before[name]) != before[name]]
    if then["targets"] != now["targets"]:
        lines.append(f"the target {now['target']!r} has other values")
    if then.get("weights") != now.get("weights"):
        lines.append("the weights of the rows are others")
    if not lines and list(before) != list(after):
        lines.append("the columns come in another order")
    return lines


def changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, str]:
    """Changed option of `CHANGEABLE` → its old and its new value, in words."""
    return {
        name: f"{flag(name)} was {json.dumps(before)}, is {json.dumps(after)}"
        for name, before, after in _different_options(then, now)
        if name in CHANGEABLE
    }


def _different_options(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[str, object, object]]:
    before, after = then["options"], now["options"]
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            yield name, before.get(name), after.get(name)
