"""`python -m benchmarks.service` in small, and the load generator on servers that misbehave."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.service import main
from benchmarks.service_parts.load import Load
from tests.service.support import train_checkpoint
from tests.support import made_once

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Answer = Callable[[int], bytes | None]

REQUEST = b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}"


class Scripted(asyncio.Protocol):
    """Answers the n-th request of all connections with what a function says; None closes the connection."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.count = 0
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert data == REQUEST
        self.count += 1
        answer = self.answer(self.count)
        if answer is None:
            self.transport.close()
        else:
            self.transport.write(answer)


def response(body: bytes = b"{}" * 50, status: str = "200 OK", *, headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body


def load(answer: Answer, **options: Any) -> dict[str, Any]:
    async def run() -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        ends: list[Scripted] = []

        def scripted() -> Scripted:
            ends.append(Scripted(answer))
            return ends[-1]

        server = await loop.create_server(scripted, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            done = await Load(port, [REQUEST], **options).run()
        for end in ends:
            end.transport.abort()
        await asyncio.sleep(0)  # the sockets are closed in the next turn of the loop
        return done

    return asyncio.run(run())


def test_every_connection_sends_again_once_it_is_answered() -> None:
    done = load(lambda _: response(), connections=3, seconds=0.2)
    assert set(done["count"]) == {"200"}
    assert done["rate"] == pytest.approx(done["count"]["200"] / 0.2, rel=0.2)
    assert (done["wrong"], done["lost"]) == (0, 0)
    assert 0.0 < done["latency"]["p50"] <= done["latency"]["p99"] <= done["latency"]["max"]


def test_at_a_rate_no_more_is_sent_than_asked() -> None:
    done = load(lambda _: response(), connections=20, seconds=0.5, rate=200.0)
    assert 60 <= done["count"]["200"] <= 150


def test_refusals_are_counted_apart() -> None:
    def every_second(count: int) -> bytes:
        return response() if count % 2 else response(b"no", "429 Too Many Requests")

    done = load(every_second, connections=1, seconds=0.1)
    assert abs(done["count"]["200"] - done["count"]["429"]) <= 1
    assert done["refusal"]["p50"] > 0.0
    assert done["wrong"] == 0


def test_a_short_answer_is_wrong_and_one_that_never_comes_is_lost() -> None:
    done = load(lambda count: response() if count == 1 else response(b"{}"), connections=1, seconds=0.1)
    assert done["wrong"] == done["count"]["200"] - 1 > 0
    done = load(lambda count: response() if count < 3 else None, connections=1, seconds=0.1)
    assert done["lost"] > 0


def test_a_connection_that_the_server_closes_is_no_loss() -> None:
    done = load(lambda _: response(headers="Connection: close\r\n"), connections=2, seconds=0.1)
    assert done["count"]["200"] > 2
    assert done["lost"] == 0


def test_pieces_and_chunks_make_one_answer() -> None:
    chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    assert load(lambda _: chunked, connections=1, seconds=0.1)["count"]["200"] > 1


@pytest.mark.slow
def test_the_benchmark_runs(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = made_once(tmp_path_factory, "tiny cars", lambda directory: train_checkpoint(directory, "cars"))
    small = ["--rounds", "1", "--seconds", "0.3", "--overload-seconds", "2", "--json-rows", "20", "--arrow-rows", "50"]
    command = ["--checkpoints", str(made / "checkpoints"), "--systems", "", *small, "--output", str(tmp_path)]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "Murho" in said
    assert "3 x overload: recovered after, s" in said
    measured = json.loads((tmp_path / "service.json").read_text())
    assert all(done["wrong"] == done["lost"] == 0 for rounds in measured["rates"].values() for done in rounds)
    took = measured["rates"]["murho"][0]["per_request"]
    assert 0.0 <= took["first"] <= took["all"]
    assert measured["rates"]["fixed"][0]["rate"] > 2 * measured["rates"]["asgi"][0]["rate"]
    assert measured["overload"]["lost"] == 0
    assert len(measured["claims"]) == 13


def test_peers_are_kept_only_if_there_are_some(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--kept-peers", "--output", str(tmp_path)]) == 1
    assert "run without it once" in capsys.readouterr().err
