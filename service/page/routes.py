"""The pages for people: `GET /`, `GET /docs`, the API by Swagger UI, and `GET /web/…`, the files that both load.

The files are the same for everybody and say nothing of the models, so they need no API key: the page asks for one. They
lie in `service/page/web/`: `index.html`, the page's own files in `page/`, with a folder for each kind of target, the
chart library in `vega/` and Swagger UI, which are stored compressed. Links are relative, so that they work behind a
path prefix, and nothing comes from another host.
"""

import gzip
import hashlib
from functools import lru_cache
from http import HTTPStatus
from importlib.resources import files
from pathlib import PurePosixPath
from typing import NamedTuple

from fastapi import APIRouter, Request, Response
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.exceptions import HTTPException

from murho.service.predict.memory import accepted_coding, compressed

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
SWAGGER = ("swagger-ui-bundle.js", "swagger-ui.css")
FOLDERS = ("page", "page/numbers", "page/classes", "vega")
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""What the page may load: nothing but what this service sends, and no code from text."""


class WebFile(NamedTuple):
    """One file of the page.

    Attributes:
        content: Its bytes.
        compressed: The same as gzip data; None if it is too small to be worth it.
        media_type: The `Content-Type`.
        tag: The `ETag`: weak, as both forms share it.
        changes: Whether it changes with Murho itself; libraries are kept by browsers for a day.
    """

    content: bytes
    compressed: bytes | None
    media_type: str
    tag: str
    changes: bool


def web_file(name: str) -> WebFile | None:
    """Returns a file by its path below `service/page/web/`, such as `page/main.js`; None if there is no such file."""
    return _read(name) if name in file_names() else None


@lru_cache(maxsize=1)
def file_names() -> frozenset[str]:
    """Returns the names that `web_file` knows."""
    root = files("murho.service.page") / "web"
    names = {"index.html", *SWAGGER}
    for folder in FOLDERS:
        for entry in (root / folder).iterdir():
            name = entry.name.removesuffix(".gz")
            if PurePosixPath(name).suffix in TYPES:
                names.add(f"{folder}/{name}")
    return frozenset(names)


@lru_cache(maxsize=64)
def _read(name: str) -> WebFile:
    root = files("murho.service.page") / "web"
    place = root / name
    small: bytes | None
    if place.is_file():
        content = place.read_bytes()
        small = compressed(content)
    else:
        small = (root / f"{name}.gz").read_bytes()
        content = gzip.decompress(small)
    return WebFile(
        content=content,
        compressed=small,
        media_type=TYPES[PurePosixPath(name).suffix],
        tag=f'W/"{hashlib.sha256(content).hexdigest()[:20]}"',
        changes=place.is_file(),
    )


router = APIRouter(include_in_schema=False)


@router.get("/")
async def page(request: Request) -> Response:
    """Answers with the page; its links are relative, so that it works behind a path prefix."""
    return _answer("index.html", request)


@router.get("/docs")
async def docs() -> Response:
    """Answers with the description of the API."""
    return get_swagger_ui_html(
        openapi_url="openapi.json",
        title="Murho: API",
        swagger_js_url="web/swagger-ui-bundle.js",
        swagger_css_url="web/swagger-ui.css",
        swagger_favicon_url="data:,",
        swagger_ui_parameters={"validatorUrl": None, "tryItOutEnabled": True},
    )


@router.get("/web/{name:path}")
async def file_of_page(name: str, request: Request) -> Response:
    """Answers with a file of the page."""
    return _answer(name, request)


def _answer(name: str, request: Request) -> Response:
    """Returns a file, compressed if the client takes that; nothing but 304 if the client has it already."""
    file = web_file(name)
    if file is None:
        raise HTTPException(HTTPStatus.NOT_FOUND)
    headers = {
        "etag": file.tag,
        # "no-cache" lets a browser keep the file, and makes it ask whether it is still the same.
        "cache-control": "no-cache" if file.changes else "public, max-age=86400",
        "vary": "accept-encoding",
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "content-security-policy": CONTENT_SECURITY_POLICY,
    }
    known = {tag.strip() for tag in request.headers.get("if-none-match", "").split(",")}
    if file.tag in known or "*" in known:
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    body = file.content
    if file.compressed is not None and accepted_coding(request.headers.get("accept-encoding", "")) == "gzip":
        body = file.compressed
        headers["content-encoding"] = "gzip"
    return Response(body, media_type=file.media_type, headers=headers)
