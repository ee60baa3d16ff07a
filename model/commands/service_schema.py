"""The features of a service's model: its schema, and cells as the service takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from murho.model.data.cells import format_date, parse_date
from murho.model.data.readings import reading_from_json
from murho.model.data.schema import Feature, FeatureKind, Schema, Target

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

__all__ = ["json_cells", "schema_of"]


def schema_of(described: Mapping[str, Any]) -> Schema:
    """The schema of a model, as ``GET /models/{name}`` describes it."""
    target = described["target"]
    classes = target.get("classes")
    return Schema(
        tuple(_feature(item) for item in described["features"]),
        Target(target["name"], target.get("unit"), None if classes is None else tuple(classes)),
        dict(described.get("left_out") or {}),
    )


def _feature(item: dict[str, Any]) -> Feature:
    kind = FeatureKind(item["kind"])

    def bound(value: Any) -> float | None:
        return parse_date(value) if isinstance(value, str) else value

    return Feature(
        name=item["name"],
        kind=kind,
        unit=item["unit"],
        missing=bool(item["missing"]),
        minimum=bound(item["min"]),
        maximum=bound(item["max"]),
        categories=tuple(item["categories"] or ()),
        reading=reading_from_json(item.get("reading"), f"the reading of {item['name']!r}"),
    )


def json_cells(feature: Feature, column: NDArray[Any]) -> list[Any]:
    """The cells of a canonical column, ``[B]``, as a service takes them; None where one is missing."""
    if feature.kind is FeatureKind.CATEGORICAL:
        return list(column)
    cells = column.tolist()
    if feature.kind is FeatureKind.DATE:
        return [None if cell != cell else format_date(cell) for cell in cells]
    if feature.kind is FeatureKind.BOOLEAN:
        return [None if cell != cell else bool(cell) for cell in cells]
    return [None if cell != cell else cell for cell in cells]
