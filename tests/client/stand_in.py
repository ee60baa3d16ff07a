"""A stand-in for a Murho service: a model of one line, in the JSON of the contract, as handler of requests."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx

if TYPE_CHECKING:
    from collections.abc import Callable

FEATURES = [
    {"name": "x", "kind": "numeric", "unit": "m", "min": 0.0, "max": 10.0, "categories": None, "missing": True},
    {
        "name": "kind",
        "kind": "categorical",
        "unit": None,
        "min": None,
        "max": None,
        "categories": ["a"],
        "missing": True,
    },
]


def rows_of(inputs: Any) -> list[float]:
    """The feature x of each row, 0 where it is missing."""
    if isinstance(inputs, dict):
        return [cell or 0.0 for cell in inputs["x"]]
    return [(row[0] if isinstance(row, list) else row["x"]) or 0.0 for row in inputs]


def answer(document: dict[str, Any], name: str = "line", version: str = "1") -> dict[str, Any]:
    """The answer to a request: the mean is 2 x + 1, the error bars are fixed."""
    mean = [2 * x + 1 for x in rows_of(document["inputs"])]
    levels = document["percentiles"]
    return {
        "model": {"name": name, "version": version},
        "target": "y",
        "samples": document["samples"],
        "seed": document.get("seed", 7),
        "mean": mean,
        "std": [0.5] * len(mean),
        "epistemic_std": [0.3] * len(mean),
        "aleatoric_std": [0.4] * len(mean),
        "percentiles": {"levels": levels, "values": [[m + level / 100 for level in levels] for m in mean]},
        "calibrated": True,
        "warnings": [],
    }


def problem(status: int, name: str, detail: str = "No.", **more: Any) -> httpx.Response:
    """An RFC 9457 problem, as a Murho service sends it."""
    headers = {"content-type": "application/problem+json"}
    if "retry_after" in more:
        headers["retry-after"] = str(more.pop("retry_after"))
    document = {"type": f"urn:murho:problem:{name}", "title": "A problem", "status": status, "detail": detail, **more}
    return httpx.Response(status, headers=headers, content=json.dumps(document))


class StandIn:
    """Answers requests like a service with the model `line`, version 1.

    Args:
        before: Called with each request; what it returns is answered, unless it is None.

    Attributes:
        requests: The requests so far.
        version: The latest version.
        features: What the service says of the model's features.
    """

    def __init__(self, before: Callable[[httpx.Request], httpx.Response | None] = lambda _: None) -> None:
        self.before = before
        self.requests: list[httpx.Request] = []
        self.version = "1"
        self.features = FEATURES

    @property
    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self)

    @property
    def paths(self) -> list[str]:
        return [request.url.path for request in self.requests]

    @property
    def documents(self) -> list[dict[str, Any]]:
        return [json.loads(request.content) for request in self.requests if request.method == "POST"]

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return self.before(request) or self.respond(request)

    def respond(self, request: httpx.Request) -> httpx.Response:
        match request.method, request.url.path.strip("/").split("/"):
            case "GET", ["readyz"]:
                return httpx.Response(200, json={"status": "ready", "models": ["line"]})
            case "GET", ["models"]:
                return httpx.Response(200, json={"default": "line", "models": [self.listed()], "refused": []})
            case "GET", ["models", "line"] | ["models", "line", "versions", _]:
                return httpx.Response(200, json=self.describe())
            case "POST", ["predict"] | ["models", "line", "predict"] | ["models", "line", "versions", _, "predict"]:
                return httpx.Response(200, json=answer(json.loads(request.content), version=self.version))
            case _, ["models", *_]:
                return problem(404, "unknown-model", "There is no such model.")
        return problem(404, "nothing")

    def listed(self) -> dict[str, Any]:
        described = self.describe()
        del described["features"], described["calibration"]
        return {**described, "task": "regression"}

    def describe(self) -> dict[str, Any]:
        return {
            "name": "line",
            "version": self.version,
            "versions": [self.version],
            "target": {"name": "y", "unit": None},
            "features": self.features,
            "metrics": {"rmse": 0.5},
            "calibration": None,
        }
