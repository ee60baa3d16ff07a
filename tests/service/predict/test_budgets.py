"""What requests in flight take is bounded for all of them together, and freed memory goes back to the system."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from contextlib import ExitStack
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest

from murho.service.errors import BadInputError, DeadlineError, QueueFullError, TooLargeError
from murho.service.predict.budgets import SMALL_BYTES, ByteBudget, Lease, choose_coding, decompress
from tests.service.bodies import ARROW, CSV, JSON, WRITERS
from tests.service.protocols.support import row_tensors
from tests.service.support import ROW, FakeModel, make_client
from tests.service.wire import Served, Wire, served, wait_until

PIECE = b"[1,2],\n" * 9362  # a little less than 64 KiB
PIECES = 48


def test_small_requests_have_a_quarter_for_themselves() -> None:
    budget = ByteBudget(16 * SMALL_BYTES)
    large, small, more = Lease(budget), Lease(budget), Lease(budget)
    large.resize(12 * SMALL_BYTES)
    with pytest.raises(QueueFullError) as refused:
        more.resize(SMALL_BYTES + 1)
    assert refused.value.retry_after
    more.resize(SMALL_BYTES)
    small.resize(SMALL_BYTES)
    with pytest.raises(QueueFullError):
        small.resize(SMALL_BYTES + 1)
    for share in (large, small, more):
        share.resize(0)
    assert budget.taken == 0


def test_large_answers_wait_for_their_turn() -> None:
    asyncio.run(_waiting())


async def _waiting() -> None:
    budget = ByteBudget(10)
    await budget.wait(30, 1.0)
    waiting = [asyncio.ensure_future(budget.wait(6, 30.0)) for _ in range(2)]
    with pytest.raises(DeadlineError):
        await budget.wait(1, 0.02)
    assert not any(task.done() for task in waiting)
    budget.taken -= 30
    await waiting[0]
    assert budget.taken == 6
    budget.taken -= 6
    await waiting[1]
    budget.taken -= 6
    assert budget.taken == 0


def begin(service: Served, head: bytes, *, chunked: bool) -> Wire:
    """Send 3 MiB of a body that never ends."""
    wire = service.wire()
    size = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % (60 * 2**20)
    wire.send(b"POST %b\r\nHost: localhost\r\n%b\r\n\r\n" % (head, size))
    for _ in range(PIECES):
        wire.send(b"%x\r\n%b\r\n" % (len(PIECE), PIECE) if chunked else PIECE)
    return wire


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(
    "head",
    [
        b"/predict HTTP/1.1",
        b"/invocations HTTP/1.1",
        b"/v2/models/cars/infer HTTP/1.1",
        b"/predict?samples=4 HTTP/1.1\r\nContent-Type: text/csv",
        b"/aggregate HTTP/1.1\r\nContent-Type: application/vnd.apache.arrow.stream",
    ],
)
def test_bodies_that_never_end_share_a_budget_and_small_requests_go_on(head: bytes, chunked: bool) -> None:
    metric = 'murho_in_flight_bytes{kind="requests"}'
    with served(request_bytes=2**22) as service, ExitStack() as stack:
        stack.enter_context(begin(service, head, chunked=chunked))
        # All of it: otherwise the second body could take the room that the first one is still to ask for.
        wait_until(lambda: service.metric(metric) >= PIECES * len(PIECE))
        reply = stack.enter_context(begin(service, head, chunked=chunked)).read()
        assert reply.status == 429
        assert int(reply.headers["retry-after"]) >= 1
        assert service.metric(metric) < 2**22
        body = orjson.dumps({"inputs": [ROW]})
        parsed = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
        assert service.ask(parsed, body).status == 200
        stack.close()
        wait_until(lambda: service.metric(metric) == 0)


def test_the_bodies_of_administration_are_small() -> None:
    with served() as service, service.wire() as wire:
        wire.send(b"POST /v2/repository/index HTTP/1.1\r\nHost: localhost\r\nContent-Length: 65537\r\n\r\n")
        assert wire.read().status == 413


@pytest.mark.parametrize("path", ["/predict", "/invocations", "/v2/models/cars/infer"])
@pytest.mark.parametrize("accept", ["gzip", "identity"])
def test_an_answer_of_draws_leaves_nothing_behind(path: str, accept: str) -> None:
    rows, options = [ROW] * 300, {"samples": 500}
    body: dict[str, Any] = {"inputs": rows, "include": ["draws"], **options}
    if path == "/invocations":
        body = {"instances": rows, "params": {"include": ["draws"], **options}}
    elif path != "/predict":
        body = {"inputs": row_tensors(300), "parameters": options, "outputs": [{"name": "draws"}]}
    model = FakeModel()
    with make_client(model) as client:
        service = client.state["service"]
        taken: list[int] = []
        model.before = lambda: taken.append(service.answer_budget.taken)  # the answer is being computed
        response = client.post(path, body, headers={"accept-encoding": accept})
        assert response.status_code == 200, response.text
        assert int(response.headers["content-length"]) > 2**13
        answered = response.json()
        if path == "/predict":
            assert np.shape(answered["draws"]) == (300, 500)
        elif path == "/invocations":
            assert len(answered["predictions"]) == 300
        else:
            assert answered["outputs"][0]["shape"] == [300, 500]
        assert taken[-1] > 8 * 300 * 500
        assert (service.answer_budget.taken, service.request_budget.taken) == (0, 0)


@pytest.mark.parametrize("kind", [JSON, CSV, ARROW])
def test_an_answer_takes_memory_until_its_client_has_taken_it(kind: str) -> None:
    metric, table = (
        'murho_in_flight_bytes{kind="answers"}',
        pa.table({name: [cell] * 150_000 for name, cell in ROW.items()}),
    )
    body = WRITERS[ARROW](table)
    head = f"POST /predict?samples=4 HTTP/1.1\r\nHost: localhost\r\nContent-Type: {ARROW}\r\nAccept: {kind}\r\n"
    with served() as service:
        with service.wire() as wire:
            wire.send(f"{head}Content-Length: {len(body)}\r\n\r\n".encode(), body)
            assert wire.status_line() == 200  # so it is computed; what sockets hold is less than its rest
            assert service.metric(metric) > 2**22
        wait_until(lambda: service.metric(metric) == 0)


@pytest.mark.parametrize(
    "where", ["murho.service.predict.json_bodies.encode_answer", "murho.service.predict.predictions.answer_values"]
)
def test_full_memory_is_a_passing_state(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise MemoryError

    with make_client(FakeModel()) as client:
        monkeypatch.setattr(where, full)
        response = client.post("/predict", {"inputs": [ROW]})
        assert response.status_code == 503
        assert int(response.headers["retry-after"]) >= 1


def test_what_is_alone_has_room() -> None:
    budget = ByteBudget(10)
    share = Lease(budget)
    share.resize(5)
    share.resize(105)
    assert budget.taken == 105
    with pytest.raises(QueueFullError):
        Lease(budget).resize(1)
    share.resize(3)
    assert budget.taken == 3


BODY = b"3000,100,true\n" * 200


@pytest.mark.parametrize(("coding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_bodies_in_both_codings_are_read_within_a_limit(coding: str, pack: type[bytes]) -> None:
    packed = pack(BODY)
    assert decompress(packed, coding.upper(), len(BODY)) == BODY
    with pytest.raises(TooLargeError):
        decompress(packed, coding, len(BODY) - 1)
    for broken in (packed[:-1], packed + b"x", b"x", b""):
        with pytest.raises(BadInputError, match=coding):
            decompress(broken, coding, 10**6)


@pytest.mark.parametrize(
    ("header", "coding"),
    [
        ("", None),
        ("gzip, deflate, br", "gzip"),
        ("deflate", "deflate"),
        ("gzip;q=0, deflate;q=0.5", "deflate"),
        ("gzip; q=0.000", None),
        ("identity", None),
    ],
)
def test_the_first_coding_that_a_client_accepts(header: str, coding: str | None) -> None:
    assert choose_coding(header) == coding
