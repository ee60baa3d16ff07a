from __future__ import annotations

from typing import TYPE_CHECKING

from murho.service.engine.jobs import Slice, Timing
from murho.service.telemetry.model_statistics import ModelStatistics
from tests.service.support import FakeModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from murho.service.engine.scheduler import Outcome


class FakeJob:
    def __init__(self, model: FakeModel) -> None:
        self.model = model


def part(model: FakeModel, rows: int) -> Slice:
    return Slice(FakeJob(model), 0, rows)  # type: ignore[arg-type]  # only its model is asked for


def test_passes_are_counted_by_their_rows_rounded_up_to_a_power_of_two() -> None:
    model, statistics = FakeModel(), ModelStatistics()
    times = iter(range(100))

    def compute(slices: Sequence[Slice]) -> list[Outcome]:
        return [None] * len(slices)

    counted = statistics.counting(compute, clock=lambda: float(next(times)))
    for rows in ([1], [2], [3], [1, 2, 1], [1000]):
        assert counted([part(model, count) for count in rows]) == [None] * len(rows)
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
