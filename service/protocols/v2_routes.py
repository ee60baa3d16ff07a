"""The Open Inference Protocol V2: `/v2/…`, and what it tells of the server and its models."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import orjson
from fastapi import APIRouter, Request, Response

from murho.model.tables.schema import FeatureKind
from murho.service.context import AdminDependency, ContextDependency, JSONBytes, ServiceContext
from murho.service.models.loader import Change, Snapshot
from murho.service.predict.budgets import SMALL_BYTES, whole_body
from murho.service.predict.json_bodies import load_json
from murho.service.predict.options import RequestModel, validate_document
from murho.service.predict.routes import Endpoint, answer
from murho.service.protocols.infer_answers import BYTES, LENGTH_HEADER, InferResponse, outputs_of
from murho.service.protocols.infer_requests import MATRIX, InferCodec, InferRequest, takes_matrix

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from murho.model.files import JSON
    from murho.service.engine.jobs import ModelLike

MODEL = "/v2/models/{name}"
VERSION = "/v2/models/{name}/versions/{version}"

router = APIRouter(tags=["open inference protocol"])


def _codecs(headers: Mapping[str, str]) -> tuple[InferCodec, InferCodec]:
    codec = InferCodec(headers.get(LENGTH_HEADER.lower()))
    return codec, codec


INFER = Endpoint(
    "infer",
    (f"{MODEL}/infer", f"{VERSION}/infer"),
    "Predict with",
    "Answers with the tensors mean, std, epistemic_std, aleatoric_std and percentiles.",
    partial(answer, codecs=_codecs),
    InferRequest,
    (InferResponse,),
    tag="open inference protocol",
)


@router.get("/v2", summary="The server and its extensions", name="v2_server")
@router.get("/v2/", include_in_schema=False, name="v2_server_slash")
async def _server(request: Request) -> JSONBytes:
    """Describe the server."""
    return JSONBytes({"name": "murho", "version": request.app.version, "extensions": EXTENSIONS})


# Ahead of the models: /v2/models/stats is no model of this name.
@router.get("/v2/models/stats", summary="The statistics of all models", name="v2_all_statistics")
async def _all_statistics(service: ContextDependency) -> JSONBytes:
    """Say what each served version has done since it was loaded."""
    snapshot = service.registry.snapshot
    snapshot.require_models()
    return _statistics_of(snapshot.served, service)


@router.get(MODEL, summary="The inputs and outputs of a model", name="v2_model")
@router.get(VERSION, summary="The inputs and outputs of a version", name="v2_version")
async def _model(name: str, service: ContextDependency, version: str | None = None) -> JSONBytes:
    """Describe inputs and outputs: names, datatypes and shapes, -1 for any size."""
    snapshot = service.registry.snapshot
    return JSONBytes(_metadata(snapshot.find(name, version), list(snapshot.models[name].versions)))


@router.get(f"{MODEL}/ready", summary="Whether a model is ready", name="v2_model_ready")
@router.get(f"{VERSION}/ready", summary="Whether a version is ready", name="v2_version_ready")
async def _model_ready(name: str, service: ContextDependency, version: str | None = None) -> JSONBytes:
    """Answer 200 if the service is ready, as /readyz says it, and serves the model, else 404 or 503."""
    service.require_ready()
    model = service.registry.snapshot.find(name, version)
    return JSONBytes({"name": model.name, "ready": True})


@router.get(f"{MODEL}/stats", summary="The statistics of a model", name="v2_model_statistics")
@router.get(f"{VERSION}/stats", summary="The statistics of a version", name="v2_version_statistics")
async def _statistics(name: str, service: ContextDependency, version: str | None = None) -> JSONBytes:
    """Say what the served versions of a model, or one of them, have done since they were loaded."""
    snapshot = service.registry.snapshot
    model = snapshot.find(name, version)
    models = [model] if version is not None else list(snapshot.models[name].versions.values())
    return _statistics_of(models, service)


@router.post("/v2/repository/index", summary="All versions, served or not", name="v2_index")
async def _index(request: Request, service: ContextDependency) -> JSONBytes:
    """List every version that is there, with its state, and the reason why one isn't served."""
    wanted = await _body(request, service)
    return JSONBytes(_repository(service.registry.snapshot, ready=wanted.ready))


@router.post("/v2/repository/models/{name}/load", summary="Load a model now", name="v2_load")
async def _load(name: str, request: Request, service: ContextDependency, _admin: AdminDependency) -> Response:
    """Do what `POST /models/{name}/load` does; answer once it is done."""
    wanted = await _body(request, service)
    service.lifecycle.require_not_draining()
    await service.versions.apply(Change(name, wanted.parameters.version))
    return Response()


@router.post("/v2/repository/models/{name}/unload", summary="Take a model out of service", name="v2_unload")
async def _unload(name: str, request: Request, service: ContextDependency, _admin: AdminDependency) -> Response:
    """Do what `POST /models/{name}/unload` does; answer once it is done."""
    await _body(request, service)
    service.lifecycle.require_not_draining()
    await service.versions.apply(Change(name, unload=True))
    return Response()


async def _body(request: Request, service: ServiceContext) -> RepositoryRequest:
    """Return the document in a body, which may be empty."""
    async with whole_body(
        service.settings, service.request_budget, request.scope, request.receive, SMALL_BYTES
    ) as body:
        return validate_document(RepositoryRequest, load_json(body, SMALL_BYTES) if body.strip() else {})


EXTENSIONS = ("binary_tensor_data", "model_repository", "parameters", "statistics")
PLATFORM = "murho_safetensors"
DATATYPES = {FeatureKind.NUMERIC: "FP64", FeatureKind.BOOLEAN: "BOOL"}
"""The datatype that metadata give for a feature, else BYTES; others are read too."""
MILLISECONDS, NANOSECONDS = 1e3, 1e9


class RepositoryParameters(RequestModel):
    """The version to load, without it what the policy of the service says; no model depends on another one."""

    version: str | None = None
    unload_dependents: Any = None


class RepositoryRequest(RequestModel):
    """What is asked of the repository: `ready` leaves out of the index what isn't served.

    Configurations and files can't be sent to this service.
    """

    ready: bool = False
    parameters: RepositoryParameters = RepositoryParameters()


def _metadata(model: ModelLike, versions: Sequence[str]) -> JSON:
    """Return the metadata of a version, with all served versions of its name."""
    target = model.schema.target
    on_request = [output.name for output in outputs_of(target.classes) if output.on_request]
    properties = {
        "target": target.name,
        "features": orjson.dumps([feature.name for feature in model.schema.features]).decode(),
        "outputs_on_request": ", ".join(on_request),
    }
    if target.classes is not None:
        properties["classes"] = orjson.dumps(target.classes).decode()
    if target.unit is not None:
        properties["target_unit"] = target.unit
    features = model.schema.features
    inputs: list[JSON] = [{"name": MATRIX, "datatype": "FP64", "shape": [-1, len(features)]}]
    if not takes_matrix(model.schema):
        inputs = [{"name": each.name, "datatype": DATATYPES.get(each.kind, BYTES), "shape": [-1]} for each in features]
    return {
        "name": model.name,
        "versions": list(versions),
        "platform": PLATFORM,
        "inputs": inputs,
        "outputs": [
            {"name": output.name, "datatype": output.datatype, "shape": list(output.shape)}
            for output in outputs_of(target.classes)
            if not output.on_request
        ],
        "properties": properties,
    }


def _repository(snapshot: Snapshot, *, ready: bool = False) -> list[dict[str, str]]:
    """Return every version that is there with its state, and the reason why one isn't served.

    Args:
        snapshot: What is served.
        ready: Whether to list those alone that are served.
    """
    found = [(model.name, model.version, "READY", "") for model in snapshot.served]
    if not ready:
        found += [(each.name, each.version, "UNAVAILABLE", each.reason) for each in snapshot.refused if each.name]
        found += [
            (name, version, "UNAVAILABLE", "the service serves other versions of it")
            for name, versions in snapshot.not_served.items()
            for version in versions
        ]
        found += [(name, "", "UNAVAILABLE", "unloaded") for name in snapshot.unloaded]
        found.sort(key=lambda each: (each[0], int(each[1] or 0)))
    return [dict(zip(("name", "version", "state", "reason"), each, strict=True)) for each in found]


def _statistics_of(models: Sequence[ModelLike], service: ServiceContext) -> JSONBytes:
    """Answer with what some versions have done since they were loaded, whatever the protocol they were asked by.

    Decoding and encoding aren't measured, and there is no cache: their counts are 0. `batch_size` is rounded up to a
    power of two.
    """
    told, nothing = [], _sum(0, 0.0)
    for model in models:
        totals = service.telemetry.versions[model.name, model.version]
        batches = sorted(totals.batches.copy().items())
        told.append(
            {
                "name": model.name,
                "version": model.version,
                "last_inference": int(MILLISECONDS * totals.last),
                "inference_count": totals.rows,
                "execution_count": sum(count for _, (count, _) in batches),
                "inference_stats": {
                    "success": _sum(totals.answered, totals.seconds),
                    "fail": _sum(totals.failed, totals.failed_seconds),
                    "queue": _sum(totals.answered, totals.queue),
                    "compute_infer": _sum(totals.answered, totals.compute),
                    **dict.fromkeys(("compute_input", "compute_output", "cache_hit", "cache_miss"), nothing),
                },
                "response_stats": {},
                "batch_stats": [
                    {
                        "batch_size": size,
                        "compute_input": nothing,
                        "compute_infer": _sum(*batch),
                        "compute_output": nothing,
                    }
                    for size, batch in batches
                ],
                "memory_usage": [],
            }
        )
    return JSONBytes({"model_stats": told})


def _sum(count: int, seconds: float) -> dict[str, int]:
    return {"count": count, "ns": int(NANOSECONDS * seconds)}
