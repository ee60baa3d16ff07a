"""Clients that vanish, send a byte at a time, close half of a connection, or hold one: the others notice nothing."""

from __future__ import annotations

import json
import resource
import socket
import struct
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.e2e.traffic import Traffic, asks, differences, offline, wait_until
from tests.service.support import ROW

if TYPE_CHECKING:
    from murho.model.checkpoint.posterior import Posterior
    from tests.e2e.support import Service

BODY: dict[str, Any] = {"inputs": [ROW], "samples": 64}
IDLE = 10_000


def raw(body: dict[str, Any]) -> bytes:
    content = json.dumps(body).encode()
    head = "POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(content)}\r\n\r\n".encode() + content


def connect(service: Service) -> socket.socket:
    return socket.create_connection(("127.0.0.1", service.port), timeout=30.0)


def reset(connection: socket.socket) -> None:
    """Closes a connection without a farewell."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def pending(service: Service) -> float:
    line = next(
        line for line in service.client.get("/metrics").text.splitlines() if line.startswith("murho_pending_requests ")
    )
    return float(line.split()[1])


def test_clients_that_vanish_leave_nothing_behind(busy: Service, posterior: Posterior) -> None:
    request, heavy = raw(BODY), raw({"inputs": [ROW] * 500, "samples": 256})
    with Traffic(busy.port, asks(posterior, 30), threads=3) as traffic:
        for number in range(60):
            connection = connect(busy)
            sent = (request, heavy, request[: 20 + number], heavy[: len(heavy) // 2])[number % 4]
            connection.sendall(sent)
            if number % 3:
                time.sleep(0.005)
            reset(connection)
        traffic.wait_for(10)
    traffic.require()
    wait_until(lambda: pending(busy) == 0.0)


def test_a_request_in_single_bytes_is_answered_and_keeps_nobody_waiting(busy: Service, posterior: Posterior) -> None:
    with Traffic(busy.port, asks(posterior, 30), threads=2) as traffic, connect(busy) as slow:
        slow.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in raw(BODY):
            slow.sendall(bytes([byte]))
            time.sleep(0.002)
        assert slow.recv(4096).startswith(b"HTTP/1.1 200")
        traffic.wait_for(5)
    traffic.require()


@pytest.mark.slow
def test_a_client_that_sends_a_byte_a_second_is_let_go(busy: Service) -> None:
    begin = time.monotonic()
    with connect(busy) as slow:
        try:
            for byte in raw(BODY):
                slow.sendall(bytes([byte]))
                slow.settimeout(1.0)
                try:
                    said = slow.recv(4096)
                except TimeoutError:
                    continue
                assert not said or said.startswith((b"HTTP/1.1 408", b"HTTP/1.1 400"))
                break
        except OSError:
            pass
    assert time.monotonic() - begin < 65.0


def test_a_client_that_only_listens_after_its_request_is_answered(busy: Service, posterior: Posterior) -> None:
    with connect(busy) as connection:
        connection.sendall(raw(BODY))
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 200")
    assert not differences(json.loads(answer.partition(b"\r\n\r\n")[2]), offline(posterior, BODY))


@pytest.mark.slow
def test_ten_thousand_idle_connections_keep_nobody_waiting(busy: Service, posterior: Posterior) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < IDLE + 500:
        pytest.skip(f"the most open files are {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    before = busy.memory()
    idle: list[socket.socket] = []
    try:
        with Traffic(busy.port, asks(posterior, 30), threads=2) as traffic:
            traffic.wait_for(5)
            idle += (connect(busy) for _ in range(IDLE))
            traffic.wait_for(50)
        assert busy.memory() - before < IDLE * 50_000
    finally:
        for connection in idle:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    traffic.require()
    assert httpx.post(f"{busy.address}/predict", json=BODY).status_code == 200
