"""What requests in flight take is bounded for all of them together, and freed memory goes back to the system."""

from __future__ import annotations

import asyncio
import gzip
import tempfile
import zlib
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murho.service.errors import BadInputError, DeadlineError, QueueFullError, TooLargeError
from murho.service.predict.memory import (
    IN_MEMORY_BYTES,
    SMALL_BYTES,
    Room,
    Share,
    Spool,
    accepted_coding,
    decompressed,
)
from tests.service.protocols.support import row_tensors
from tests.service.support import ROW, FakeModel, make_client
from tests.service.wire import Served, Wire, served, wait_until

PIECE = b"[1,2],\n" * 9362  # a little less than 64 KiB
PIECES = 48


def test_small_requests_have_a_quarter_for_themselves() -> None:
    room = Room(16 * SMALL_BYTES)
    large, small, more = Share(room), Share(room), Share(room)
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
    assert room.taken == 0


def test_large_answers_wait_for_their_turn() -> None:
    asyncio.run(_waiting())


async def _waiting() -> None:
    room = Room(10)
    await room.wait(30, 1.0)
    waiting = [asyncio.ensure_future(room.wait(6, 30.0)) for _ in range(2)]
    with pytest.raises(DeadlineError):
        await room.wait(1, 0.02)
    assert not any(task.done() for task in waiting)
    room.taken -= 30
    await waiting[0]
    assert room.taken == 6
    room.taken -= 6
    await waiting[1]
    room.taken -= 6
    assert room.taken == 0


def begin(service: Served, head: bytes, *, chunked: bool) -> Wire:
    """Sends 3 MiB of a body that never ends."""
    wire = service.wire()
    size = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % (60 * 2**20)
    wire.send(b"POST %b\r\nHost: localhost\r\n%b\r\n\r\n" % (head, size))
    for _ in range(PIECES):
        wire.send(b"%x\r\n%b\r\n" % (len(PIECE), PIECE) if chunked else PIECE)
    return wire


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"/predict HTTP/1.1", "requests"),
        (b"/invocations HTTP/1.1", "requests"),
        (b"/v2/models/cars/infer HTTP/1.1", "requests"),
        (b"/predict?samples=4 HTTP/1.1\r\nContent-Type: text/csv", "spools"),
    ],
)
def test_bodies_that_never_end_share_a_budget_and_small_requests_go_on(head: bytes, kind: str, chunked: bool) -> None:
    metric = f'murho_in_flight_bytes{{kind="{kind}"}}'
    with served(request_bytes=2**22, spool_bytes=2**21) as service, ExitStack() as stack:
        stack.enter_context(begin(service, head, chunked=chunked))
        # All of it: otherwise the second body could take the room that the first one is still to ask for.
        arrived = PIECES * len(PIECE) if kind == "requests" else 2**21
        wait_until(lambda: service.metric(metric) >= arrived)
        reply = stack.enter_context(begin(service, head, chunked=chunked)).read()
        assert reply.status == 429
        assert int(reply.headers["retry-after"]) >= 1
        assert service.metric(metric) < 2**22
        body = orjson.dumps({"inputs": [ROW]})
        asked = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
        assert service.ask(asked, body).status == 200
        stack.close()
        wait_until(lambda: service.metric(metric) == 0)


def test_the_bodies_of_administration_are_small() -> None:
    with served() as service, service.wire() as wire:
        wire.send(b"POST /v2/repository/index HTTP/1.1\r\nHost: localhost\r\nContent-Length: 65537\r\n\r\n")
        assert wire.read().status == 413


@pytest.mark.parametrize("path", ["/predict", "/invocations", "/v2/models/cars/infer"])
@pytest.mark.parametrize("accept", ["gzip", "identity"])
def test_an_answer_of_draws_is_spooled_and_leaves_nothing_behind(path: str, accept: str) -> None:
    rows, options = [ROW] * 300, {"samples": 500}
    body: dict[str, Any] = {"inputs": rows, "include": ["draws"], **options}
    if path == "/invocations":
        body = {"instances": rows, "params": {"include": ["draws"], **options}}
    elif path != "/predict":
        body = {"inputs": row_tensors(300), "parameters": options, "outputs": [{"name": "draws"}]}
    model = FakeModel()
    with make_client(model) as client:
        parts = client.state["parts"]
        taken: list[int] = []
        model.before = lambda: taken.append(parts.answer_room.taken)  # the answer is being computed
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
        assert (parts.answer_room.taken, parts.request_room.taken, parts.spool_room.taken) == (0, 0, 0)


def test_no_room_for_an_answer_is_told_before_its_status() -> None:
    with make_client(FakeModel(), spool_bytes=2**20) as client:
        room = client.state["parts"].spool_room
        room.take(2**20)
        response = client.post("/predict", {"inputs": [ROW] * 300, "samples": 500, "include": ["draws"]})
        assert response.status_code == 429
        assert room.taken == 2**20


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
    room = Room(10)
    share = Share(room)
    share.resize(5)
    share.resize(105)
    assert room.taken == 105
    with pytest.raises(QueueFullError):
        Share(room).resize(1)
    share.resize(3)
    assert room.taken == 3


BODY = b"3000,100,true\n" * 200


@pytest.mark.parametrize(("coding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_bodies_in_both_codings_are_read_within_a_limit(coding: str, pack: type[bytes]) -> None:
    packed = pack(BODY)
    assert decompressed(packed, coding.upper(), len(BODY)) == BODY
    with pytest.raises(TooLargeError):
        decompressed(packed, coding, len(BODY) - 1)
    for broken in (packed[:-1], packed + b"x", b"x", b""):
        with pytest.raises(BadInputError, match=coding):
            decompressed(broken, coding, 10**6)


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
    assert accepted_coding(header) == coding


MUCH = 2**40


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=3), st.integers(0, 900_000)), max_size=12))
def test_what_was_written_is_read(parts: list[tuple[bytes, int]]) -> None:
    room = Room(MUCH)
    with Spool(room) as spool:
        for part, times in parts:
            spool.write(part * times)
        written = b"".join(part * times for part, times in parts)
        assert room.taken == spool.size == len(written)
        assert spool.view() == written
        spool.forget_pages()
        assert spool.view() == written
    assert room.taken == 0


TemporaryFile = tempfile.TemporaryFile


class Full:
    """A file on a disk that gets full."""

    def __init__(self, after: int) -> None:
        self._file, self._after = TemporaryFile(buffering=0), after
        self.seek, self.read, self.close = self._file.seek, self._file.read, self._file.close

    def write(self, data: memoryview) -> int:
        self._after -= len(data)
        if self._after < 0:
            raise OSError(28, "No space left on device")
        return self._file.write(data)


def _nowhere(**_: object) -> Full:
    raise FileNotFoundError("No usable temporary directory found")


@pytest.mark.parametrize("make", [lambda **_: Full(0), lambda **_: Full(2 * IN_MEMORY_BYTES), _nowhere])
def test_without_a_disk_to_write_to_it_stays_in_memory(
    make: Callable[..., Full], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", make)
    room, block = Room(MUCH), bytes(range(256)) * 4096
    with Spool(room) as spool:
        for _ in range(16):
            spool.write(block)
        assert spool.view() == block * 16
        assert room.taken == 16 * len(block)


def test_a_spool_that_nobody_has_any_more_takes_no_room() -> None:
    room = Room(1000)
    spool = Spool(room)
    spool.write(b"x" * 600)
    del spool
    assert room.taken == 0
