"""The pages for people: `GET /`, `GET /docs`, the API by Swagger UI, and `GET /web/…`, the files that both load.

The files are the same for everybody and say nothing of the models, so they need no API key: the page asks for one. They
lie in `service/page/web/`: `index.html`, the page's own files in `page/`, with a folder for each kind of target, the
chart library in `vega/` and Swagger UI. Libraries are stored as gzip data, and sent as they are. Links are relative, so
that they work behind a path prefix, and nothing comes from another host.
"""

import os
from os import PathLike

from fastapi import APIRouter, Response
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""What the page may load: nothing but what this service sends, and no code from text."""
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "content-security-policy": CONTENT_SECURITY_POLICY,
}


class PageFiles(StaticFiles):
    """The files below `service/page/web/`."""

    def get_path(self, scope: Scope) -> str:
        """Return the path of a file below the directory."""
        return os.path.normpath(str(scope["path_params"].get("name", "index.html")))

    def lookup_path(self, path: str) -> tuple[str, os.stat_result | None]:
        """Return where a file is, or where its gzip data are."""
        found, status = super().lookup_path(path)
        return (found, status) if status is not None else super().lookup_path(f"{path}.gz")

    def file_response(
        self, full_path: str | PathLike[str], stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        """Return a file; browsers keep libraries for a day, and ask whether the other files have changed."""
        response = super().file_response(full_path, stat_result, scope, status_code)
        is_library = str(full_path).endswith(".gz")
        kept = {"content-encoding": "gzip", "cache-control": "public, max-age=86400"}
        response.headers.update(HEADERS | (kept if is_library else {"cache-control": "no-cache"}))
        return response


FILES = GZipMiddleware(PageFiles(packages=[("murho.service.page", "web")]), compresslevel=1)

router = APIRouter(
    include_in_schema=False, routes=[Route(path, FILES, methods=["GET"]) for path in ("/", "/web/{name:path}")]
)


@router.get("/docs")
async def docs() -> Response:
    """Answer with the description of the API."""
    return get_swagger_ui_html(
        openapi_url="openapi.json",
        title="Murho: API",
        swagger_js_url="web/swagger-ui-bundle.js",
        swagger_css_url="web/swagger-ui.css",
        swagger_favicon_url="data:,",
        swagger_ui_parameters={"validatorUrl": None, "tryItOutEnabled": True},
    )
