"""A stand-in for a Murho service: a model of one line, in the JSON of the contract, as handler of requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx2
from murho_client import AsyncClient, Client

ROWS: dict[str, Any] = {"x": [1.0, 2.0, 3.0], "kind": ["a", "a", None]}
FEATURES: list[dict[str, Any]] = [
    {"name": "x", "kind": "numeric", "unit": "m", "min": 0.0, "max": 10.0, "categories": None, "missing": True},
    {"name": "kind", "kind": "categorical", "unit": None, "categories": ["a"], "missing": True},
]


def table(rows: int) -> dict[str, Any]:
    """Return a table whose row i has x = i."""
    return {"x": [float(row) for row in range(rows)], "kind": ["a"] * rows}


def answer(document: dict[str, Any], name: str = "line", version: str = "1") -> dict[str, Any]:
    """Return the answer to a request: the mean is 2 x + 1, the error bars are fixed."""
    mean = [2 * (x or 0.0) + 1 for x in document["inputs"]["x"]]
    levels = document["percentiles"]
    spreads = {"std": 0.5, "epistemic_std": 0.3, "aleatoric_std": 0.4}
    drawn = document["samples"] > 0
    return {
        "model": {"name": name, "version": version},
        "target": "y",
        "samples": document["samples"],
        "seed": document.get("seed", 7),
        "mean": mean,
        **{key: [value] * len(mean) if drawn else None for key, value in spreads.items()},
        "percentiles": {"levels": levels, "values": [[m + level / 100 for level in levels] for m in mean]}
        if drawn
        else None,
        "calibrated": True,
        "extrapolation": [m > 1000 for m in mean],
        "warnings": [{"pointer": "/inputs/x/0", "message": "x: high"}] if mean[0] > 1000 else [],
    }


def problem(status: int, name: str, detail: str = "No.", **more: Any) -> httpx2.Response:
    """Return an RFC 9457 problem, as a Murho service sends it."""
    headers = {"content-type": "application/problem+json"}
    if "retry_after" in more:
        headers["retry-after"] = str(more.pop("retry_after"))
    document = {"type": f"urn:murho:problem:{name}", "title": "A problem", "status": status, "detail": detail, **more}
    return httpx2.Response(status, headers=headers, content=json.dumps(document))


def wrong(**message_at: str) -> httpx2.Response:
    """Return a 422 with one problem a place: `x_3="…"` is row 3 of the column x."""
    errors = [{"pointer": f"/inputs/{at.replace('_', '/')}", "message": text} for at, text in message_at.items()]
    return problem(422, "bad-input", errors=errors)


class StandIn:
    """Answers requests like a service with the model `line`, version 1; the id of a request is its number.

    Args:
        before: Called with each request; what it returns is answered, unless it is None.

    Attributes:
        requests: The requests so far.
        version: The latest version.
        target: What it predicts.
        features: What the service says of the model's features.
    """

    def __init__(self, before: Callable[[httpx2.Request], httpx2.Response | None] = lambda _: None) -> None:
        self.before = before
        self.requests: list[httpx2.Request] = []
        self.version, self.target, self.features = "1", "y", FEATURES

    @property
    def paths(self) -> list[str]:
        return [request.url.path for request in self.requests]

    @property
    def documents(self) -> list[dict[str, Any]]:
        return [json.loads(request.content) for request in self.requests if request.content]

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        response = self.before(request) or self.respond(request)
        response.headers["x-request-id"] = str(len(self.requests))
        return response

    def respond(self, request: httpx2.Request) -> httpx2.Response:
        match request.method, request.url.path.strip("/").split("/"):
            case "GET", ["readyz"]:
                return httpx2.Response(200, json={"status": "ready", "models": ["line"]})
            case "GET", ["models"]:
                return httpx2.Response(200, json={"default": "line", "models": [self.describe()], "refused": []})
            case "GET", ["models", "line"] | ["models", "line", "versions", _]:
                return httpx2.Response(200, json=self.describe())
            case "POST", ["predict"] | ["models", "line", "predict"] | ["models", "line", "versions", _, "predict"]:
                return self.predict(json.loads(request.content))
        return problem(404, "unknown-model", "There is no such model.")

    def predict(self, document: dict[str, Any]) -> httpx2.Response:
        inputs = document["inputs"]
        if odd := {feature["name"] for feature in self.features} ^ set(inputs):
            return wrong(**dict.fromkeys(odd, "It is missing, or no feature."))
        texts = {f"x_{row}": "Expected a number." for row, cell in enumerate(inputs["x"]) if isinstance(cell, str)}
        return wrong(**texts) if texts else httpx2.Response(200, json=answer(document, version=self.version))

    def describe(self) -> dict[str, Any]:
        return {
            "name": "line",
            "version": self.version,
            "versions": [self.version],
            "task": "regression",
            "target": {"name": self.target, "unit": None},
            "features": self.features,
            "metrics": {"rmse": 0.5},
        }


def client(service: Callable[[httpx2.Request], httpx2.Response], **options: Any) -> Client:
    """Return a client of a service in this process."""
    http = httpx2.Client(transport=httpx2.MockTransport(service))
    return Client("http://murho.test", http_client=http, **options)


def async_client(service: Callable[[httpx2.Request], httpx2.Response], **options: Any) -> AsyncClient:
    """Return the same for asyncio."""

    async def respond(request: httpx2.Request) -> httpx2.Response:
        await asyncio.sleep(0)  # as a network does, it lets the others run
        return service(request)

    http = httpx2.AsyncClient(transport=httpx2.MockTransport(respond))
    return AsyncClient("http://murho.test", http_client=http, **options)
