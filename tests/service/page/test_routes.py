from __future__ import annotations

import gzip
import hashlib
import re
from typing import TYPE_CHECKING

import pytest

from murho.service.page.routes import CONTENT_SECURITY_POLICY, web_file
from tests.support import ROOT

if TYPE_CHECKING:
    from tests.service.support import AppClient

WEB = ROOT / "service" / "page" / "web"


def test_everything_the_page_loads_comes_from_the_service(client: AppClient) -> None:
    response = client.get("/")
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    loaded = re.findall(r'(?:src|href)="(web/[^"]+)"', response.text)
    assert len(loaded) == 6
    for address in loaded:
        assert client.get(f"/{address}").status_code == 200, address
    assert re.findall(r'(?:src|href)="(?:https?:)?//', response.text) == []


@pytest.mark.parametrize("name", ["", "web/page/main.js", "web/vega/vega.min.js", "web/swagger-ui.css"])
def test_files_come_compressed_only_to_those_who_take_it(client: AppClient, name: str) -> None:
    plain = client.get(f"/{name}", headers={"accept-encoding": "identity"})
    small = client.get(f"/{name}", headers={"accept-encoding": "gzip"})
    assert "content-encoding" not in plain.headers
    assert small.headers["content-encoding"] == "gzip"
    assert int(small.headers["content-length"]) < len(plain.content)
    assert small.content == plain.content
    assert plain.headers["vary"] == "accept-encoding"


def test_a_file_that_did_not_change_is_not_sent_again(client: AppClient) -> None:
    first = client.get("/web/page/style.css")
    again = client.get("/web/page/style.css", headers={"if-none-match": f'"other", {first.headers["etag"]}'})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get("/web/page/style.css", headers={"if-none-match": '"other"'}).status_code == 200


@pytest.mark.parametrize(
    "name", ["nothing.js", "../settings.py", "page/../../settings.py", "vega/README.md", "page", ""]
)
def test_no_other_file_is_served(client: AppClient, name: str) -> None:
    assert client.get(f"/web/{name.replace('/', '%2f')}").status_code == 404
    assert web_file(name) is None


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


def test_everything_the_description_of_the_api_loads_comes_from_the_service(client: AppClient) -> None:
    response = client.get("/docs")
    assert response.headers["content-type"].startswith("text/html")
    assert "http:" not in response.text
    assert "https:" not in response.text
    loaded = re.findall(r'(?:src|rel="stylesheet" href)="([^"]+)"', response.text)
    assert len(loaded) == 2
    for address in loaded:
        assert client.get(f"/{address}").status_code == 200
