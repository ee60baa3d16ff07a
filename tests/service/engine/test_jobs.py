from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from murho.model.predictive.prediction import NUMBER_FIELDS, Prediction, PredictOptions, Question
from murho.model.tables.schema import Columns, UnfamiliarValue
from murho.service.engine import scheduler
from murho.service.engine.engine import LocalEngine
from murho.service.engine.jobs import Answer, Job, Slice, compute
from murho.service.errors import ComputationError
from tests.service.support import FakeModel

pytestmark = pytest.mark.anyio
ARRAYS = (*(field.name for field in NUMBER_FIELDS if not field.parts), "outlier")
PLAIN = PredictOptions(samples=4)


class Broken(FakeModel):
    """Answers NaN for heavy rows, in one of the arrays."""

    def __init__(self, field: str = "mean", above: float = 2500.0) -> None:
        super().__init__()
        self.field, self.above = field, above

    def predict(self, columns: Columns, options: PredictOptions) -> Prediction:
        prediction = super().predict(columns, options)
        name, _, part = self.field.partition(".")
        value: Any = getattr(prediction, name)
        array = np.array(getattr(value, part) if part else value)
        array[columns["Weight"] > self.above] = np.nan
        changed: dict[str, Any] = {name: replace(value, **{part: array}) if part else array}
        return replace(prediction, **changed)


def job_about(model: FakeModel, weights: Sequence[float], options: PredictOptions = PLAIN, most: int = 2) -> Job:
    size = len(weights)
    columns: Columns = {
        "Weight": np.array(weights),
        "Horsepower": np.full(size, 100.0),
        "Automatic": np.ones(size),
        "Year": np.zeros(size),
        "Origin/plant": np.array(["USA"] * size, dtype=object),
    }
    of_pass = model.rows_without_draws(size, 0, 0.04) if options.samples == 0 else None
    return Job(model, columns, options, size, model.cost(size, options), "", float("inf"), most, of_pass)


def answers(*jobs: Job) -> list[Any]:
    outcomes = compute([Slice(job, 0, job.rows) for job in jobs])
    return [outcome.own() if isinstance(outcome, Answer) else outcome for outcome in outcomes]


def assert_same(one: Answer, other: Answer) -> None:
    for field in ARRAYS:
        assert np.array_equal(getattr(one.prediction, field), getattr(other.prediction, field))
    assert one.outside == other.outside
    errors, others = one.prediction.mc_error, other.prediction.mc_error
    assert (errors is None) == (others is None)
    if errors is not None:
        for name in ("mean", "std", "percentiles"):
            assert np.array_equal(getattr(errors, name), getattr(others, name))


@pytest.mark.parametrize("field", ["mean", "std", "percentiles", "exceedance", "draws", "mc_error.std"])
async def test_an_answer_that_is_not_finite_is_never_given(field: str) -> None:
    options = PredictOptions(samples=4, thresholds=(1.0,), draws=True, mc_error=True)
    (error,) = answers(job_about(Broken(field), [2000.0, 3000.0], options))
    assert isinstance(error, ComputationError)
    assert "isn't finite" in str(error)


async def test_a_broken_answer_within_the_range_is_our_fault_though_a_value_is_in_a_gap() -> None:
    class InGap(Broken):
        def predict_questions(self, columns: Columns, questions: Sequence[Question]) -> Any:
            found = [UnfamiliarValue(0, "Weight", "in a gap")]
            return [(answer, found) for answer, _ in super().predict_questions(columns, questions)]

    (error,) = answers(job_about(InGap(), [3000.0]))
    assert "within the training range" in str(error)


@pytest.mark.parametrize("samples", [0, 4])
async def test_a_request_in_several_passes_gives_the_same_answer(monkeypatch: pytest.MonkeyPatch, samples: int) -> None:
    weights = [float(weight) for weight in range(995, 1045)]
    options = PredictOptions(samples=samples, thresholds=(1.0,), draws=True, mc_error=True)
    (whole,) = answers(job_about(FakeModel(), weights, options, 3))
    monkeypatch.setattr(scheduler, "PASS_SECONDS", 0.0)
    monkeypatch.setattr(scheduler, "LEAST_ROWS", 7)
    model, queue = FakeModel(), LocalEngine(compute, 10, 1e7)
    model.rows_of_pass = 7
    queue.start()
    parts = await queue.answer(job_about(model, weights, options, 3))
    assert await asyncio.to_thread(queue.close, 10)
    assert len(model.calls) == 8
    assert_same(whole, parts)
    assert [value.row for value in parts.outside] == [0, 1, 2]


async def test_jobs_with_different_options_share_a_pass_and_get_their_own_answers() -> None:
    options = [
        PLAIN,
        PredictOptions(samples=4, percentiles=(1.0, 99.0)),
        PredictOptions(samples=4, draws=True, thresholds=(30.0, 40.0)),
        PredictOptions(samples=4, mc_error=True),
    ]
    model = FakeModel()
    asked = [
        ([1000.0 * (at + 1) + row for row in range(1 + at % 3)], options[of]) for at, of in enumerate([*range(4)] * 2)
    ]
    found = answers(*(job_about(model, *each) for each in asked))
    assert model.passes == 1
    for each, answer in zip(asked, found, strict=True):
        (alone,) = answers(job_about(FakeModel(), *each))
        assert_same(answer, alone)
    assert [value.row for answer in found for value in answer.outside] == [1, 0, 1, 0, 0, 1]


async def test_jobs_of_a_block_share_one_question_and_one_prediction() -> None:
    model, weights = FakeModel(), [1000.0, 2000.0, 9000.0, 2500.0, 9500.0]
    block = job_about(model, weights)
    jobs = [replace_rows(block, first, rows) for first, rows in ((0, 1), (1, 2), (3, 1), (4, 1))]
    outcomes: list[Any] = list(compute([Slice(job, 0, job.rows) for job in jobs]))
    assert len({id(outcome.prediction) for outcome in outcomes}) == len(model.calls) == 1
    for job, outcome in zip(jobs, outcomes, strict=True):
        (alone,) = answers(job_about(FakeModel(), weights[job.first : job.first + job.rows]))
        assert_same(outcome.own(), alone)


async def test_a_job_of_many_rows_has_a_limit_of_its_own_for_values_unlike_the_training_rows() -> None:
    model = FakeModel()
    few, many, alone = answers(*(job_about(model, [9000.0] * rows) for rows in (1, 3, 1)))
    assert len(model.calls) == 3
    assert [len(answer.outside) for answer in (few, many, alone)] == [1, 2, 1]


async def test_a_row_that_is_not_finite_spares_the_other_jobs_of_its_block() -> None:
    block = job_about(Broken(above=5000.0), [2000.0, 1e300, 3000.0])
    good, bad, other = answers(*(replace_rows(block, first, 1) for first in range(3)))
    assert (good.prediction.mean.tolist(), other.prediction.mean.tolist()) == ([120.0], [130.0])
    assert bad.cells == [(0, "Weight")]


def replace_rows(block: Job, first: int, rows: int) -> Job:
    return replace(block, first=first, rows=rows, parts=[], outside=[])


async def test_bad_rows_or_a_failure_of_one_job_harm_no_other() -> None:
    class Failing(Broken):
        def predict(self, columns: Columns, options: PredictOptions) -> Prediction:
            if (columns["Weight"] == 3000.0).any():
                raise ZeroDivisionError
            return super().predict(columns, options)

    model = Failing(above=5000.0)
    good, bad, far, failed = answers(
        *(job_about(model, rows) for rows in ([2000.0], [2000.0, 4000.0, 1e300], [1e300], [3000.0]))
    )
    assert good.prediction.mean.tolist() == [120.0]
    assert (bad.cells, far.cells) == ([(2, "Weight")], [(0, "Weight")])
    assert isinstance(failed, ZeroDivisionError)
