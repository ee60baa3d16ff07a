"""`/openapi.json`: the framework's description of the paths, completed by the bodies of requests and answers."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from murho.service.errors import is_inference_path
from murho.service.outcomes.routes import OutcomesRequest, OutcomesResponse
from murho.service.predict.json_rows import example_row
from murho.service.predict.options import InferenceError, ResponseModel
from murho.service.predict.routes import REFERENCE, Endpoint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fastapi import FastAPI

    from murho.model.files import JSON
    from murho.service.context import ServiceContext

DESCRIPTION = """
Every answer has error bars: the mean, the standard deviation and percentiles of the posterior predictive of a
Bayes-by-Backprop network, with the part of the spread that more data would remove (epistemic) told apart from
the noise of the observations (aleatoric). Numbers are in the target's own unit. Where the target is a class, the answer
has the probabilities of the classes, their entropy with the epistemic part of it, and a set of classes.

Errors are `application/problem+json` (RFC 9457); for bad input, `errors` points at each offending cell. Those of the
Open Inference Protocol, below `/v2`, are `{"error": …}`.
"""

PROBLEM = "application/problem+json"
PROBLEMS = {
    "400": "Malformed HTTP request.",
    "401": "There is no API key, or an unknown one.",
    "403": "The API key may not do this, or a page of another site asks.",
    "404": "There is no such model or version.",
    "406": "The answer can't have the media type that `Accept` asks for.",
    "408": "The headers or the body didn't arrive in time.",
    "413": "The body, the rows or the work asked for are above a limit.",
    "414": "Path and query are too long.",
    "415": "The body's media type or compression isn't read.",
    "421": "The request is to a host that isn't this service.",
    "422": "The input can't be used; `errors` says where.",
    "429": "The service is busy, or the caller has taken all that it may take; try again after `Retry-After` seconds.",
    "431": "The headers are too large, or too many.",
    "500": "The service failed.",
    "503": "The service isn't ready; try again after `Retry-After` seconds.",
    "504": "There was no answer in time.",
}
PROBLEMS_BY_METHOD = {
    "post": tuple(PROBLEMS),
    "get": ("400", "401", "404", "408", "414", "421", "422", "429", "431", "500", "503"),
}
SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "An API key, as Authorization: Bearer KEY."},
    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "An API key."},
}


EXAMPLES: JSON = {
    "PredictResponse": {
        "model": {"name": "cars", "version": "1"},
        "target": "Miles_per_Gallon",
        "samples": 256,
        "seed": 0,
        "mean": [16.9, 9.7],
        "std": [2.1, 4.3],
        "epistemic_std": [0.6, 4.2],
        "aleatoric_std": [2.0, 1.1],
        "percentiles": {"levels": [5, 50, 95], "values": [[13.4, 16.9, 20.4], [2.6, 9.7, 16.8]]},
        "calibrated": True,
        "extrapolation": [False, True],
        "warnings": [
            {"pointer": "/inputs/1/Weight_in_lbs", "message": "9000 is above the training range, 1613 to 5140"}
        ],
    },
    "ClassPredictResponse": {
        "model": {"name": "penguins", "version": "1"},
        "target": "species",
        "samples": 256,
        "seed": 0,
        "classes": ["Adelie", "Chinstrap", "Gentoo"],
        "prediction": ["Adelie"],
        "probabilities": [[0.96, 0.03, 0.01]],
        "epistemic_std": [[0.03, 0.02, 0.01]],
        "entropy": [0.19],
        "epistemic_entropy": [0.04],
        "percentiles": {"levels": [5, 50, 95], "values": [[[0.88, 0.97, 0.99], [0.01, 0.02, 0.08], [0.0, 0.01, 0.03]]]},
        "prediction_set": {"coverage": 0.9, "values": [["Adelie"]]},
        "calibrated": True,
        "extrapolation": [False],
        "warnings": [],
    },
}
"""Name of a schema → a document of the demo or of examples/penguins.csv. The second car is unlike the training rows."""


class InputProblem(ResponseModel):
    """What is wrong, and where."""

    pointer: str
    """RFC 6901 JSON pointer, such as /inputs/3/Horsepower."""
    message: str


class ProblemDocument(ResponseModel):
    """An RFC 9457 problem."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[InputProblem] | None = None


def install_openapi(app: FastAPI, service: ServiceContext, endpoints: Sequence[Endpoint]) -> None:
    """Install the complete description, with an example request that works for the first model."""
    described: JSON = {}

    def openapi() -> JSON:
        if not described:
            described.update(_describe(app, service, endpoints))
        rows = [example_row(each.latest) for each in islice(service.registry.snapshot.models.values(), 1)]
        example = {"inputs": rows or [{"Weight_in_lbs": 3504, "Origin": "USA"}], "samples": 256}
        described["components"]["schemas"]["PredictRequest"]["example"] = example
        return described

    app.openapi = openapi  # type: ignore[method-assign]  # so FastAPI says to extend it


def _describe(app: FastAPI, service: ServiceContext, endpoints: Sequence[Endpoint]) -> JSON:
    document = get_openapi(
        title=app.title,
        version=app.version,
        summary=app.summary,
        description=app.description,
        routes=app.routes,
        servers=[{"url": service.settings.root_path}] if service.settings.root_path else None,
    )
    requests = [(OutcomesRequest, "validation"), *((endpoint.request_model, "validation") for endpoint in endpoints)]
    responses: list[Any] = [(OutcomesResponse, "serialization")]
    responses += [
        (model, "serialization")
        for endpoint in endpoints
        for model in (*endpoint.response_models, ProblemDocument, InferenceError)
    ]
    _, schemas = models_json_schema(cast("Any", [*requests, *dict.fromkeys(responses)]), ref_template=REFERENCE)
    components = document.setdefault("components", {}).setdefault("schemas", {})
    components.clear()
    components.update(schemas["$defs"])
    for choice in components["PredictRequest"]["properties"]["samples"]["anyOf"]:
        if choice["type"] == "integer":
            choice["maximum"] = service.settings.max_samples
    components["PredictRequest"]["properties"]["samples"]["description"] += (
        f" {service.settings.samples} by default, at most {service.settings.max_samples}."
    )
    for name, example in EXAMPLES.items():
        components[name]["example"] = example
    security = service.security
    if security.enabled:
        document["components"]["securitySchemes"] = SCHEMES
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            guarded = not security.is_open(path)
            _complete(method, operation, guarded=guarded, inference=is_inference_path(path))
            if guarded:
                operation["security"] = [{name: []} for name in SCHEMES]
    return document


def _complete(method: str, operation: JSON, *, guarded: bool, inference: bool) -> None:
    """Add the possible problems to one operation, and say that what a path names is text.

    Args:
        method: Its method in small letters.
        operation: The operation.
        guarded: Whether it needs a key.
        inference: Whether its errors are those of the Open Inference Protocol.
    """
    for each in operation.get("parameters", ()):
        if each["in"] == "path":  # a handler of two paths has None for the one without it
            each["schema"] = {"type": "string"}
    responses = operation["responses"]
    responses.pop("422", None)  # the framework's own form of 422, which this service never sends
    media_type, model = ("application/json", InferenceError) if inference else (PROBLEM, ProblemDocument)
    for status in PROBLEMS_BY_METHOD[method]:
        # The protocol has 400 for bad input, and the service 422.
        if (status == "401" and not guarded) or (inference and status == "422"):
            continue
        both = inference and status == "400"
        responses[status] = {
            "description": f"{PROBLEMS[status]} Or: {PROBLEMS['422']}" if both else PROBLEMS[status],
            "content": {media_type: {"schema": {"$ref": REFERENCE.format(model=model.__name__)}}},
        }
