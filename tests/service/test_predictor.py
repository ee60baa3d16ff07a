from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from murho.model.data.schema import UnfamiliarValue
from murho.model.engines.prediction import Prediction, PredictOptions
from murho.service import predictor
from murho.service.errors import ComputationError, DeadlineError, NotReadyError
from murho.service.predictor import Answer, Predictor, RowsNotFiniteError
from murho.service.scheduler import Scheduler
from tests.service.support import FakeModel

if TYPE_CHECKING:
    from murho.model.data.schema import Columns


def columns(weights: list[float]) -> Columns:
    size = len(weights)
    return {
        "Weight": np.array(weights),
        "Horsepower": np.full(size, 100.0),
        "Automatic": np.ones(size),
        "Year": np.zeros(size),
        "Origin/plant": np.array(["USA"] * size, dtype=object),
    }


def predict(model: FakeModel, rows: Columns, options: PredictOptions | None = None, **arguments: Any) -> Answer:
    scheduler = Scheduler(10, 10_000_000)
    scheduler.start()
    try:
        return asyncio.run(Predictor(scheduler).predict(model, rows, options or PredictOptions(samples=4), **arguments))
    finally:
        scheduler.close()


class Broken(FakeModel):
    """Answers NaN for heavy rows, in one of the arrays."""

    def __init__(self, field: str, above: float) -> None:
        super().__init__()
        self.field = field
        self.above = above

    def predict(self, columns: Columns, options: PredictOptions) -> Prediction:
        prediction = super().predict(columns, options)
        array = np.array(getattr(prediction, self.field))
        array[columns["Weight"] > self.above] = np.nan
        changed: dict[str, Any] = {self.field: array}
        return replace(prediction, **changed)


def test_values_outside_the_training_range_come_with_the_answer() -> None:
    answer = predict(FakeModel(), columns([3000.0, 9000.0, 9500.0]), max_outside=1)
    assert [(item.row, item.feature) for item in answer.outside] == [(1, "Weight")]


@pytest.mark.parametrize("field", ["mean", "std", "percentiles", "exceedance", "draws"])
def test_an_answer_that_is_not_finite_is_never_given(field: str) -> None:
    options = PredictOptions(samples=4, thresholds=(1.0,), draws=True)
    with pytest.raises(ComputationError, match="isn't finite"):
        predict(Broken(field, above=2500.0), columns([2000.0, 3000.0]), options)


def test_a_broken_answer_within_the_range_is_our_fault_though_a_value_is_in_a_gap() -> None:
    class InGap(Broken):
        def input_warnings(self, columns: Columns, limit: int | None = None, **_: Any) -> list[UnfamiliarValue]:
            found = [UnfamiliarValue(row, "Weight", "in a gap") for row in range(len(columns["Weight"]))]
            return found[:limit]

    with pytest.raises(ComputationError, match="within the training range"):
        predict(InGap("mean", above=2500.0), columns([3000.0]))


@pytest.mark.parametrize("part", ["mean", "std", "percentiles"])
def test_a_monte_carlo_error_that_is_not_finite_is_never_given(part: str) -> None:
    class BrokenError(FakeModel):
        def predict(self, columns: Columns, options: PredictOptions) -> Prediction:
            prediction = super().predict(columns, options)
            assert prediction.mc_error is not None
            changed: dict[str, Any] = {part: getattr(prediction.mc_error, part) * np.nan}
            return replace(prediction, mc_error=replace(prediction.mc_error, **changed))

    with pytest.raises(ComputationError, match="isn't finite"):
        predict(BrokenError(), columns([2000.0]), PredictOptions(samples=4, mc_error=True))


def test_overflow_far_outside_the_training_range_names_the_cells() -> None:
    with pytest.raises(RowsNotFiniteError) as caught:
        predict(Broken("mean", above=5000.0), columns([2000.0, 1e300, 3000.0, 1e300]))
    assert caught.value.cells == [(1, "Weight"), (3, "Weight")]


def test_a_request_in_chunks_gives_the_same_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = columns([float(weight) for weight in range(1000, 1050)])
    options = PredictOptions(samples=4, thresholds=(1.0,), draws=True)
    whole = predict(FakeModel(), rows, options).prediction
    monkeypatch.setattr(predictor, "CHUNK_COST", 28)
    model = FakeModel()
    parts = predict(model, rows, options).prediction
    assert len(model.calls) == 8
    for field in predictor.NUMBERS:
        assert np.array_equal(getattr(whole, field), getattr(parts, field))
    assert whole.mc_error is parts.mc_error is None
    bare = predict(FakeModel(), rows, PredictOptions(samples=0)).prediction
    assert bare.std is None
    assert len(bare.mean) == 50


def test_monte_carlo_errors_of_a_request_in_chunks_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, options = columns([1000.0, 2000.0, 3000.0]), PredictOptions(samples=4, mc_error=True)
    whole = predict(FakeModel(), rows, options).prediction.mc_error
    monkeypatch.setattr(predictor, "CHUNK_COST", 8)
    model = FakeModel()
    parts = predict(model, rows, options).prediction.mc_error
    assert len(model.calls) == 3
    assert whole is not None
    assert parts is not None
    for name in ("mean", "std", "percentiles"):
        assert np.array_equal(getattr(whole, name), getattr(parts, name))


def test_computation_ends_soon_after_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predictor, "CHUNK_COST", 4)
    model = FakeModel()
    model.before = lambda: __import__("time").sleep(0.02)

    async def test() -> None:
        scheduler = Scheduler(10, 10_000_000)
        scheduler.start()
        rows = columns([2000.0] * 1000)
        with pytest.raises(DeadlineError):
            await Predictor(scheduler).predict(model, rows, PredictOptions(samples=4), deadline=scheduler.clock() + 0.1)
        assert await asyncio.to_thread(scheduler.close, 5)

    asyncio.run(test())
    assert len(model.calls) < 100


def test_a_full_device_is_a_passing_state() -> None:
    import torch

    def run_out_of_memory() -> None:
        raise torch.OutOfMemoryError

    model = FakeModel()
    model.before = run_out_of_memory
    with pytest.raises(NotReadyError, match="memory is full"):
        predict(model, columns([2000.0]))
