"""The names that are answered, the pages that may ask, the sizes of headers: in process, and over loopback."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import murho.service
from murho.service.http.middleware import PARSED
from tests.service.support import ROW, AppClient, FakeModel, failing, make_client, pointers
from tests.service.test_security import ADMIN, KEY, stored
from tests.service.wire import Served, served


def test_other_methods_are_answered_by_the_framework(client: AppClient) -> None:
    for path in ("/predict", "/invocations", "/v2/models/cars/infer"):
        response = client.get(path)
        assert (response.status_code, response.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("given", ["a b", "x" * 200, "<script>", ""])
def test_any_other_request_id_is_replaced(client: AppClient, given: str) -> None:
    assert client.get("/healthz", headers={"x-request-id": given}).headers["x-request-id"] != given


KEYS = (stored("web", KEY), stored("ops", ADMIN, ":admin"))
WEB = {"authorization": f"Bearer {KEY}"}


@pytest.fixture
def guarded() -> Iterator[AppClient]:
    with make_client(FakeModel(), api_keys=KEYS, open_paths=("/metrics",)) as client:
        yield client


@pytest.mark.parametrize(
    "path",
    ["/models", "/models/cars/overview", "/docs", "/openapi.json", "/nothing", "/predict", "/models/cars/predict"],
)
def test_without_a_key_every_path_is_closed(guarded: AppClient, path: str) -> None:
    for method in ("GET", "POST", "PUT", "HEAD"):
        response = guarded.request(method, path, content=b"{" if method == "POST" else None)
        assert response.status_code == 401, method
        assert response.headers["www-authenticate"] == "Bearer"
        assert response.headers["content-type"] == "application/problem+json"


def test_health_and_what_settings_open_need_none(guarded: AppClient) -> None:
    assert [guarded.get(path).status_code for path in ("/healthz", "/readyz", "/metrics")] == [200, 200, 200]


def test_a_key_opens_the_service(guarded: AppClient) -> None:
    assert guarded.get("/models", headers=WEB).status_code == 200
    assert guarded.get("/models", headers={"x-api-key": KEY}).status_code == 200
    assert guarded.post("/predict", {"inputs": [ROW]}, headers=WEB).status_code == 200


def test_the_body_of_a_stranger_is_not_read(guarded: AppClient) -> None:
    read = False

    async def body() -> object:
        nonlocal read
        read = True
        yield b"{}"

    assert guarded.post("/predict", content=body()).status_code == 401
    # httpx's in-process transport sends a body only when the application asks for it.
    assert not read


def test_the_description_shows_how_to_send_a_key(guarded: AppClient) -> None:
    document = guarded.get("/openapi.json", headers=WEB).json()
    assert document["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    predict, alive = document["paths"]["/predict"]["post"], document["paths"]["/healthz"]["get"]
    assert predict["security"] == [{"bearer": []}, {"header": []}]
    assert "401" in predict["responses"]
    assert "security" not in alive
    assert "401" not in alive["responses"]


def test_too_many_requests_of_a_caller_are_told_when_to_come_back() -> None:
    with make_client(FakeModel(), requests_per_second=0.1, burst_seconds=20) as client:
        statuses = [client.get("/models").status_code for _ in range(3)]
        assert statuses == [200, 200, 429]
        response = client.get("/models")
        assert response.json()["type"] == "urn:murho:problem:rate-limited"
        assert int(response.headers["retry-after"]) in (9, 10)
        assert client.get("/healthz").status_code == 200


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("/predict", {"headers": {"content-type": "application/json"}}),
        ("/predict", {"headers": {"content-type": "text/csv", "content-length": "x"}}),
        ("/invocations", {"headers": {"content-type": "application/json"}}),
        ("/v2/models/cars/infer", {}),
    ],
)
def test_a_refused_body_costs_its_caller_something(path: str, sent: dict[str, Any]) -> None:
    with make_client(FakeModel(), row_draws_per_second=1000, burst_seconds=1) as client:
        body = b'"' * 2**23
        refused = client.post(path, content=body, **sent)
        assert refused.status_code in {400, 413, 422}
        response = client.post(path, content=body, **sent)
        assert response.status_code == 429
        assert int(response.headers["retry-after"]) == pytest.approx(2**23 / 16 / 1000, rel=0.02)


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
    """Return a service without keys on 127.0.0.1."""
    with served() as service:
        yield service


def status(service: Served, path: str, host: str, method: str = "GET", more: str = "") -> int:
    head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{more}Content-Length: 0\r\n\r\n"
    return service.ask(head.encode()).status


async def chunks() -> AsyncIterator[bytes]:
    for _ in range(20):
        yield b" " * 100


@pytest.mark.parametrize(
    ("body", "length", "status"),
    [
        (chunks(), None, 413),
        (b" " * 1001, None, 413),
        *((b"{}", length, status) for length, status in (("9" * 1000, 413), ("-1", 422), ("x", 422), ("1e9", 422))),
    ],
)
def test_bodies_above_the_limit_and_senseless_lengths_are_refused(body: Any, length: str | None, status: int) -> None:
    with make_client(FakeModel(), max_body_bytes=1000) as client:
        response = client.post("/predict", content=body, headers={} if length is None else {"content-length": length})
        assert response.status_code == status
        assert status == 422 or "1000 bytes" in response.json()["detail"]


def test_a_failure_of_the_service_is_answered_without_a_trace(client: AppClient, model: FakeModel) -> None:
    model.before = failing
    of_engine = client.post("/predict", {"inputs": [ROW]})
    client.state["service"].registry.snapshot = None
    for response in (of_engine, client.get("/models")):
        assert pointers(response, 500) == []
        assert response.json()["type"] == "urn:murho:problem:internal"
        assert response.headers["x-request-id"] in response.json()["detail"]
        assert not re.search("secret|Traceback", response.text)


# The names that are answered


def test_a_rebound_name_reaches_no_path_of_a_local_service_without_keys(local: Served) -> None:
    for path in PATHS:
        assert status(local, path, "evil.example") == 421
    for path in CHANGES:
        assert status(local, path, "evil.example", "POST", "Origin: http://evil.example\r\n") == 421
    assert status(local, "/readyz", "localhost") == 200


NAMES = ["localhost", "LOCALHOST:1", "a.localhost", "localhost.", "127.0.0.1:8000", "127.3.2.1", "[::1]:8000"]
OTHERS = [
    *("127.0.0.1.evil.example", "localhost.evil.example", "evillocalhost", "10.0.0.1", "::1", ""),
    *("localhost:80@evil.example", "localhost:x", "[::1", "[localhost]", "0x7f.1", "2130706433", "127.1"),
]


@pytest.mark.parametrize(("host", "answer"), [*((name, 200) for name in NAMES), *((name, 421) for name in OTHERS)])
def test_names_of_this_machine_are_answered_and_what_only_looks_like_them_is_not(
    local: Served, host: str, answer: int
) -> None:
    assert status(local, "/healthz", host) == answer


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


@pytest.mark.parametrize(
    ("hosts", "origin", "keyless", "status"),
    [
        ("*.test", "http://evil.example", True, 403),
        ("*.test", "https://murho.test:8443", True, 200),  # a proxy that changes the host
        ("murho.test", "https://MURHO.test:8443", True, 200),
        ("*", "http://evil.example", True, 403),  # without keys all could be changed by pages of strangers
        ("*", "https://murho.test", False, 200),
        ("*", "null", False, 403),
    ],
)
def test_pages_of_the_names_of_the_service_may_ask(hosts: str, origin: str, keyless: bool, status: int) -> None:
    settings: dict[str, Any] = {} if keyless else {"api_keys": (stored("web", KEY, ":admin"),)}
    with make_client(FakeModel(), host=ALL_INTERFACES, hosts=(*hosts.split(), "backend"), **settings) as client:
        headers = {"origin": origin, "host": "backend:8000", "x-api-key": KEY}
        assert client.post("/models/cars/load", headers=headers).status_code == status


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
