"""An example request for a model: one row, and the curl command that sends it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import orjson

from murho.model.tables.cells import format_date
from murho.model.tables.schema import FeatureKind

if TYPE_CHECKING:
    from murho.model.tables.schema import Feature
    from murho.service.engine.jobs import ModelLike

__all__ = ["curl_line", "example_row"]


def example_row(model: ModelLike) -> dict[str, Any]:
    """Returns one row that the model accepts: the checkpoint's stored training row, else the middle of each range."""
    stored = model.spec.training.get("example")
    names = [feature.name for feature in model.schema.features]
    if isinstance(stored, dict) and list(stored) == names:
        return stored
    return {feature.name: _middle(feature) for feature in model.schema.features}


def curl_line(model: ModelLike, address: str) -> str:
    """Returns a shell command that sends the example row to a model of the service at an address."""
    body = orjson.dumps({"inputs": [example_row(model)]}).decode()
    path = f"{address}/models/{model.name}/predict"
    return f"curl -s {path} -H 'content-type: application/json' -d {shlex.quote(body)}"


def _middle(feature: Feature) -> Any:
    if feature.kind is FeatureKind.CATEGORICAL:
        return feature.categories[0] if feature.categories else None
    if feature.minimum is None or feature.maximum is None:
        return None
    if feature.kind is FeatureKind.BOOLEAN:
        return bool(feature.maximum)
    middle = (feature.minimum + feature.maximum) / 2
    if feature.kind is FeatureKind.DATE:
        return format_date(float(round(middle)))
    return float(f"{middle:.3g}")
