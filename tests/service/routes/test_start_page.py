from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.service.support import AppClient


def test_the_start_page_is_html_and_names_the_models(client: AppClient) -> None:
    response = client.get("/")
    assert response.headers["content-type"].startswith("text/html")
    assert "cars" in response.text
    assert "http://service/models/cars/predict" in response.text


def test_the_host_of_the_request_is_escaped(client: AppClient) -> None:
    assert "<script>" not in client.get("/", headers={"host": "<script>"}).text
