"""`GET /healthz`, `/readyz` and `/metrics`, for machines. A service with a full queue is still alive and ready."""

from itertools import islice

from fastapi import APIRouter, Request, Response

from murho.service.http.responses import JSONBytes
from murho.service.models.registry import MOST_LISTED, title_of
from murho.service.parts import PartsDependency

__all__ = ["router"]

router = APIRouter(tags=["operations"])


@router.get("/healthz", summary="Alive: the process answers, and its engine does not hang")
async def alive(_: Request, parts: PartsDependency) -> JSONBytes:
    """Answers 200 as long as the process can answer at all; 503 if the engine has work and shows no sign of life."""
    parts.require_alive()
    return JSONBytes({"status": "alive"})


@router.get("/readyz", summary="Ready: loaded, warm and not about to stop")
async def ready(_: Request, parts: PartsDependency) -> JSONBytes:
    """Answers 200 if predictions are answered at full speed, else 503 and the reason.

    `models` and `refused` name the first ten, `model_count` and `refused_count` say how many there are: the answer is
    as short with 10,000 models. `/models` has all of them.
    """
    parts.require_ready()
    snapshot = parts.registry.snapshot
    refused = [item for item in snapshot.refused if not item.waiting]
    return JSONBytes(
        {
            "status": "ready",
            "models": list(islice(snapshot.models, MOST_LISTED)),
            "model_count": len(snapshot.models),
            "refused": [title_of(item.name, item.version) for item in refused[:MOST_LISTED]],
            "refused_count": len(refused),
        }
    )


@router.get("/metrics", summary="Metrics for Prometheus", response_class=Response)
async def metrics(request: Request, parts: PartsDependency) -> Response:
    """Answers with the metrics in the Prometheus text format."""
    content, media_type = parts.telemetry.exposition(request.headers.get("accept", ""))
    return Response(content, headers={"content-type": media_type})
