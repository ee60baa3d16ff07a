from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from murho.model.predictive.prediction import PredictOptions
from murho.service.engine.turns import Turns
from tests.service.some_jobs import job_of

if TYPE_CHECKING:
    from murho.service.engine.jobs import Job


def cost(job: Job) -> float:
    return job.cost


def test_a_caller_with_one_job_comes_before_the_second_of_a_caller_with_many() -> None:
    async def test() -> None:
        turns = Turns()
        many = [job_of(caller="many") for _ in range(5)]
        one = job_of(caller="one")
        for job in [*many, one]:
            turns.add(job, job.cost)
        taken = [turns.take(0.0, cost)[0] for _ in range(6)]
        assert taken == [many[0], one, *many[1:]]
        assert not turns

    asyncio.run(test())


def test_models_of_a_caller_take_turns_too() -> None:
    async def test() -> None:
        from tests.service.support import FakeModel

        turns = Turns()
        jobs = [job_of(caller="a") for _ in range(3)]
        other = job_of(caller="a", model=FakeModel("other"))
        for job in [*jobs, other]:
            turns.add(job, job.cost)
        assert [turns.take(0.0, cost)[0] for _ in range(4)].index(other) == 1

    asyncio.run(test())


def test_what_does_not_fit_waits() -> None:
    async def test() -> None:
        turns = Turns()
        jobs = [job_of(cost=4.0), job_of(cost=3.0), job_of(cost=5.0), job_of(cost=1.0)]
        for job in jobs:
            turns.add(job, job.cost)
        assert turns.take(10.0, cost) == jobs[:2]
        assert turns.take(1.0, cost) == [jobs[2]]
        assert turns.take(1.0, cost) == [jobs[3]]
        assert turns.take(1.0, cost) == []

    asyncio.run(test())


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(1.0, 50.0), st.integers(1, 3), st.booleans()), max_size=30),
    st.floats(1.0, 100.0),
)
def test_every_job_is_taken_once_and_a_pass_has_one_lane(
    asked: list[tuple[str, float, int, bool]], room: float
) -> None:
    async def test() -> None:
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
            those = turns.take(room, cost)
            assert len({job.options.samples for job in those}) <= 1
            taken += those
        assert sorted(map(id, taken)) == sorted(id(job) for job in jobs if not job.over)

    asyncio.run(test())
