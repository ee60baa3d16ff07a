"""Totals: the sum, the mean or a count over the rows of each group, with error bars."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from murho_client._cells import json_cells
from murho_client._errors import InvalidInput, Problem
from murho_client._model import Model, fitted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from murho_client._data import Batch

__all__ = ["Totals", "totals_request"]


@dataclass(frozen=True, eq=False)
class Totals:
    """Totals of G groups in the order of first rows, ``[G]``, or of a classifier's C classes, ``[G, C]``.

    Attributes:
        model: Name of the model.
        version: Its version.
        target: Name of the target.
        statistic: What was added up: ``sum``, ``mean``, ``count_above`` or ``count``.
        groups: The label of each group, a tuple with one entry for each of ``by``.
        rows: Number of rows of each group, ``[G]``.
        classes: The classes; None for numbers.
        mean: In the target's unit, or counts.
        std: The standard deviation; None without draws, as the next three.
        epistemic_std: Its part that the rows share.
        aleatoric_std: Its part from the noise of the rows.
        percentiles: Level → percentiles.
        exceedance: Threshold → the probability that a total exceeds it; None if not asked for.
        calibrated: Whether the spread is calibrated.
        warnings: What is unusual, in words.
    """

    model: str
    version: str
    target: str
    statistic: str
    groups: list[tuple[Any, ...]]
    rows: NDArray[np.int64]
    classes: list[str] | None
    mean: NDArray[np.float64]
    std: NDArray[np.float64] | None
    epistemic_std: NDArray[np.float64] | None
    aleatoric_std: NDArray[np.float64] | None
    percentiles: Mapping[float, NDArray[np.float64]] | None
    exceedance: Mapping[float, NDArray[np.float64]] | None
    calibrated: bool
    warnings: list[str]

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """From the JSON answer of a service."""

        def numbers(name: str) -> NDArray[np.float64] | None:
            return None if document[name] is None else np.array(document[name], dtype=np.float64)

        def by_value(name: str, key: str) -> Mapping[float, NDArray[np.float64]] | None:
            found = document.get(name)
            if found is None:
                return None
            values = np.array(found["values"], dtype=np.float64)
            return {value: values[..., place] for place, value in enumerate(found[key])}

        return cls(
            document["model"]["name"],
            document["model"]["version"],
            document["target"],
            document["statistic"],
            [tuple(label) for label in document["groups"]],
            np.array(document["rows"], dtype=np.int64),
            document.get("classes"),
            np.array(document["mean"], dtype=np.float64),
            numbers("std"),
            numbers("epistemic_std"),
            numbers("aleatoric_std"),
            by_value("percentiles", "levels"),
            by_value("exceedance", "thresholds"),
            document["calibrated"],
            [warning["message"] for warning in document["warnings"]],
        )


def totals_request(batch: Batch, model: Model | None, by: Sequence[str], given: Mapping[str, object]) -> dict[str, Any]:
    """The rows, how they are grouped, and what else is said of them, as keys of the request.

    Args:
        batch: The rows.
        model: The model; None: it has all columns.
        by: Columns.
        given: ``statistic`` and ``threshold``; ``weights`` and ``units``, each a column or one entry a row.

    Raises:
        InvalidInput: A column is missing, or rows are grouped by several columns that are no features.
    """
    columns = dict(zip(batch.names or (), batch.columns, strict=True))
    features = {feature.name for feature in model.features} if model is not None else {*columns}
    request = {key: value for key, value in given.items() if value is not None}
    lists = {key: value for key, value in request.items() if key in ("weights", "units")}
    named = {key: value for key, value in lists.items() if isinstance(value, str)}
    for name in (*by, *named.values()):
        if name not in columns:
            raise InvalidInput([Problem(f"There is no column {name!r}.", feature=name)])
    for key, value in lists.items():
        request[key] = json_cells(columns[named[key]] if key in named else np.asarray(value))
    if all(name in features for name in by):
        request["by"] = list(by)
    elif len(by) == 1:
        request["groups"] = json_cells(columns[by[0]])
    else:
        raise InvalidInput([Problem("Group by features, or by one other column.", feature=by[0])])
    unused = {*by, *named.values()} - features
    if unused:
        kept = [name for name in columns if name not in unused]
        batch = replace(batch, names=tuple(kept), columns=[columns[name] for name in kept])
    return {"inputs": (batch if model is None else fitted(batch, model)).inputs(), **request}
