"""What the tests of the page share, whatever the kind of target: its tabs, and the service's answers."""

from __future__ import annotations

from typing import Any

import httpx

TABS = ("sweep", "compare", "map", "file", "request", "card")


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
