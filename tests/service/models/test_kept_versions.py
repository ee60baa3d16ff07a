"""Versions that are kept: the same object as long as nothing changed, and a refusal that is said once."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from murho.model.checkpoint.checkpoint import CheckpointReference
from murho.service.models.kept_versions import KeptVersions, Look, StoppingError
from murho.service.models.loading import load_warm
from tests.service.support import FakeModel, FakeSource

if TYPE_CHECKING:
    from murho.service.models.kept_versions import Outcome

CARS = CheckpointReference("cars", "1", Path("cars", "1"))


def _look(*, retry: bool = False, patient: bool = False, stopping: bool = False) -> Look:
    return Look(retry, patient, lambda: stopping)


def _kept(source: FakeSource) -> tuple[KeptVersions, list[Outcome]]:
    outcomes: list[Outcome] = []
    return KeptVersions(source, partial(load_warm, source), outcomes.append), outcomes


def test_a_version_is_loaded_once_and_kept_until_it_is_let_go() -> None:
    source = FakeSource(FakeModel())
    kept, outcomes = _kept(source)
    model = kept.obtain(CARS, _look())
    assert kept.obtain(CARS, _look(retry=True)) is model is source.found[0]
    assert kept.by_name() == {"cars": {"1": model}}
    assert kept.keep_only({("cars", "1")}) == []
    assert kept.keep_only(()) == [("cars", "1")]
    assert kept.by_name() == {}
    assert outcomes == ["loaded", "unloaded"]


def test_a_refusal_is_said_at_every_look_and_counted_once() -> None:
    source = FakeSource(("cars", "1", "wrong hash"))
    kept, outcomes = _kept(source)
    for _ in range(2):
        look = _look()
        assert kept.obtain(CARS, look) is None
        assert [refused.reason for refused in look.refused] == ["wrong hash"]
    assert source.loads == [("cars", "1")]
    kept.forget_failures_except(())
    kept.obtain(CARS, _look())
    assert source.loads == [("cars", "1")] * 2
    assert outcomes == ["refused"] * 2


def test_a_patient_look_gives_a_version_that_fails_time_until_the_next() -> None:
    kept, outcomes = _kept(FakeSource(("cars", "1", "half copied")))
    first, second = _look(patient=True), _look(patient=True)
    assert kept.obtain(CARS, first) is kept.obtain(CARS, second) is None
    assert first.refused == []
    assert [refused.reason for refused in second.refused] == ["half copied"]
    assert outcomes == ["refused"]


def test_nothing_is_loaded_once_the_service_stops() -> None:
    source = FakeSource(FakeModel())
    with pytest.raises(StoppingError):
        _kept(source)[0].obtain(CARS, _look(stopping=True))
    assert source.loads == []
