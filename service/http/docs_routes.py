"""`GET /docs`: the interactive description of the API by Swagger UI, without a network."""

import gzip
from importlib.resources import files

from fastapi import APIRouter, Request, Response
from fastapi.openapi.docs import get_swagger_ui_html

__all__ = ["router"]

router = APIRouter(include_in_schema=False)

ASSETS = {"swagger-ui-bundle.js": "text/javascript", "swagger-ui.css": "text/css"}


@router.get("/docs")
async def docs() -> Response:
    """Answers with the page; its links are relative, so that it works behind a path prefix."""
    return get_swagger_ui_html(
        openapi_url="openapi.json",
        title="Murho: API",
        swagger_js_url="docs/swagger-ui-bundle.js",
        swagger_css_url="docs/swagger-ui.css",
        swagger_favicon_url="data:,",
        swagger_ui_parameters={"validatorUrl": None, "tryItOutEnabled": True},
    )


@router.get("/docs/swagger-ui-bundle.js")
async def script(request: Request) -> Response:
    """Answers with Swagger UI's script."""
    return _asset("swagger-ui-bundle.js", request)


@router.get("/docs/swagger-ui.css")
async def style(request: Request) -> Response:
    """Answers with Swagger UI's style."""
    return _asset("swagger-ui.css", request)


def _asset(name: str, request: Request) -> Response:
    """Returns a file of the page, compressed if the client accepts that."""
    content = (files("murho.service.page") / "web" / f"{name}.gz").read_bytes()
    headers = {"cache-control": "public, max-age=86400", "vary": "accept-encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["content-encoding"] = "gzip"
    else:
        content = gzip.decompress(content)
    return Response(content, media_type=ASSETS[name], headers=headers)
