"""What one connection may do, over loopback with raw sockets."""

from __future__ import annotations

import gc
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from murho.service.http.connection import Connection
from tests.service.support import ROW
from tests.service.wire import GET, HOST, Served, Wire, served, wait_until

BODY = json.dumps({"inputs": [ROW]}).encode()
POST = b"POST /predict HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(BODY) + BODY + b"\r\n0\r\n"
HEADERS = [b"X-%d: y\r\n" % number for number in range(100)]
PREDICT = POST + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY


@pytest.fixture(scope="module")
def service() -> Iterator[Served]:
    with served(max_body_bytes=100_000) as service:
        yield service


@pytest.fixture
def wire(service: Served) -> Iterator[Wire]:
    """Return a connection to the service."""
    with service.wire() as wire:
        yield wire


@pytest.fixture(scope="module")
def hasty() -> Iterator[Served]:
    """Return a service with short times."""
    with served(header_timeout=0.3, idle_timeout=0.3, request_timeout=1.0, send_timeout=2.0) as service:
        yield service


@pytest.fixture
def slow_model(service: Served) -> Iterator[Callable[[float], None]]:
    """Make the answers of the service take some seconds, and count them in `service.model.calls`."""

    def take(seconds: float) -> None:
        service.model.before = lambda: time.sleep(seconds)

    service.model.calls.clear()
    yield take
    service.model.before = lambda: None


# What is no request


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
        b"nonsense\r\n\r\n",
        b"GET /healthz\xff HTTP/1.1\r\n" + HOST + b"\r\n",
        POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
        GET.replace(b"GET /healthz", b"CONNECT localhost:443"),
        GET[:-2] + b"X-Folded: a\r\n b\r\n\r\n",
    ],
)
def test_what_is_no_request_is_answered_with_a_problem_and_closed(service: Served, sent: bytes) -> None:
    before = service.errors("malformed-request")
    with service.wire() as wire:
        wire.send(sent)
        reply = wire.read()
        assert reply.status == 400
        assert "no HTTP" in reply.problem()["detail"]
        assert reply.headers["connection"] == "close"
        assert reply.headers["x-request-id"]
        assert wire.end() == b""
    assert service.errors("malformed-request") == before + 1


def test_the_target_may_name_the_host_once_more(service: Served) -> None:
    assert service.ask(GET.replace(b"/healthz", b"http://LOCALHOST/healthz")).status == 200


def test_an_answer_without_a_body_is_sent_before_its_connection_closes(wire: Wire) -> None:
    wire.send(b"HEAD /healthz HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n")
    assert wire.end().startswith(b"HTTP/1.1 200")


def test_head_and_body_of_an_answer_leave_in_one_piece(service: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces: list[bytes] = []

    class Noting:
        def __init__(self, transport: Any) -> None:
            self.transport = transport

        def __getattr__(self, name: str) -> Any:
            return getattr(self.transport, name)

        def write(self, data: bytes) -> None:
            pieces.append(data)
            self.transport.write(data)

    made = Connection.connection_made
    monkeypatch.setattr(
        Connection, "connection_made", lambda self, transport: made(self, cast("Any", Noting(transport)))
    )
    assert service.ask(GET).status == 200
    assert len(pieces) == 1


def test_a_closed_connection_leaves_no_circle_for_the_garbage_collector(
    service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connections() -> int:
        return sum(type(each) is Connection for each in gc.get_objects())

    gc.collect()
    monkeypatch.setattr(gc, "collect", lambda *_: 0)  # an idle service does it
    gc.disable()
    try:
        before = connections()
        for _ in range(3):
            service.ask(GET)
        wait_until(lambda: connections() <= before)
    finally:
        gc.enable()


def test_a_body_that_breaks_off_in_nonsense_is_answered_once(wire: Wire) -> None:
    wire.send(GET, POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n")
    assert wire.read().status == 200
    wire.send(b"xyz\r\n")
    assert wire.read().status == 400
    assert wire.end() == b""


# Sizes


@pytest.mark.parametrize(
    ("sent", "status", "said"),
    [
        ([GET[:-2] + b"X-Padding: " + b"x" * 40_000], 431, "32768 bytes"),
        ([GET[:-2] + b"X-Padding: ", *[b"x" * 1000] * 40], 431, "32768 bytes"),  # they never end
        ([GET[:-2], *HEADERS, b"\r\n"], 431, ""),
        ([CHUNKED, *[b"X: " + b"y" * 10_000 + b"\r\n"] * 100], 431, ""),  # trailers
        ([b"GET /healthz?" + b"x" * 20_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n"], 414, "16384 bytes"),
        ([b"GET /healthz?" + b"x" * 10**6], 431, "32768 bytes"),
    ],
)
def test_too_large_headers_and_targets_are_refused(service: Served, sent: list[bytes], status: int, said: str) -> None:
    reply = service.ask(*sent)
    assert (reply.status, said in reply.problem()["detail"]) == (status, True)


def test_so_many_headers_are_read_and_trailers_are_none(service: Served) -> None:
    assert service.ask(GET[:-2], *HEADERS[:98], b"\r\n").status == 200
    assert service.ask(CHUNKED, b"Accept: text/csv\r\n\r\n").headers["content-type"] == "application/json"


# Times


def test_headers_that_come_slowly_are_answered_408(hasty: Served) -> None:
    before = hasty.errors("slow-request")
    with hasty.wire() as wire:
        begin = time.monotonic()
        done = threading.Event()

        def drip() -> None:
            for byte in GET[:-4]:
                if done.wait(0.05):
                    return
                try:
                    wire.send(bytes([byte]))
                except OSError:
                    return

        thread = threading.Thread(target=drip)
        thread.start()
        reply = wire.read()
        done.set()
        thread.join()
        assert reply.status == 408
        assert "0.3 seconds" in reply.problem()["detail"]
        assert 0.2 < time.monotonic() - begin < 10
    assert hasty.errors("slow-request") == before + 1


def test_a_body_that_comes_slowly_is_answered_408_and_cut_off(hasty: Served) -> None:
    with hasty.wire() as wire:
        wire.send(POST + b"Content-Length: 1000\r\n\r\n")
        reply: list[int] = []
        thread = threading.Thread(target=lambda: reply.append(wire.read().status))
        thread.start()
        begin = time.monotonic()
        wait_until(lambda: not sends_a_byte(wire))
        thread.join()
        assert reply == [408]
        assert time.monotonic() - begin < 15


def sends_a_byte(wire: Wire) -> bool:
    time.sleep(0.05)
    try:
        wire.send(b" ")
    except OSError:
        return False
    return True


@pytest.mark.parametrize("first", [b"", GET, b"\r\n", GET + b"\r\n"])
def test_an_idle_connection_is_closed(hasty: Served, first: bytes) -> None:
    with hasty.wire() as wire:
        begin = time.monotonic()
        wire.send(first)
        if first.startswith(b"GET"):
            assert wire.read().status == 200
        assert wire.end() == b""
        assert 0.2 < time.monotonic() - begin < 10


def test_a_client_that_takes_nothing_of_its_answers_is_cut_off(hasty: Served) -> None:
    before = hasty.errors("slow-request")
    script = b"GET /web/swagger-ui-bundle.js HTTP/1.1\r\n" + HOST + b"\r\n"
    with hasty.wire() as wire:
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        wire.send(script * 20)
        wait_until(lambda: hasty.errors("slow-request") == before + 1)
    wait_until(lambda: len(hasty.server.server_state.connections) <= 1)


def test_a_client_that_takes_its_answer_slowly_gets_it(hasty: Served) -> None:
    script = b"GET /web/swagger-ui-bundle.js HTTP/1.1\r\n" + HOST + b"\r\n"
    with hasty.wire() as wire:
        wire.send(script * 8)
        size = 0
        for _ in range(10):
            time.sleep(0.2)
            size += len(wire.socket.recv(300_000))
        assert size > 1_000_000
    assert hasty.ask(GET).status == 200


# Bodies


def test_a_body_in_chunks_and_after_100_continue(service: Served) -> None:
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in BODY)
    with service.wire() as wire:
        wire.send(POST + b"Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert wire.status_line() == 100
        wire._file.readline()
        wire.send(chunks + b"0\r\n\r\n")
        assert wire.read().status == 200
        wire.send(GET)
        assert wire.read().status == 200


@pytest.mark.parametrize("header", [b"", b"Connection: close\r\n"])
def test_an_answer_before_the_end_of_the_body_can_be_read(wire: Wire, header: bytes) -> None:
    wire.send(POST + header + b"Content-Length: 5000000\r\n\r\n", *[b" " * 100_000] * 50)
    assert wire.read().status == 413
    if not header:
        wire.send(GET)
        assert wire.read().status == 200


@pytest.mark.parametrize("header", [b"", b"Connection: close\r\n"])
def test_a_body_that_nobody_reads_any_more_ends_in_time(hasty: Served, header: bytes) -> None:
    with hasty.wire() as wire:
        wire.send(POST + header + b"Content-Length: 500000000\r\n\r\n")
        assert wire.read().status == 413
        assert wire.end() == b""


@pytest.mark.parametrize("version", [b"HTTP/1.0", b"HTTP/1.1"])
@pytest.mark.parametrize("connection", [b"Upgrade", b"close, Upgrade", b"close\r\nConnection: Upgrade"])
def test_a_client_that_offers_another_protocol_is_served_in_this_one(
    service: Served, version: bytes, connection: bytes
) -> None:
    offer = b"Connection: " + connection + b"\r\nUpgrade: h2c\r\n"
    for request in (GET[:-2] + offer + b"\r\n", POST + offer + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY):
        with service.wire() as wire:
            wire.send(request.replace(b"HTTP/1.1", version))
            assert wire.read().status == 200
            if b"close" in connection or version == b"HTTP/1.0":
                assert wire.end() == b""
            else:
                wire.send(request)
                assert wire.read().status == 200


def test_however_a_request_is_cut_into_pieces_the_answers_are_the_same(service: Served) -> None:
    whole = GET + PREDICT + b"\r\n" + CHUNKED + b"\r\n" + GET
    for size in (1, 2, 7, 50, 1000):
        with service.wire() as wire:
            wire.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            wire.send(*[whole[start : start + size] for start in range(0, len(whole), size)])
            assert [wire.read().status for _ in range(4)] == [200] * 4


# HEAD


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/models", "/models/cars", "/docs", "/openapi.json", "/"])
def test_head_is_get_without_a_body(service: Served, path: str) -> None:
    rest = f" {path} HTTP/1.1\r\n".encode() + HOST + b"\r\n"
    whole = service.ask(b"GET" + rest)
    with service.wire() as wire:
        wire.send(b"HEAD" + rest)
        head = wire.read(bodiless=True)
        wire.send(GET)
        assert wire.read().status == 200
    assert head.status == whole.status == 200
    assert head.headers["content-length"] == str(len(whole.body))
    assert head.headers["content-type"] == whole.headers["content-type"]


# Clients that leave


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("pipelined", [1, 3])
def test_work_of_a_client_that_is_gone_is_dropped(
    service: Served, slow_model: Callable[[float], None], reset: bool, pipelined: int
) -> None:
    free = threading.Event()
    service.model.before = lambda: assert_free(free)
    blocker, gone = service.wire(), service.wire()
    try:
        blocker.send(PREDICT)  # takes the compute thread
        wait_until(lambda: len(service.model.calls) == 1)
        gone.send(PREDICT * pipelined)
        wait_until(lambda: service.metric("murho_pending_requests") == 2)
        if reset:
            gone.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        gone.close()
        wait_until(lambda: len(service.server.server_state.connections) == 1)
        wait_until(lambda: service.metric("murho_pending_requests") == 1)
        free.set()
        assert blocker.read().status == 200
        blocker.send(PREDICT)
        assert blocker.read().status == 200
        assert len(service.model.calls) == 2
    finally:
        free.set()
        blocker.close()


def test_what_a_full_queue_refuses_is_not_read() -> None:
    free, bad = threading.Event(), b"POST /predict HTTP/1.1\r\n" + HOST + b"Content-Length: 7\r\n\r\nno JSON"
    with served(max_pending=1) as service:
        assert service.ask(bad).status == 422
        service.model.before = lambda: assert_free(free)
        with service.wire() as blocker:
            try:
                blocker.send(PREDICT)  # takes the compute thread
                wait_until(lambda: len(service.model.calls) == 1)
                refused = service.ask(bad)
                assert (refused.status, refused.problem()["status"]) == (429, 429)
                assert int(refused.headers["retry-after"]) >= 1
                assert service.ask(GET).status == 200
            finally:
                free.set()
            assert blocker.read().status == 200


def assert_free(event: threading.Event) -> None:
    assert event.wait(20)


# The number of connections


def test_above_the_number_of_connections_a_client_is_told_so() -> None:
    with served(max_connections=3) as service:
        wait_until(lambda: not service.server.server_state.connections)
        held = [service.wire() for _ in range(3)]
        for refused in (False, True):  # those that are held are served before and after
            for _ in range(5 * refused):
                with service.wire() as late:
                    late.send(GET)
                    reply = late.read()
                    assert (reply.status, reply.headers["retry-after"], late.end()) == (503, "1", b"")
                    assert "all connections" in reply.problem()["detail"]
            for wire in held:
                wire.send(GET)
                assert wire.read().status == 200
        for wire in held:
            wire.close()
        wait_until(lambda: not service.server.server_state.connections)
        assert service.metric("murho_connections") >= 1


# Draining


def test_while_draining_each_answer_closes_and_no_request_is_lost() -> None:
    with served(drain_delay=2.0) as service:  # far longer than a thread of this test may be held up
        statuses: list[int] = []
        closed: list[bool] = []
        idle = service.wire()
        idle.send(GET)
        assert idle.read().status == 200

        def ask_until_closed() -> None:
            with service.wire() as wire:
                while True:
                    wire.send(PREDICT)
                    reply = wire.read()
                    statuses.append(reply.status)
                    if reply.headers.get("connection") == "close":
                        closed.append(wire.end() == b"")
                        return

        threads = [threading.Thread(target=ask_until_closed) for _ in range(24)]
        for thread in threads:
            thread.start()
        time.sleep(0.2)
        service.call(service.server.stop, 15)
        for thread in threads:
            thread.join(20)
        assert closed == [True] * 24
        assert set(statuses) == {200}
        assert idle.end() == b""
        idle.close()
