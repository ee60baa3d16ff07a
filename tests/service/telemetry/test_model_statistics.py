from __future__ import annotations

from murho.service.engine.jobs import Timing
from murho.service.telemetry.model_statistics import ModelStatistics
from tests.service.support import FakeModel


def test_passes_are_counted_by_their_rows_rounded_up_to_a_power_of_two() -> None:
    model, statistics = FakeModel(), ModelStatistics()
    for rows in ([1], [2], [3], [1, 2, 1], [1000]):
        statistics.count_pass(model, sum(rows), 1.0)
    batches = statistics.of(model).batches
    assert {size: (batch.count, batch.seconds) for size, batch in batches.items()} == {
        1: (1, 1.0),
        2: (1, 1.0),
        4: (2, 2.0),
        1024: (1, 1.0),
    }


def test_requests_are_counted_with_their_rows_and_seconds() -> None:
    model, statistics = FakeModel(), ModelStatistics()
    statistics.answered(model, 3, Timing(0.5, 1.0), 2.0)
    statistics.answered(model, 4, Timing(0.25, 1.0), 2.0)
    statistics.failed(model, 0.125)
    totals = statistics.of(model)
    assert (totals.rows, totals.success.count, totals.success.seconds) == (7, 2, 4.0)
    assert (totals.queue.seconds, totals.compute.seconds, totals.fail.seconds) == (0.75, 2.0, 0.125)
    assert totals.last > 0.0


def test_versions_that_are_gone_are_forgotten() -> None:
    old, new, statistics = FakeModel(version="1"), FakeModel(version="2"), ModelStatistics()
    statistics.failed(old, 1.0)
    statistics.failed(new, 1.0)
    statistics.keep({("cars", "2")})
    assert statistics.of(new).fail.count == 1
    assert statistics.of(old).fail.count == 0
