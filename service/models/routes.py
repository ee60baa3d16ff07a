"""`/models` and below: what is served, each model in detail, and what changes at once, without a restart.

And `GET /healthz`, `/readyz` and `/metrics`, for machines, also by the names that other servers have for them: a
service with a full queue is still alive and ready.
"""

import asyncio
from itertools import islice
from typing import Any

from fastapi import APIRouter, Request, Response

from murho.service.context import AdminDependency, ContextDependency, JSONBytes
from murho.service.errors import wrong
from murho.service.models.loader import MOST_LISTED, Change, LoadedModel, title_of
from murho.service.predict.routes import MEDIA_TYPES

VERSION_PARAMETER: dict[str, Any] = {
    "parameters": [
        {
            "name": "version",
            "in": "query",
            "required": False,
            "description": "The only version to serve from now on; without it the policy of the service decides.",
            "schema": {"type": "string", "pattern": "^[1-9][0-9]{0,8}$"},
        }
    ]
}

router = APIRouter(tags=["models"])

# `service.models.descriptions` is imported by the routes: the service answers /healthz before torch is loaded.


@router.get("/models", summary="What is served, and what was refused and why")
async def list_models(service: ContextDependency) -> JSONBytes:
    """List every model with its versions, and every checkpoint that can't be served with the reason.

    `not_served` are versions that are there and are neither served nor refused; `unloaded` are the names that were
    taken out of service; `formats` are the media types that the predict routes read and write.
    """
    from murho.service.models.descriptions import target_of

    snapshot = service.registry.snapshot
    if not snapshot.loaded:
        snapshot.require_models()
    default = service.settings.default_model
    if default is None and len(snapshot.models) == 1:
        default = next(iter(snapshot.models))
    return JSONBytes(
        {
            "default": default,
            "models": [
                {
                    "name": model.name,
                    "version": model.latest.version,
                    "versions": list(model.versions),
                    "not_served": list(snapshot.not_served.get(model.name, ())),
                    "loaded_since": _since(model, model.latest.version),
                    "task": model.latest.schema.target.task,
                    "target": target_of(model.latest),
                    "metrics": model.latest.spec.metrics,
                    "path": f"/models/{model.name}",
                }
                for model in snapshot.models.values()
            ],
            "refused": [
                {"name": item.name, "version": item.version, "reason": item.reason} for item in snapshot.refused
            ],
            "unloaded": list(snapshot.unloaded),
            "formats": list(MEDIA_TYPES),
        }
    )


@router.get("/models/{name}", summary="One model: features, target, metrics, calibration, training")
@router.get("/models/{name}/versions/{version}", summary="One version of a model", name="describe_version")
async def describe_model(name: str, service: ContextDependency, version: str | None = None) -> JSONBytes:
    """Describe the latest version of a model, or the one that the path names; features are in schema order."""
    from murho.service.models.descriptions import description

    snapshot = service.registry.snapshot
    model = snapshot.find(name, version)
    loaded = snapshot.models[name]
    served = {"versions": list(loaded.versions), "loaded_since": _since(loaded, model.version)}
    return JSONBytes({"name": model.name, "version": model.version, **served, **description(model)})


@router.get("/models/{name}/calibration", summary="The calibration of a model in full")
@router.get(
    "/models/{name}/versions/{version}/calibration",
    summary="The calibration of one version in full",
    name="describe_calibration_of_version",
)
async def describe_calibration(name: str, service: ContextDependency, version: str | None = None) -> JSONBytes:
    """Have every number of the calibration of the latest version, or of the one that the path names.

    `/models/{name}` has it in short; `calibration` is null where the model has none.
    """
    model = service.registry.snapshot.find(name, version)
    calibration = model.spec.to_json()["calibration"]
    return JSONBytes({"name": model.name, "version": model.version, "calibration": calibration})


@router.get("/models/{name}/overview", summary="A model at a glance: histograms, a typical row, metrics")
async def model_overview(name: str, service: ContextDependency) -> JSONBytes:
    """Describe the latest version of a model by the distribution of its training rows.

    `features` have a `histogram` (numbers and dates) or `levels` with their training rows, `typical` is a plausible
    row. What a checkpoint does not have is null.
    """
    from murho.service.models.descriptions import overview

    model = service.registry.snapshot.find(name)
    report = await asyncio.to_thread(service.source.report_facts, model)  # in a thread: it reads a file
    return JSONBytes(overview(model, report))


@router.get("/models/{name}/charts", summary="The charts of a model's report, as Vega-Lite")
async def model_charts(name: str, service: ContextDependency) -> JSONBytes:
    """Draw the latest version of a model as its report does, without any row of the table.

    `charts` have `name`, `section`, `title`, `caption` and `specification`; `colours` says which role each colour of
    the specifications has, for whoever has colours of their own.
    """
    from murho.service.models.descriptions import report_charts

    model = service.registry.snapshot.find(name)
    return JSONBytes(await asyncio.to_thread(lambda: report_charts(model, service.source.report_facts(model))))


@router.post("/models/{name}/load", summary="Load a model now", openapi_extra=VERSION_PARAMETER)
async def load_model(name: str, request: Request, service: ContextDependency, _admin: AdminDependency) -> JSONBytes:
    """Load the latest version, or the one that `version` names, and answer once it is served.

    A named version is served alone, until the next load without one, or until the service starts again. A version that
    can't be loaded is answered 422 with the reason; what was served before is served on. If nothing was, and no version
    is named, the newest one that can be loaded is served, and `refused` says which are not, and why.
    """
    given = request.query_params.multi_items()
    if len(given) > 1 or any(key != "version" for key, _ in given):
        unknown = next((key for key, _ in given if key != "version"), "version")
        raise wrong("", f"the query takes one version=N and nothing else, not {unknown[:80]!r}")
    service.lifecycle.require_not_draining()
    before, after = await service.versions.apply(Change(name, given[0][1] if given else None))
    loaded, old = after.models[name], before.models.get(name)
    return JSONBytes(
        {
            "name": name,
            "version": loaded.latest.version,
            "versions": list(loaded.versions),
            "changed": old is None or old.versions != loaded.versions,
            "until": "the next load without a version, or the next start of the service" if given else None,
            "refused": [
                {"version": item.version, "reason": item.reason} for item in after.refused if item.name == name
            ],
        }
    )


@router.post("/models/{name}/unload", summary="Take a model out of service")
async def unload_model(name: str, service: ContextDependency, _admin: AdminDependency) -> JSONBytes:
    """Take all versions of a model out of service. Requests in flight end on it, then its memory is free.

    It stays unloaded until it is loaded again, or until the service starts again.
    """
    service.lifecycle.require_not_draining()
    before, _ = await service.versions.apply(Change(name, unload=True))
    unloaded = list(before.models[name].versions) if name in before.models else []
    return JSONBytes(
        {
            "name": name,
            "unloaded": unloaded,
            "changed": bool(unloaded),
            "until": f"POST /models/{name}/load, or the next start of the service",
        }
    )


def _since(loaded: "LoadedModel", version: str) -> str:
    """Return when a version was loaded, ISO 8601 in UTC."""
    return loaded.since[version].isoformat(timespec="seconds")


machines_router = APIRouter(tags=["operations"])


@machines_router.get("/healthz", summary="Alive: the process answers, and its engine does not hang")
@machines_router.get("/v2/health/live", summary="Alive, as /healthz", name="v2_live")
async def alive(_: Request, service: ContextDependency) -> JSONBytes:
    """Answer 200 as long as the process can answer at all; 503 if the engine has work and shows no sign of life."""
    service.engine.require_alive(service.settings.engine_silence)
    return JSONBytes({"status": "alive", "live": True})


@machines_router.get("/readyz", summary="Ready: loaded, warm and not about to stop")
@machines_router.get("/v2/health/ready", summary="Ready, as /readyz", name="v2_ready")
@machines_router.get("/ping", summary="Ready, as /readyz", name="ping")
async def ready(_: Request, service: ContextDependency) -> JSONBytes:
    """Answer 200 if predictions are answered at full speed, else 503 and the reason.

    `models` and `refused` name the first ten, `model_count` and `refused_count` say how many there are: the answer is
    as short with 10,000 models. `/models` has all of them.
    """
    service.require_ready()
    snapshot = service.registry.snapshot
    refused = [item for item in snapshot.refused if not item.waiting]
    return JSONBytes(
        {
            "status": "ready",
            "ready": True,
            "models": list(islice(snapshot.models, MOST_LISTED)),
            "model_count": len(snapshot.models),
            "refused": [title_of(item.name, item.version) for item in refused[:MOST_LISTED]],
            "refused_count": len(refused),
        }
    )


@machines_router.get("/metrics", summary="Metrics for Prometheus", response_class=Response)
async def metrics(request: Request, service: ContextDependency) -> Response:
    """Answer with the metrics in the Prometheus text format."""
    # In a thread: with hundreds of models it takes a tenth of a second.
    content, media_type = await asyncio.to_thread(service.telemetry.exposition, request.headers.get("accept", ""))
    return Response(content, headers={"content-type": media_type})
