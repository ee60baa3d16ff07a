from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from murho.service.errors import NotReadyError
from murho.service.models.loader import Change, Loader, Registry, Swap
from murho.service.models.watcher import Watcher
from tests.service.support import FakeModel, FakeSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Watched:
    def __init__(self, seconds: float) -> None:
        self.source = FakeSource(FakeModel())
        self.registry = Registry("here")
        self.changes: list[tuple[list[str], list[str]]] = []
        self.watcher = Watcher(Loader(self.source, self.registry), self.registry, seconds, self._changed)
        self.watcher.load_first()
        self.watcher.start()

    def _changed(self, swap: Swap) -> None:
        self.changes.append((list(swap.before.models), list(swap.after.models)))


@pytest.fixture(params=[0.01])
def watched(request: pytest.FixtureRequest) -> Iterator[Watched]:
    made = Watched(request.param)
    yield made
    assert made.watcher.close(10)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_new_version_is_found_and_told_once(watched: Watched) -> None:
    new = FakeModel(version="2")
    watched.source.found = (new,)
    until(lambda: watched.registry.snapshot.find("cars") is new)
    assert watched.changes[0] == ([], ["cars"])
    until(lambda: len(watched.changes) == 2)
    time.sleep(0.05)
    assert len(watched.changes) == 2


@pytest.mark.parametrize("watched", [0.0], indirect=True)
def test_without_an_interval_it_looks_only_when_asked(watched: Watched) -> None:
    new = FakeModel(version="2")
    watched.source.found = (new,)
    time.sleep(0.05)
    assert watched.registry.snapshot.find("cars") is not new
    watched.watcher.ask(Change()).result(10)
    assert watched.registry.snapshot.find("cars") is new


def test_loading_runs_in_a_thread_of_its_own(watched: Watched) -> None:
    threads = []

    class Noted(FakeModel):
        def warm_up(self) -> None:
            threads.append(threading.current_thread().name)

    watched.source.found = (Noted(version="2"),)
    watched.watcher.ask(Change("cars")).result(10)
    assert set(threads) == {"watcher"}


def test_it_outlives_a_failing_look(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = threading.Event()

    def fail() -> list[object]:
        failed.set()
        raise RuntimeError

    monkeypatch.setattr(watched.source, "list", fail)
    assert failed.wait(10)
    monkeypatch.undo()
    assert "cars" in watched.watcher.ask(Change("cars")).result(10).after.models


def test_after_closing_nothing_is_taken(watched: Watched) -> None:
    assert watched.watcher.close(10)
    with pytest.raises(NotReadyError, match="shutting down"):
        watched.watcher.ask(Change("cars")).result(1)
