from __future__ import annotations

import gzip
import hashlib
import re

import pytest

from murho.service.page.routes import CONTENT_SECURITY_POLICY
from tests.service.support import AppClient
from tests.support import ROOT

WEB = ROOT / "service" / "page" / "web"


@pytest.mark.parametrize("name", ["", "web/page/main.js", "web/page/style.css"])
def test_files_come_compressed_only_to_those_who_take_it(client: AppClient, name: str) -> None:
    plain = client.get(f"/{name}", headers={"accept-encoding": "identity"})
    small = client.get(f"/{name}", headers={"accept-encoding": "gzip"})
    assert "content-encoding" not in plain.headers
    assert small.headers["content-encoding"] == "gzip"
    assert int(small.headers["content-length"]) < len(plain.content)
    assert small.content == plain.content
    assert plain.headers["vary"] == "Accept-Encoding"


@pytest.mark.parametrize(
    ("name", "kind"),
    [("vega/vega.min.js", "text/javascript"), ("swagger-ui.css", "text/css"), ("page/icon.svg", "image/")],
)
def test_files_have_their_media_type_and_libraries_are_kept_for_a_day(client: AppClient, name: str, kind: str) -> None:
    response = client.get(f"/web/{name}")
    assert response.headers["content-type"].startswith(kind)
    assert ("max-age=86400" in response.headers["cache-control"]) is not name.startswith("page/")
    assert response.content == _stored(name)


def _stored(name: str) -> bytes:
    packed = WEB / f"{name}.gz"
    return gzip.decompress(packed.read_bytes()) if packed.exists() else (WEB / name).read_bytes()


def test_a_file_that_did_not_change_is_not_sent_again(client: AppClient) -> None:
    first = client.get("/web/page/style.css")
    again = client.get("/web/page/style.css", headers={"if-none-match": f'"other", {first.headers["etag"]}'})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get("/web/page/style.css", headers={"if-none-match": '"other"'}).status_code == 200


@pytest.mark.parametrize("name", ["nothing.js", "../settings.py", "page/../../settings.py", "/etc/passwd", "page", ""])
def test_no_other_file_is_served(client: AppClient, name: str) -> None:
    assert client.get(f"/web/{name.replace('/', '%2f')}").status_code == 404


def test_code_from_text_and_from_other_hosts_is_forbidden(client: AppClient) -> None:
    policy = client.get("/").headers["content-security-policy"]
    assert policy == CONTENT_SECURITY_POLICY
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none'")


def test_the_chart_library_is_what_its_readme_says() -> None:
    named = re.findall(
        r"^\| `([\w.-]+)` \| [\w. -]+ \| `([0-9a-f]{64})` \|$", (WEB / "vega" / "README.md").read_text(), re.M
    )
    assert {f"{name}.gz" for name, _ in named} == {path.name for path in (WEB / "vega").glob("*.gz")}
    for name, digest in named:
        content = gzip.decompress((WEB / "vega" / f"{name}.gz").read_bytes())
        assert hashlib.sha256(content).hexdigest() == digest, name
        assert (WEB / "vega" / f"{name.removesuffix('.min.js')}.LICENSE.txt").is_file()


@pytest.mark.parametrize(("path", "files"), [("/", 6), ("/docs", 2)])
def test_everything_a_page_loads_comes_from_the_service(client: AppClient, path: str, files: int) -> None:
    response = client.get(path)
    assert response.headers["content-type"].startswith("text/html")
    assert not re.search(r'(?<!<a )(?:src|href)="(?:https?:)?//', response.text)
    loaded = re.findall(r'(?:src|href)="(web/[^"]+)"', response.text)
    assert len(loaded) == files
    for address in loaded:
        assert client.get(f"/{address}").status_code == 200, address
