"""`GET /`: the start page."""

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse

from murho.service.page import render_start_page
from murho.service.parts import PartsDependency

__all__ = ["router"]

router = APIRouter(include_in_schema=False)


@router.get("/")
async def start_page(request: Request, parts: PartsDependency) -> HTMLResponse:
    """Answers with a page of the loaded models and a request to try for each."""
    address = str(request.base_url).rstrip("/")
    return HTMLResponse(render_start_page(parts.registry.snapshot, address))
