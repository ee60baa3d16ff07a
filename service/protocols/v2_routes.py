"""The Open Inference Protocol V2: `/v2/…`. Its bodies are in `service.protocols`.

`service.http.middleware` calls the routes for inference, as those of `predict.routes`.
"""

from functools import partial
from typing import TypeVar

from fastapi import APIRouter, Request, Response

from murho.service.http.front_door import AdminDependency
from murho.service.http.responses import JSONBytes
from murho.service.models.loader import Change
from murho.service.parts import Parts, PartsDependency
from murho.service.predict.in_flight import InFlight
from murho.service.predict.json_requests import load_json
from murho.service.predict.memory import SMALL_BYTES, Share
from murho.service.predict.request_body import headers_of, read_body
from murho.service.predict.routes import respond
from murho.service.protocols.documents import Strict, parsed
from murho.service.protocols.infer_answers import LENGTH_HEADER, encode_inference
from murho.service.protocols.infer_requests import read_request
from murho.service.protocols.repository import (
    IndexRequest,
    LoadRequest,
    UnloadRequest,
    model_configuration,
    model_metadata,
    repository_index,
    server_metadata,
    statistics_document,
)

__all__ = ["infer_router", "router"]

MODEL = "/v2/models/{name}"
VERSION = "/v2/models/{name}/versions/{version}"

Document = TypeVar("Document", bound=Strict)

infer_router = APIRouter(tags=["open inference protocol"])
router = APIRouter(tags=["open inference protocol"])


@infer_router.post(f"{MODEL}/infer", summary="Predict with the latest version of a model", name="infer")
async def _infer(request: Request, parts: PartsDependency, name: str) -> Response:
    """Answers with the tensors mean, std, epistemic_std, aleatoric_std and percentiles."""
    return await _answer(request, parts, name)


@infer_router.post(f"{VERSION}/infer", summary="Predict with one version of a model", name="infer_with_version")
async def _infer_with_version(request: Request, parts: PartsDependency, name: str, version: str) -> Response:
    """Answers like the latest version."""
    return await _answer(request, parts, name, version)


async def _answer(request: Request, parts: Parts, name: str, version: str | None = None) -> Response:
    with InFlight(parts, request.scope, request.receive) as call:
        model = call.find(name, version)
        body = await call.body()
        length = call.headers.get(LENGTH_HEADER.lower())
        read = partial(read_request, length=length, model=model, settings=parts.settings)
        asked = await parts.decoder.decode(body, call.headers.get("content-encoding", ""), model.schema, read)
        del body
        answered = await call.predict(model, asked)
        encode = partial(encode_inference, asked, answered)
        return await respond(parts, answered, call.headers.get("accept-encoding", ""), encode)


@router.get("/v2/health/live", summary="Alive, as /healthz", name="v2_live")
async def _live(parts: PartsDependency) -> JSONBytes:
    """Answers 200 as long as the process can answer at all; 503 if the engine shows no sign of life."""
    parts.require_alive()
    return JSONBytes({"live": True})


@router.get("/v2/health/ready", summary="Ready, as /readyz", name="v2_ready")
async def _ready(parts: PartsDependency) -> JSONBytes:
    """Answers 200 if predictions are answered at full speed, else 503 and the reason."""
    parts.require_ready()
    return JSONBytes({"ready": True})


@router.get("/v2", summary="The server and its extensions", name="v2_server")
@router.get("/v2/", include_in_schema=False, name="v2_server_slash")
async def _server(request: Request) -> JSONBytes:
    """Describes the server."""
    return JSONBytes(server_metadata(request.app.version))


# Ahead of the models: /v2/models/stats is no model of this name.
@router.get("/v2/models/stats", summary="The statistics of all models", name="v2_all_statistics")
async def _all_statistics(parts: PartsDependency) -> JSONBytes:
    """Says what each served version has done since it was loaded."""
    snapshot = parts.registry.snapshot
    snapshot.require_models()
    return JSONBytes(statistics_document(snapshot.served, parts.statistics))


@router.get(MODEL, summary="The inputs and outputs of a model", name="v2_model")
@router.get(VERSION, summary="The inputs and outputs of a version", name="v2_version")
async def _model(name: str, parts: PartsDependency, version: str | None = None) -> JSONBytes:
    """Describes inputs and outputs: names, datatypes and shapes, -1 for any size."""
    snapshot = parts.registry.snapshot
    return JSONBytes(model_metadata(snapshot.find(name, version), list(snapshot.models[name].versions)))


@router.get(f"{MODEL}/ready", summary="Whether a model is ready", name="v2_model_ready")
@router.get(f"{VERSION}/ready", summary="Whether a version is ready", name="v2_version_ready")
async def _model_ready(name: str, parts: PartsDependency, version: str | None = None) -> JSONBytes:
    """Answers 200 if the model is served, else 404 or 503."""
    parts.lifecycle.require_not_draining()
    model = parts.registry.snapshot.find(name, version)
    return JSONBytes({"name": model.name, "ready": True})


@router.get(f"{MODEL}/config", summary="The configuration of a model", name="v2_model_config")
@router.get(f"{VERSION}/config", summary="The configuration of a version", name="v2_version_config")
async def _configuration(name: str, parts: PartsDependency, version: str | None = None) -> JSONBytes:
    """Describes inputs and outputs in the form of Triton's configurations."""
    return JSONBytes(model_configuration(parts.registry.snapshot.find(name, version)))


@router.get(f"{MODEL}/stats", summary="The statistics of a model", name="v2_model_statistics")
@router.get(f"{VERSION}/stats", summary="The statistics of a version", name="v2_version_statistics")
async def _statistics(name: str, parts: PartsDependency, version: str | None = None) -> JSONBytes:
    """Says what the served versions of a model, or one of them, have done since they were loaded."""
    snapshot = parts.registry.snapshot
    model = snapshot.find(name, version)
    models = [model] if version is not None else list(snapshot.models[name].versions.values())
    return JSONBytes(statistics_document(models, parts.statistics))


@router.post("/v2/repository/index", summary="All versions, served or not", name="v2_index")
async def _index(request: Request, parts: PartsDependency) -> JSONBytes:
    """Lists every version that is there, with its state, and the reason why one isn't served."""
    wanted = await _body(request, parts, IndexRequest)
    return JSONBytes(repository_index(parts.registry.snapshot, ready=wanted.ready))


@router.post("/v2/repository/models/{name}/load", summary="Load a model now", name="v2_load")
async def _load(name: str, request: Request, parts: PartsDependency, _admin: AdminDependency) -> Response:
    """Does what `POST /models/{name}/load` does; answers once it is done."""
    wanted = await _body(request, parts, LoadRequest)
    version = None if wanted.parameters is None else wanted.parameters.version
    parts.lifecycle.require_not_draining()
    await parts.watcher.apply(Change(name, version))
    return Response()


@router.post("/v2/repository/models/{name}/unload", summary="Take a model out of service", name="v2_unload")
async def _unload(name: str, request: Request, parts: PartsDependency, _admin: AdminDependency) -> Response:
    """Does what `POST /models/{name}/unload` does; answers once it is done."""
    await _body(request, parts, UnloadRequest)
    parts.lifecycle.require_not_draining()
    await parts.watcher.apply(Change(name, unload=True))
    return Response()


async def _body(request: Request, parts: Parts, kind: type[Document]) -> Document:
    """Returns the document in a body, which may be empty."""
    headers, settings, share = headers_of(request.scope), parts.settings, Share(parts.request_room)
    try:
        body = await read_body(
            request.receive, headers, settings.request_timeout, min(SMALL_BYTES, settings.max_body_bytes), share
        )
    finally:
        share.resize(0)
    return parsed(kind, load_json(body, SMALL_BYTES) if body.strip() else {})
