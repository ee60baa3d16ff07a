"""The names that are answered, the pages that may ask, the sizes of headers: in process, and over loopback."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import murho.service
from murho.service.http.middleware import PARSED
from tests.service.support import ROW, AppClient, FakeModel, make_client
from tests.service.test_callers import KEY, stored
from tests.service.wire import Served, served

if TYPE_CHECKING:
    from collections.abc import Iterator

EVIL = {"origin": "http://evil.example"}
PATHS = ("/", "/healthz", "/readyz", "/metrics", "/models", "/docs", "/v2", "/v2/health/live", "/ping", "/nothing")
ALL_INTERFACES = "0.0.0.0"  # noqa: S104 - nothing listens there
CHANGES = (
    *("/predict", "/models/cars/predict", "/invocations", "/v2/models/cars/infer"),
    *("/models/cars/load", "/models/cars/unload"),
    *("/v2/repository/models/cars/load", "/v2/repository/models/cars/unload"),
)


@pytest.fixture(scope="module")
def local() -> Iterator[Served]:
    """A service without keys on 127.0.0.1."""
    with served() as service:
        yield service


def status(service: Served, path: str, host: str, method: str = "GET", more: str = "") -> int:
    head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{more}Content-Length: 0\r\n\r\n"
    return service.ask(head.encode()).status


# The names that are answered


@pytest.mark.parametrize("path", PATHS)
def test_a_rebound_name_reaches_no_path_of_a_local_service_without_keys(local: Served, path: str) -> None:
    assert status(local, path, "evil.example") == 421


@pytest.mark.parametrize("path", CHANGES)
def test_nor_does_its_page_change_anything(local: Served, path: str) -> None:
    assert status(local, path, "evil.example", "POST", "Origin: http://evil.example\r\n") == 421
    assert status(local, "/readyz", "localhost") == 200


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "a.localhost", "localhost.", "127.0.0.1:8000", "127.3.2.1", "[::1]:8000"]
)
def test_names_of_this_machine_are_answered(local: Served, host: str) -> None:
    assert status(local, "/healthz", host) == 200


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1.evil.example", "localhost.evil.example", "evillocalhost", "10.0.0.1", "::1", ""),
        *("localhost:80@evil.example", "localhost:x", "[::1", "[localhost]", "0x7f.1", "2130706433", "127.1"),
    ],
)
def test_what_only_looks_like_them_is_not(local: Served, host: str) -> None:
    assert status(local, "/healthz", host) == 421


def test_a_client_of_http_1_0_may_leave_the_host_out(local: Served) -> None:
    assert local.ask(b"GET /healthz HTTP/1.0\r\n\r\n").status == 200


def test_other_names_are_a_setting() -> None:
    with served(hosts="murho.example, *.test") as service:
        expected = {"murho.example:80": 200, "Murho.Example": 200, "a.test": 200, "localhost": 200, "test": 421}
        assert {host: status(service, "/healthz", host) for host in expected} == expected
        same = "Origin: https://murho.example\r\n"  # a proxy that ends TLS, and sends its own idea of the host
        assert status(service, "/models/cars/load", "localhost", "POST", same) == 200


@pytest.mark.parametrize("settings", [{"host": ALL_INTERFACES}, {"host": "::"}, {"api_keys": (stored("web", KEY),)}])
def test_with_keys_or_on_all_interfaces_every_name_is_answered(settings: dict[str, Any]) -> None:
    with served(**settings) as service:
        assert status(service, "/healthz", "murho.example") == 200


def test_the_address_of_a_connection_is_always_a_name_as_for_probes_of_kubernetes() -> None:
    with make_client(FakeModel(), host=ALL_INTERFACES, hosts="murho.example") as client:
        # httpx's in-process transport takes the connection's own address from the URL.
        assert client.get("http://10.1.2.3:8000/healthz").status_code == 200
        assert client.get("http://10.1.2.3:8000/healthz", headers={"host": "10.1.2.4"}).status_code == 421


# The pages that may ask


@pytest.mark.parametrize("path", CHANGES)
@pytest.mark.parametrize(
    "headers",
    [
        EVIL,
        {"origin": "null"},
        {"origin": "http://service:3000"},
        {"origin": "http://service.evil.example"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "origin": "http://service:3000"},
    ],
)
def test_a_page_of_another_site_changes_nothing(client: AppClient, path: str, headers: dict[str, str]) -> None:
    response = client.post(path, content=b"", headers=headers)
    assert response.status_code == 403
    assert "access-control-allow-origin" not in response.headers
    assert client.get("/readyz").status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "http://service"},
        {"origin": "https://service"},
        {"origin": "http://service", "host": "service:80"},
        {"origin": "https://service", "host": "service:443"},
        {"origin": "https://murho.example", "sec-fetch-site": "same-origin"},  # a proxy that changes the host
    ],
)
def test_the_pages_of_the_service_and_programs_may_ask(client: AppClient, headers: dict[str, str]) -> None:
    assert client.post("/predict", {"inputs": [ROW]}, headers=headers).status_code == 200
    assert client.post("/models/cars/load", headers=headers).status_code == 200


@pytest.mark.parametrize("hosts", ["*", "*.example"])
def test_a_pattern_of_hosts_makes_no_origin_the_own_one(hosts: str) -> None:
    with make_client(FakeModel(), host=ALL_INTERFACES, hosts=hosts) as client:
        headers = {**EVIL, "host": "own.example"}
        assert client.post("/models/cars/unload", headers=headers).status_code == 403


PREFLIGHT = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}


def test_pages_of_origins_in_the_settings_may_ask_and_read() -> None:
    app = {"origin": "https://app.example"}
    with make_client(FakeModel(), cors_origins=("https://app.example",), api_keys=(stored("web", KEY),)) as client:
        asked = client.request("OPTIONS", "/predict", headers=app | PREFLIGHT)  # without a key, as browsers do
        assert asked.status_code == 200
        assert asked.headers["access-control-allow-origin"] == "https://app.example"
        assert "authorization" in asked.headers["access-control-allow-headers"]
        answer = client.post("/predict", {"inputs": [ROW]}, headers={**app, "x-api-key": KEY})
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "https://app.example")
        assert "x-request-id" in answer.headers["access-control-expose-headers"]
        refused = client.post("/predict", {"inputs": [ROW]}, headers=app)
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, "https://app.example")
        other = client.request("OPTIONS", "/predict", headers=EVIL | PREFLIGHT)
        assert other.status_code == 400
        assert "access-control-allow-origin" not in other.headers
        assert client.post("/predict", {"inputs": [ROW]}, headers={**EVIL, "x-api-key": KEY}).status_code == 403


# Sizes


@pytest.mark.parametrize("name", sorted(name.decode() for name in PARSED - {b"host", b"content-length"}))
def test_a_header_that_is_read_is_short(client: AppClient, name: str) -> None:
    response = client.get("/healthz", headers={name: "a," * 513})
    assert response.status_code == 431
    assert f"{name} has 1026 bytes" in response.json()["detail"]
    assert client.get("/healthz", headers={name: "a," * 512}).status_code == 200


def test_the_headers_that_the_service_reads_are_those_of_bounded_size() -> None:
    read = re.compile(r"""headers(?:\.get\(|\[)["']([a-z-]+)["']""")
    files = Path(murho.service.__file__).parent.rglob("*.py")
    found = {name.encode() for file in files for name in read.findall(file.read_text())} - {b"vary"}
    assert {b"accept", b"accept-encoding", b"content-type", b"x-request-timeout"} <= found
    assert found <= PARSED


def test_cookies_are_not_read(client: AppClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(_: str) -> None:
        raise AssertionError

    # A quoted cookie of 30 kB takes it two seconds.
    monkeypatch.setattr("starlette.requests.cookie_parser", read)
    assert client.get("/models", headers={"cookie": 'a="' + 10_000 * "\\1" + '"'}).status_code == 200


def test_a_query_has_few_parameters(client: AppClient) -> None:
    assert client.get("/models?" + "a&" * 99).status_code == 200
    response = client.get("/models?" + "a&" * 100)
    assert (response.status_code, response.json()["type"]) == (414, "urn:murho:problem:target-too-long")


# Behind proxies


def callers(client: AppClient, *forwarded: str) -> list[int]:
    return [client.get("/models", headers={"x-forwarded-for": given}).status_code for given in forwarded]


def test_nobody_else_says_who_the_client_is() -> None:
    with make_client(FakeModel(), requests_per_second=0.01, burst_seconds=100) as client:
        assert callers(client, "1.1.1.1", "1.1.1.2", "1.1.1.3") == [200, 429, 429]


def test_over_a_socket_too() -> None:
    with served(requests_per_second=0.01, burst_seconds=100) as service:
        asked = [status(service, "/models", "localhost", "GET", f"X-Forwarded-For: 1.1.1.{n}\r\n") for n in range(3)]
        assert asked == [200, 429, 429]  # of uvicorn's own: it believes what comes from this machine


def test_what_a_trusted_proxy_says_counts_from_the_right() -> None:
    # httpx's in-process client is 127.0.0.1.
    trusted = "127.0.0.0/8, 10.0.0.7"
    with make_client(FakeModel(), requests_per_second=0.01, burst_seconds=100, trusted_proxies=trusted) as client:
        assert callers(client, "1.1.1.1", "1.1.1.1", "1.1.1.2") == [200, 429, 200]
        assert callers(client, "9.9.9.1, 1.1.1.3", "9.9.9.2, 1.1.1.3", "9.9.9.3, 1.1.1.3, 10.0.0.7") == [200, 429, 429]


def test_a_proxy_may_show_the_service_below_a_path_and_take_it_off_or_not() -> None:
    with make_client(FakeModel(), root_path="/murho") as client:
        for path in ("/murho/models", "/models"):
            assert client.get(path).json()["models"][0]["name"] == "cars"
        assert client.get("/murho").status_code == client.get("/murho/").status_code == 200
        assert client.get("/murhoo/models").status_code == 404
        assert client.get("/murho/openapi.json").json()["servers"] == [{"url": "/murho"}]
