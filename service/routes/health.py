"""`GET /healthz`, `/readyz` and `/metrics`, for machines. A service with a full queue is still alive and ready."""

from fastapi import APIRouter, Request, Response
from prometheus_client.exposition import choose_encoder

from murho.service.parts import PartsDependency
from murho.service.responses import JSONBytes

__all__ = ["router"]

router = APIRouter(tags=["operations"])


@router.get("/healthz", summary="Alive: the process answers, and its engine does not hang")
async def alive(parts: PartsDependency) -> JSONBytes:
    """Answers 200 as long as the process can answer at all; 503 if the engine has work and shows no sign of life."""
    parts.heartbeat.require_alive(parts.settings.engine_silence)
    return JSONBytes({"status": "alive"})


@router.get("/readyz", summary="Ready: loaded, warm and not about to stop")
async def ready(parts: PartsDependency) -> JSONBytes:
    """Answers 200 if predictions are answered at full speed, else 503 and the reason."""
    parts.lifecycle.require_not_draining()
    parts.registry.snapshot.require_models()
    return JSONBytes({"status": "ready", "models": list(parts.registry.snapshot.models)})


@router.get("/metrics", summary="Metrics for Prometheus", response_class=Response)
async def metrics(request: Request, parts: PartsDependency) -> Response:
    """Answers with this process's metrics in the Prometheus text format."""
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(parts.telemetry.registry), headers={"content-type": content_type})
