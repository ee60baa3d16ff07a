from __future__ import annotations

import resource
import socket

import pytest

from murho.service.http.connection import RESERVED_FILES, files_for
from tests.service.wire import GET, served


class Limit:
    """A process's limit of open files."""

    def __init__(self, soft: int, hard: int) -> None:
        self.now = (soft, hard)

    def get(self, _: int) -> tuple[int, int]:
        return self.now

    def set(self, _: int, wanted: tuple[int, int]) -> None:
        self.now = wanted


@pytest.mark.parametrize(
    ("soft", "hard", "connections", "raised"),
    [
        (1024, 1_000_000, 10_000, 10_000 + RESERVED_FILES),
        (1024, 4096, 4096 - RESERVED_FILES, 4096),
        (256, 256, 128, 256),
        (50_000, 60_000, 10_000, 50_000),
    ],
)
def test_the_limit_of_open_files_is_raised_as_needed(
    soft: int, hard: int, connections: int, raised: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = Limit(soft, hard)
    monkeypatch.setattr(resource, "getrlimit", limit.get)
    monkeypatch.setattr(resource, "setrlimit", limit.set)
    assert files_for(10_000) == connections
    assert limit.now == (raised, hard)


def test_a_limit_that_cannot_be_raised_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "getrlimit", Limit(1024, 4096).get)
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert files_for(10_000) == 1024 - RESERVED_FILES


def test_where_there_is_no_file_for_a_connection_it_waits_and_the_metrics_say_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    accept, failures = socket.socket.accept, [OSError(24, "Too many open files")]

    def fail_once(listening: socket.socket) -> object:
        if failures:
            raise failures.pop()
        return accept(listening)

    with served() as service:
        monkeypatch.setattr(socket.socket, "accept", fail_once)
        assert service.ask(GET).status == 200
        assert service.errors("out-of-files") == 1.0
