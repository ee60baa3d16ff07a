from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murho.model.predictive.prediction import PredictOptions
from murho.service.engine.scheduler import FIRST_SECONDS_PER_COST, Turns, WorkRates
from tests.service.some_jobs import job_of
from tests.service.support import FakeModel

if TYPE_CHECKING:
    from collections.abc import Callable

    from murho.service.engine.jobs import Job


def room(most: float) -> Callable[[Job], float]:
    return lambda _: most


def in_loop(test: Callable[[], None]) -> None:
    """Runs a test that makes jobs."""

    async def run() -> None:
        test()

    asyncio.run(run())


def test_a_caller_with_one_job_comes_before_the_second_of_a_caller_with_many() -> None:
    def test() -> None:
        turns = Turns()
        many = [job_of(caller="many") for _ in range(5)]
        one = job_of(caller="one")
        for job in [*many, one]:
            turns.add(job, job.cost)
        assert [turns.take(room(0.0))[0] for _ in range(6)] == [many[0], one, *many[1:]]
        assert not turns

    in_loop(test)


def test_what_does_not_fit_waits() -> None:
    def test() -> None:
        turns = Turns()
        jobs = [job_of(cost=4.0), job_of(cost=3.0), job_of(cost=5.0), job_of(cost=1.0)]
        for job in jobs:
            turns.add(job, job.cost)
        assert turns.take(room(10.0)) == jobs[:2]
        assert turns.take(room(1.0)) == [jobs[2]]
        assert turns.take(room(1.0)) == [jobs[3]]
        assert turns.take(room(1.0)) == []

    in_loop(test)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(1.0, 50.0), st.integers(1, 3), st.booleans()), max_size=30),
    st.floats(1.0, 100.0),
)
def test_every_job_is_taken_once_and_a_pass_has_one_lane(
    asked: list[tuple[str, float, int, bool]], most: float
) -> None:
    def test() -> None:
        turns = Turns()
        jobs = [
            job_of(caller=caller, cost=work, options=PredictOptions(samples=samples))
            for caller, work, samples, _ in asked
        ]
        for job, (*_, over) in zip(jobs, asked, strict=True):
            turns.add(job, job.cost)
            job.over = over
        taken: list[Job] = []
        while turns:
            those = turns.take(room(most))
            assert len({job.options.samples for job in those}) <= 1
            taken += those
        assert sorted(map(id, taken)) == sorted(id(job) for job in jobs if not job.over)

    in_loop(test)


def test_the_rate_follows_what_was_measured() -> None:
    rates, model = WorkRates(), FakeModel()
    assert rates.seconds(model, 1.0) == FIRST_SECONDS_PER_COST
    rates.record(model, 1e6, 2.0)
    assert rates.seconds(model, 3.0) == pytest.approx(6e-6)
    for _ in range(100):
        rates.record(model, 1e6, 4.0)
    assert rates.seconds(model, 1.0) == pytest.approx(4e-6, rel=1e-3)
