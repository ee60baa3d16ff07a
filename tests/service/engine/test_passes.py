from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from murho.model.predictive.prediction import NUMBER_FIELDS, Prediction, PredictOptions, Question
from murho.model.tables.schema import Columns, UnfamiliarValue
from murho.service.engine import scheduler
from murho.service.engine.jobs import Answer, Job, RowsNotFiniteError, Slice, compute
from murho.service.engine.scheduler import Scheduler
from murho.service.errors import ComputationError
from tests.service.some_jobs import submit
from tests.service.support import FakeModel

if TYPE_CHECKING:
    from collections.abc import Sequence

ARRAYS = (*(field.name for field in NUMBER_FIELDS if not field.parts), "unlike")


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
    queue = Scheduler(compute, 10, 10_000_000)
    queue.start()

    async def ask() -> Answer:
        return await submit(queue, job_about(model, rows, options or PredictOptions(samples=4), **arguments))

    try:
        return asyncio.run(ask())
    finally:
        queue.close()


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


def test_a_broken_answer_within_the_range_is_our_fault_though_a_value_is_in_a_gap() -> None:
    class InGap(Broken):
        def predict_questions(self, columns: Columns, questions: Sequence[Question]) -> Any:
            found = [UnfamiliarValue(0, "Weight", "in a gap")]
            return [(answer, found) for answer, _ in super().predict_questions(columns, questions)]

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


@pytest.mark.parametrize("samples", [0, 4])
def test_a_request_in_several_passes_gives_the_same_answer(monkeypatch: pytest.MonkeyPatch, samples: int) -> None:
    rows = columns([float(weight) for weight in range(995, 1045)])
    options = PredictOptions(samples=samples, thresholds=(1.0,), draws=True, mc_error=True)
    whole = predict(FakeModel(), rows, options, max_outside=3)
    monkeypatch.setattr(scheduler, "PASS_SECONDS", 0.0)
    monkeypatch.setattr(scheduler, "LEAST_ROWS", 7)
    model = FakeModel()
    model.rows_of_pass = 7
    parts = predict(model, rows, options, max_outside=3)
    assert len(model.calls) == 8
    for field in ARRAYS:
        assert np.array_equal(getattr(whole.prediction, field), getattr(parts.prediction, field))
    assert whole.outside == parts.outside
    assert [value.row for value in parts.outside] == [0, 1, 2]
    errors, joined = whole.prediction.mc_error, parts.prediction.mc_error
    assert (errors is None) == (joined is None) == (samples == 0)
    if errors is not None:
        for name in ("mean", "std", "percentiles"):
            assert np.array_equal(getattr(errors, name), getattr(joined, name))


def answers(jobs: list[Job]) -> list[Any]:
    return list(compute([Slice(job, 0, job.rows) for job in jobs]))


def job_about(
    model: FakeModel, weights: list[float] | Columns, options: PredictOptions, *, max_outside: int = 2
) -> Job:
    future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    rows = columns(weights) if isinstance(weights, list) else weights
    count = len(rows["Weight"])
    of_pass = model.rows_without_draws(count, 0, 0.04) if options.samples == 0 else None
    cost = model.cost(count, options)
    return Job(model, rows, options, count, cost, "", float("inf"), max_outside, future, of_pass)


MIXED = [
    PredictOptions(samples=4),
    PredictOptions(samples=4, percentiles=(1.0, 99.0)),
    PredictOptions(samples=4, draws=True, thresholds=(30.0, 40.0)),
    PredictOptions(samples=4, mc_error=True),
]


def test_jobs_with_different_options_share_a_pass_and_get_their_own_answers() -> None:
    model = FakeModel()
    asked = [MIXED[index] for index in (0, 1, 0, 2, 3, 1, 0)]
    weights = [[1000.0 * (index + 1) + row for row in range(1 + index % 3)] for index in range(len(asked))]

    async def test() -> list[Any]:
        return answers([job_about(model, rows, options) for rows, options in zip(weights, asked, strict=True)])

    found = asyncio.run(test())
    assert model.passes == 1
    for rows, options, answer in zip(weights, asked, found, strict=True):
        alone = predict(FakeModel(), columns(rows), options, max_outside=2)
        for field in ARRAYS:
            assert np.array_equal(getattr(answer.prediction, field), getattr(alone.prediction, field))
        assert (answer.prediction.mc_error is None) == (alone.prediction.mc_error is None)
        assert answer.outside == alone.outside


def test_bad_rows_of_one_job_harm_no_other() -> None:
    async def test() -> None:
        model = Broken("mean", above=5000.0)
        good, bad, far = ([2000.0], [2000.0, 4000.0, 1e300], [1e300])
        found = answers([job_about(model, rows, MIXED[0]) for rows in (good, bad, far)])
        assert found[0].prediction.mean.tolist() == [120.0]
        assert found[1].cells == [(2, "Weight")]
        assert found[2].cells == [(0, "Weight")]

    asyncio.run(test())


def test_a_job_that_makes_the_model_fail_harms_no_other() -> None:
    class Failing(FakeModel):
        def predict(self, columns: Columns, options: PredictOptions) -> Prediction:
            if (columns["Weight"] == 3000.0).any():
                raise ZeroDivisionError
            return super().predict(columns, options)

    async def test() -> None:
        model = Failing()
        found = answers([job_about(model, [weight], MIXED[0]) for weight in (2000.0, 3000.0, 4000.0)])
        assert [type(answer) for answer in found] == [Answer, ZeroDivisionError, Answer]
        assert found[2].prediction.mean.tolist() == [140.0]

    asyncio.run(test())


@pytest.mark.parametrize("field", ["mean", "std", "percentiles", "exceedance", "draws"])
def test_an_answer_that_is_not_finite_is_never_given(field: str) -> None:
    options = PredictOptions(samples=4, thresholds=(1.0,), draws=True)
    with pytest.raises(ComputationError, match="isn't finite"):
        predict(Broken(field, above=2500.0), columns([2000.0, 3000.0]), options)


def test_overflow_far_outside_the_training_range_names_the_cells() -> None:
    with pytest.raises(RowsNotFiniteError) as caught:
        predict(Broken("mean", above=5000.0), columns([2000.0, 1e300, 3000.0, 1e300]))
    assert caught.value.cells == [(1, "Weight"), (3, "Weight")]


def test_warnings_of_one_pass_stay_with_their_jobs() -> None:
    async def test() -> None:
        weights = [[9000.0] * 3, [2000.0], [2000.0, 9500.0]]
        found = answers([job_about(FakeModel(), rows, MIXED[0]) for rows in weights])
        assert [[value.row for value in answer.outside] for answer in found] == [[0, 1], [], [1]]

    asyncio.run(test())
