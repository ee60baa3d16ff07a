"""What a budget counts."""

from __future__ import annotations

import time

import pytest

from murho.model.runtime.time_budget import TimeBudget


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    now = {"wall": 100.0, "thread": 7.0}
    monkeypatch.setattr(time, "monotonic", lambda: now["wall"])
    monkeypatch.setattr(time, "thread_time", lambda: now["thread"])
    return now


def test_by_default_the_wall_counts(times: dict[str, float]) -> None:
    time_budget = TimeBudget(before=2.0)
    times["wall"] += 10.0
    times["thread"] += 4.0
    assert time_budget.spent() == pytest.approx(12.0)


def test_a_patient_clock_counts_the_processor_time_of_its_thread(times: dict[str, float]) -> None:
    time_budget = TimeBudget(patience=3.0)
    times["wall"] += 10.0
    times["thread"] += 4.0
    assert time_budget.spent() == pytest.approx(4.0)


def test_patience_has_an_end(times: dict[str, float]) -> None:
    time_budget = TimeBudget(patience=3.0)
    times["wall"] += 30.0
    times["thread"] += 4.0
    assert time_budget.spent() == pytest.approx(10.0)
