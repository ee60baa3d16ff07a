"""The cache of models: bounded, one load for all who ask, and nothing in use leaves it."""

from __future__ import annotations

import gc
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from murho.model.checkpoint.checkpoint import CheckpointReference
from murho.service.errors import NotReadyError
from murho.service.models.loading import LoadingError
from murho.service.models.model_cache import LOADS_AT_ONCE, ModelCache
from murho.service.models.on_demand import ListedVersion, at_hand
from tests.service.support import FakeModel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from murho.service.models.model_cache import Held, Noticed


class Bench:
    """A cache of two over any number of fake models.

    Attributes:
        loads: Names in the order of their loads.
        gate: Closed, loads wait for it.
        most: The most loads at the same time.
        noticed: What the cache told.
    """

    def __init__(self) -> None:
        self.loads: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.running = self.most = 0
        self.noticed: list[Noticed] = []
        self.broken: set[str] = set()
        self.lock = threading.Lock()
        self.cache = ModelCache(self.load, 2, lambda what, _: self.noticed.append(what))

    def load(self, reference: CheckpointReference) -> FakeModel:
        with self.lock:
            self.loads.append(reference.name)
            self.running += 1
            self.most = max(self.most, self.running)
        assert self.gate.wait(20)
        with self.lock:
            self.running -= 1
        if reference.name in self.broken:
            raise LoadingError("wrong hash")
        return FakeModel(reference.name, reference.version)

    def version(self, name: str, version: str = "1") -> ListedVersion:
        return ListedVersion(CheckpointReference(name, version, Path(name, version)), self.cache)

    def use(self, version: ListedVersion) -> Held:
        return self.cache.use(version) or self.cache.ask(version).future.result(20)

    def visit(self, version: ListedVersion) -> None:
        self.use(version).release()


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.gate.set()
    assert made.cache.close(20)


def test_the_least_recently_used_leaves(bench: Bench) -> None:
    a, b, c = (bench.version(name) for name in "abc")
    for version in (a, b, a, c):
        bench.visit(version)
    assert [at_hand(version) is not None for version in (a, b, c)] == [True, False, True]
    assert bench.noticed == ["loaded", "loaded", "evicted", "loaded"]


def test_what_leaves_is_free_at_once(bench: Bench) -> None:
    a, b, c = (bench.version(name) for name in "abc")
    held = bench.use(a)
    gone = weakref.ref(held.model)
    held.release()
    del held
    gc.disable()  # no cycle keeps it
    try:
        bench.visit(b)
        bench.visit(c)
        assert gone() is None
    finally:
        gc.enable()


def test_what_is_in_use_stays_beyond_the_bound_and_leaves_after_it(bench: Bench) -> None:
    held = [bench.use(bench.version(name)) for name in "abcd"]
    assert len(bench.cache) == 4
    for each in held:
        each.release()
    assert len(bench.cache) == 2


def test_a_place_is_made_before_the_load(bench: Bench) -> None:
    for name in "ab":
        bench.visit(bench.version(name))
    bench.gate.clear()
    load = bench.cache.ask(bench.version("c"))
    while bench.running == 0:
        threading.Event().wait(0.005)
    assert len(bench.cache) == 1
    bench.gate.set()
    load.future.result(20).release()


def test_all_who_ask_share_one_load(bench: Bench) -> None:
    version = bench.version("a")
    bench.gate.clear()
    loads = [bench.cache.ask(version) for _ in range(20)]
    assert bench.cache.loads == 1
    bench.gate.set()
    held = {id(load.future.result(20)) for load in loads}
    assert (len(held), bench.loads) == (1, ["a"])
    bench.visit(bench.version("b"))
    bench.visit(bench.version("c"))
    assert at_hand(version) is not None  # twenty requests use it


def test_few_are_loaded_at_the_same_time(bench: Bench) -> None:
    loads = [bench.cache.ask(bench.version(f"m{number}")) for number in range(12)]
    for load in loads:
        load.future.result(20).release()
    assert bench.most <= LOADS_AT_ONCE
    assert len(bench.cache) == 2


def test_a_load_that_nobody_waits_for_is_not_begun(bench: Bench) -> None:
    bench.gate.clear()
    busy = [bench.cache.ask(bench.version(f"busy{number}")) for number in range(LOADS_AT_ONCE)]
    waits = [bench.cache.ask(version) for version in [bench.version("left")] * 2]
    for load in waits:
        bench.cache.give_up(load)
    bench.gate.set()
    for load in busy:
        load.future.result(20).release()
    bench.visit(bench.version("next"))
    assert "left" not in bench.loads


def test_who_gives_up_after_the_load_keeps_nothing_in_use(bench: Bench) -> None:
    version = bench.version("a")
    load = bench.cache.ask(version)
    held = load.future.result(20)
    assert held.users == 1
    bench.cache.give_up(load)
    assert held.users == 0


def test_a_failure_reaches_all_and_takes_no_place(bench: Bench) -> None:
    bench.broken.add("a")
    version = bench.version("a")
    for _ in range(2):
        with pytest.raises(LoadingError, match="wrong hash"):
            bench.cache.ask(version).future.result(20)
    assert (len(bench.cache), bench.cache.loads, bench.noticed) == (0, 0, ["failed", "failed"])
    with pytest.raises(LoadingError):
        bench.cache.hold(version)


def test_listing_loads_the_first_version_of_all_and_what_replaces_one_in_memory(bench: Bench) -> None:
    for reference in (("a", "2"), ("a", "1"), ("b", "1"), ("a", "3"), ("b", "2")):
        bench.cache.listed(CheckpointReference(*reference, Path(*reference)))
    assert bench.loads == ["a", "a"]


def test_what_is_no_longer_served_leaves_also_if_it_was_being_loaded(bench: Bench) -> None:
    a, b = bench.version("a"), bench.version("b")
    bench.visit(a)
    bench.gate.clear()
    load = bench.cache.ask(b)
    bench.cache.keep(())
    bench.gate.set()
    assert load.future.result(20).model.name == "b"  # who asked for it still gets it
    load.future.result(20).release()
    assert len(bench.cache) == 0


def test_after_its_end_nothing_is_loaded() -> None:
    bench = Bench()
    bench.visit(bench.version("a"))
    assert bench.cache.close(20)
    with pytest.raises(NotReadyError):
        bench.cache.ask(bench.version("b"))
