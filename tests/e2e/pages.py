"""What the tests of the page share, whatever the kind of target: its tabs, and the service's answers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx

from murho.model.tables.schema import Feature, FeatureKind, Schema, Target
from tests.service.classifiers import class_spec, write_classifier
from tests.service.support import spec_of

if TYPE_CHECKING:
    from pathlib import Path

TABS = ("sweep", "compare", "map", "why", "file", "totals", "request", "card")


def answer_of(site: str, model: str, inputs: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
    """What the service answers for rows, without the page."""
    response = httpx.post(f"{site}/models/{model}/predict", json={"inputs": inputs, **options})
    response.raise_for_status()
    answer: dict[str, Any] = response.json()
    return answer


def typical_row(site: str, model: str) -> dict[str, Any]:
    """The row that the page starts with."""
    row: dict[str, Any] = httpx.get(f"{site}/models/{model}/overview").json()["typical"]
    return row


LONG = "annual_consumption_of_electrical_energy_per_customer_kwh"
LAST = "sensor_59_temperature_of_the_heat_exchanger_in_building_3"


def write_wide(root: Path) -> None:
    """Writes checkpoints of sixty features with long names, most important the last: of numbers and of classes."""
    names = [f"x{i:02d}" if i % 3 else f"sensor_{i:02d}_temperature_of_the_heat_exchanger" for i in range(58)]
    features = [Feature(name, FeatureKind.NUMERIC, "°C", True, 0.0, 1.0, ()) for name in [*names, LAST]]
    levels = ("10 to 11", "9 to 10", "central-european-district-with-a-very-long-name")
    features.append(
        Feature("district (as registered)", FeatureKind.CATEGORICAL, None, True, None, None, tuple(sorted(levels)))
    )
    schema = Schema(tuple(features), Target(LONG, "kWh"), {})
    written = write_classifier(root, "wide", spec_of(schema))
    write_classifier(root, "risks", class_spec(replace(schema, target=Target("risk", None, ("high", "low", "medium")))))
    ranked = [{"name": LAST, "rmse": {"value": 2.0}}, {"name": "x02", "rmse": {"value": 1.0}}]
    facts = {"format": 3, "importance": {"measures": ["rmse"], "features": ranked}}
    (written / "report").mkdir()
    (written / "report" / "facts.json").write_text(json.dumps(facts))
