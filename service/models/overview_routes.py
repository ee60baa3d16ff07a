"""`GET /models/{name}/overview` and `/charts`: what the page draws of a model beside its predictions."""

import asyncio
from typing import Any

from fastapi import APIRouter

from murho.service.http.responses import JSONBytes
from murho.service.parts import PartsDependency

__all__ = ["router"]

router = APIRouter(tags=["models"])


@router.get("/models/{name}/overview", summary="A model at a glance: histograms, a typical row, metrics, reliability")
async def model_overview(name: str, parts: PartsDependency) -> JSONBytes:
    """Describes the latest version of a model by the distribution of its training rows.

    `features` have a `histogram` (numbers and dates) or `levels` with their training rows, `typical` is a plausible
    row, `reliability` is how often raw bands held the held-out rows, `curves` are those of the training. What an older
    checkpoint does not have is null.
    """
    from murho.service.models.overview import overview  # here: the service answers /healthz before torch is loaded

    model = await parts.models.find(name)
    report = await asyncio.to_thread(parts.source.report_facts, model)  # in a thread: it reads a file
    return JSONBytes(overview(model, report))


@router.get("/models/{name}/charts", summary="The charts of a model's report, as Vega-Lite")
async def model_charts(name: str, parts: PartsDependency) -> JSONBytes:
    """Draws the latest version of a model as its report does, without any row of the table.

    `charts` have `name`, `section`, `title`, `caption` and `specification`; `colours` says which role each colour of
    the specifications has, for whoever has colours of their own.
    """
    from murho.service.models.report_charts import report_charts  # here, as above

    model = await parts.models.find(name)

    def draw() -> dict[str, Any]:
        return report_charts(model, parts.source.report_facts(model))

    return JSONBytes(await asyncio.to_thread(draw))
