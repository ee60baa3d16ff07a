"""The loader: new versions beside old ones, swapped as a whole; what is bad is refused and what was good serves on."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from functools import partial

import pytest

from murho.model.checkpoint.checkpoint import CheckpointReference
from murho.model.errors import CheckpointError
from murho.service.errors import CheckpointRefusedError, NotReadyError
from murho.service.models.loader import Change, LoadedModel, Loader, Outcome, Registry
from murho.service.settings import VersionPolicy
from tests.service.support import FakeModel, FakeSource


class Bench:
    """A loader with a source whose content changes.

    Attributes:
        outcomes: What the loader counted.
    """

    def __init__(self, *found: FakeModel | tuple[str, str, str], policy: VersionPolicy | None = None) -> None:
        self.source = FakeSource(*found)
        self.registry = Registry("here")
        self.outcomes: list[Outcome] = []
        self.loader = Loader(self.source, self.registry, policy, count=self.outcomes.append)
        self.loader.refresh()

    def put(self, *found: FakeModel | tuple[str, str, str]) -> None:
        self.source.found = found

    def poll(self) -> None:
        self.loader.refresh(retry=False, patient=True)

    def load(self, name: str, version: str | None = None) -> LoadedModel:
        self.loader.apply(Change(name, version))
        return self.registry.snapshot.models[name]

    def unload(self, name: str) -> None:
        self.loader.apply(Change(name, unload=True))

    def served(self) -> dict[str, list[str]]:
        return {name: list(model.versions) for name, model in self.registry.snapshot.models.items()}

    def refused(self) -> list[tuple[str, str, str]]:
        return [(item.name, item.version, item.reason) for item in self.registry.snapshot.refused]


def cars(version: str) -> FakeModel:
    return FakeModel(version=version)


BAD = ("cars", "3", "wrong hash")


def test_a_new_version_is_loaded_warm_and_takes_over() -> None:
    new = cars("2")
    bench = Bench(cars("1"))
    bench.put(cars("1"), new)
    bench.poll()
    assert bench.registry.snapshot.find("cars") is new
    assert new.warm
    assert bench.outcomes == ["loaded", "loaded", "unloaded"]


def test_what_did_not_change_is_not_loaded_again() -> None:
    model = cars("1")
    bench = Bench(model)
    since = bench.registry.snapshot.models["cars"].since["1"]
    for _ in range(3):
        bench.poll()
    bench.loader.refresh()
    assert bench.source.loads == [("cars", "1")]
    assert bench.registry.snapshot.models["cars"].since["1"] == since


def test_a_bad_new_version_leaves_the_old_one_and_is_tried_once() -> None:
    old = cars("2")
    bench = Bench(old)
    bench.put(old, BAD)
    for _ in range(4):
        bench.poll()
    assert bench.registry.snapshot.find("cars") is old
    assert bench.refused() == [BAD]
    assert bench.source.loads.count(("cars", "3")) == 2  # a second time, in case it was being copied
    assert bench.outcomes == ["loaded", "refused"]


def test_a_version_replaced_in_place_is_loaded_anew() -> None:
    new = cars("1")
    bench = Bench(cars("1"))
    bench.put(new)
    bench.poll()
    assert bench.registry.snapshot.find("cars") is new


def test_a_version_without_model_json_is_waited_for() -> None:
    class Writing(FakeSource):
        def stamp(self, reference: CheckpointReference) -> object:
            return None if reference.version == "2" else super().stamp(reference)

    bench = Bench(cars("1"))
    source = Writing(*bench.source.found, cars("2"))
    loader = Loader(source, bench.registry, count=bench.outcomes.append)
    loader.refresh()
    assert bench.served() == {"cars": ["1"]}
    assert [item.waiting for item in bench.registry.snapshot.refused] == [True]
    assert "refused" not in bench.outcomes


def test_a_deleted_version_gives_way_at_the_second_look() -> None:
    bench = Bench(cars("1"), cars("2"))
    bench.put(cars("1"))
    bench.poll()  # a link that is being turned to another directory is gone for a moment
    assert bench.served() == {"cars": ["2"]}
    bench.poll()
    assert bench.served() == {"cars": ["1"]}
    bench.put()
    bench.poll()
    bench.poll()
    assert bench.served() == {}
    with pytest.raises(NotReadyError):
        bench.registry.snapshot.require_models()


def test_an_old_version_leaves_memory_with_its_last_user() -> None:
    bench = Bench(cars("1"))
    request = bench.registry.snapshot.find("cars")
    gone = weakref.ref(request)
    bench.put(cars("2"))
    bench.loader.refresh()
    gc.collect()
    assert gone() is not None
    del request
    gc.collect()
    assert gone() is None


def test_a_source_that_can_not_be_listed_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(cars("1"))

    def fail() -> list[CheckpointReference]:
        raise CheckpointError("the disk is away")

    monkeypatch.setattr(bench.source, "list", fail)
    bench.poll()
    assert bench.served() == {"cars": ["1"]}
    assert bench.refused() == [("", "", "the disk is away")]
    with pytest.raises(CheckpointRefusedError, match="the disk is away"):
        bench.load("cars")
    monkeypatch.undo()
    bench.poll()
    assert bench.refused() == []


def test_an_unexpected_failure_is_a_refusal() -> None:
    class Unexpected(FakeModel):
        def warm_up(self) -> None:
            raise ZeroDivisionError("oops")

    bench = Bench(FakeModel("a"), Unexpected("c"))
    assert bench.served() == {"a": ["1"]}
    assert bench.refused() == [("c", "1", "loading failed unexpectedly with ZeroDivisionError: oops")]


def test_loading_ends_early_when_the_service_stops() -> None:
    source = FakeSource(FakeModel())
    assert not Loader(source, Registry("here"), stopping=lambda: True).refresh().loaded
    assert source.loads == []


# ---- pinned


def test_a_pinned_version_is_served_alone_and_other_names_serve_the_latest() -> None:
    policy = VersionPolicy(pins={"cars": "1", "boats": "7"})
    bench = Bench(cars("1"), cars("2"), FakeModel("rents", "1"), FakeModel("rents", "2"), policy=policy)
    assert bench.served() == {"cars": ["1"], "rents": ["2"]}
    assert bench.refused() == [("boats", "7", "pinned version not found")]


def test_a_pinned_version_that_is_bad_is_not_replaced_by_another() -> None:
    bench = Bench(cars("2"), BAD, policy=VersionPolicy(pins={"cars": "3"}))
    assert (bench.served(), bench.refused()) == ({}, [BAD])


# ---- by hand


def test_a_version_chosen_by_hand_that_is_deleted_gives_way_to_the_policy() -> None:
    bench = Bench(cars("1"), cars("2"))
    bench.load("cars", "1")
    bench.put(cars("2"))
    bench.poll()
    assert bench.served() == {"cars": ["1"]}
    bench.poll()
    assert (bench.served(), bench.refused()) == ({"cars": ["2"]}, [])


@pytest.mark.parametrize("policy", [VersionPolicy(), VersionPolicy(every_version=True)])
def test_what_was_unloaded_comes_back_with_the_newest_good_version(policy: VersionPolicy) -> None:
    bench = Bench(cars("1"), cars("2"), policy=policy)
    bench.unload("cars")
    bench.put(cars("1"), cars("2"), BAD, ("cars", "4", "truncated"))
    assert bench.load("cars").latest.version == "2"
    assert bench.refused() == [("cars", "4", "truncated"), BAD]
    bench.poll()
    assert bench.registry.snapshot.models["cars"].latest.version == "2"


def test_code_that_is_compiled_at_the_first_start_costs_no_version_its_time() -> None:
    source = FakeSource(FakeModel("cars"))
    source.prepare = partial(time.sleep, 0.6)  # type: ignore[method-assign]
    assert set(Loader(source, Registry("here"), seconds=0.5).refresh().models) == {"cars"}


def test_a_version_that_hangs_is_refused_in_time_and_the_others_are_served() -> None:
    source, hung = FakeSource(FakeModel("hangs"), FakeModel("works"), ("worn", "1", "wrong hash")), threading.Event()

    def before() -> None:
        source.before = lambda: None
        hung.wait()

    source.before = before
    try:
        snapshot = Loader(source, Registry("here"), seconds=0.5).refresh()
    finally:
        hung.set()
    assert set(snapshot.models) == {"works"}
    assert [(each.name, each.reason) for each in snapshot.refused] == [
        ("hangs", "it was not loaded within 0.5 seconds (setting load_timeout)"),
        ("worn", "wrong hash"),
    ]
