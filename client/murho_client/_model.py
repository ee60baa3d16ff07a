"""Models as the service describes them, and rows in the form that a model takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from murho_client._cells import Column, json_cells
from murho_client._data import Batch
from murho_client._errors import InvalidInput, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Feature", "Model", "ModelSummary", "prepare_batch", "record"]


@dataclass(frozen=True)
class Feature:
    """One input column of a model.

    Attributes:
        name: The column's name.
        kind: `numeric`, `boolean`, `date` or `categorical`.
        unit: Unit of the numbers, if one is known.
        min: Smallest training value; a date is ISO 8601 text. None for categories.
        max: Largest training value, as for the smallest.
        categories: The training categories; None unless categorical.
        missing: Whether missing cells are accepted. If none was missing in training, the answer averages over what the
            cell may have been, and a warning says so.
        reading: How texts of this feature are read, such as `$3,504.00`; None if only plain cells are. Plain numbers
            and ISO 8601 dates are read in any case.
    """

    name: str
    kind: str
    unit: str | None = None
    min: float | str | None = None
    max: float | str | None = None
    categories: tuple[str, ...] | None = None
    missing: bool = False
    reading: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, described: Mapping[str, Any]) -> Feature:
        """Read one entry of `features`."""
        known = {name: described[name] for name in cls.__dataclass_fields__ if name in described}
        if known.get("categories") is not None:
            known["categories"] = tuple(map(str, known["categories"]))
        return cls(**known)


@dataclass(frozen=True)
class ModelSummary:
    """A model in the list of the service. `Client.model` describes it in full.

    Attributes:
        name: Name of the model.
        version: The version that is described; in a list the latest.
        versions: All versions that can be asked for.
        task: `regression` or `classification`.
        target: Name of the predicted column.
        unit: Unit of the target, if one is known.
        classes: The classes of a classifier; None for a regression.
        metrics: Figures on held-out rows.
        raw: All that the service says about the model.
    """

    name: str
    version: str
    versions: tuple[str, ...]
    task: str
    target: str
    unit: str | None
    classes: tuple[str, ...] | None
    metrics: Mapping[str, Any] = field(repr=False)
    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def of(cls, described: Mapping[str, Any]) -> ModelSummary:
        """Read one entry of the answer of `GET /models`.

        Raises:
            AttributeError, KeyError, TypeError: A key is missing, or its value has another form.
        """
        return cls(**_facts(described))


@dataclass(frozen=True)
class Model(ModelSummary):
    """A model that the service offers, in full.

    Attributes:
        features: The input columns in schema order.
    """

    features: tuple[Feature, ...]

    @classmethod
    def of(cls, described: Mapping[str, Any]) -> Model:
        """Read the answer of `GET /models/NAME`; see `ModelSummary.of`."""
        return cls(**_facts(described), features=tuple(map(Feature.of, described["features"])))


def _facts(described: Mapping[str, Any]) -> dict[str, Any]:
    """Return what lists and descriptions of models have in common."""
    target = described["target"]
    classes = target.get("classes")
    return {
        "name": str(described["name"]),
        "version": str(described["version"]),
        "versions": tuple(map(str, described.get("versions") or [described["version"]])),
        "task": str(described["task"]),
        "target": str(target["name"]),
        "unit": target.get("unit"),
        "classes": None if classes is None else tuple(map(str, classes)),
        "metrics": described.get("metrics") or {},
        "raw": described,
    }


def prepare_batch(batch: Batch, model: Model | None) -> Batch:
    """Return the rows without the target's column, with names, and with truth values where features have them.

    Without a description of the model they stay as they are. Whether they have the features of the model, with cells of
    the right kind, says the service.
    """
    if model is None:
        return batch
    kinds = {feature.name: feature.kind for feature in model.features}
    names = batch.names
    if names is None:
        if len(batch.columns) != len(kinds):
            return batch
        names = tuple(kinds)
    columns = {
        name: _as_kind(kinds.get(name), column)
        for name, column in zip(names, batch.columns, strict=True)
        if name in kinds or name != model.target
    }
    return Batch(tuple(columns), list(columns.values()), batch.rows, batch.labels)


def record(batch: Batch, model: Model | None) -> dict[str, Any]:
    """Return the single row as an object, in the form of the model.

    Raises:
        InvalidInput: There are other rows, or cells without names.
    """
    sent = prepare_batch(batch, model)
    if sent.names is None or sent.rows != 1:
        raise InvalidInput([Problem("Give one row, as a dict with a value for each feature.", feature="row")])
    return {name: cells[0] for name, cells in dict(sent.inputs()).items()}


def _as_kind(kind: str | None, column: Column) -> Column:
    """Return the column with truth values where the feature has them, and with none where it has categories."""
    if kind == "boolean":  # True == 1, so this is all of True, False, 0 and 1
        return [bool(cell) if cell in (0, 1) else cell for cell in json_cells(column)]
    if kind == "categorical":
        return [str(cell).lower() if isinstance(cell, bool) else cell for cell in json_cells(column)]
    return column
