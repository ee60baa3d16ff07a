"""`GET /`: the page for people, and `GET /web/…`: the files that it loads.

They are the same for everybody and say nothing of the models, so they need no API key: the page asks for one.
"""

from http import HTTPStatus

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

from murho.service.page.web_files import CONTENT_SECURITY_POLICY, web_file
from murho.service.predict.compression import accepted_coding

__all__ = ["router"]

router = APIRouter(include_in_schema=False)


@router.get("/")
async def page(request: Request) -> Response:
    """Answers with the page; its links are relative, so that it works behind a path prefix."""
    return _answer("index.html", request)


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
