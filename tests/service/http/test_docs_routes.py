from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.service.support import AppClient


def test_everything_the_page_loads_comes_from_the_service(client: AppClient) -> None:
    response = client.get("/docs")
    assert response.headers["content-type"].startswith("text/html")
    assert "http:" not in response.text
    assert "https:" not in response.text
    loaded = re.findall(r'(?:src|rel="stylesheet" href)="([^"]+)"', response.text)
    assert len(loaded) == 2
    for address in loaded:
        assert client.get(f"/{address}").status_code == 200


@pytest.mark.parametrize("accepted", ["gzip", "identity"])
@pytest.mark.parametrize(("name", "begin"), [("swagger-ui-bundle.js", "/*!"), ("swagger-ui.css", ".swagger-ui")])
def test_files_come_compressed_only_to_those_who_take_it(
    client: AppClient, name: str, begin: str, accepted: str
) -> None:
    response = client.get(f"/docs/{name}", headers={"accept-encoding": accepted})
    assert response.text.startswith(begin)
    assert ("content-encoding" in response.headers) == (accepted == "gzip")
