from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections.abc import MutableMapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murho.model.predictive.prediction import PredictOptions
from murho.service.engine.admission import Admission, FairQueue
from murho.service.engine.engine import Receive
from murho.service.engine.jobs import Job, compute
from murho.service.engine.scheduler import Scheduler
from murho.service.errors import (
    ClientGoneError,
    DeadlineError,
    NotReadyError,
    QueueFullError,
    TooLargeError,
)
from tests.service.engine.bench import Bench, job_of
from tests.service.support import FakeModel

pytestmark = pytest.mark.anyio
NO_DRAWS = PredictOptions(samples=0)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


# What shares a pass


async def test_jobs_that_wait_share_a_pass_in_one_thread(bench: Bench) -> None:
    first, others = await bench.hold(), [job_of() for _ in range(20)]
    await bench.submit(*others)
    assert await bench.answers(first, *others) == [[first], others]


async def test_only_jobs_of_one_model_seed_and_number_of_draws_share_a_pass(bench: Bench) -> None:
    blocker, seed = await bench.hold(job_of(model=FakeModel("blocker"))), FakeModel().spec.default_seed
    plain = [job_of(options=PredictOptions(4, levels, given)) for levels, given in (((50.0,), None), ((1.0,), seed))]
    others = [
        job_of(options=PredictOptions(samples=8)),
        job_of(options=PredictOptions(samples=4, seed=seed + 1)),
        job_of(model=FakeModel("other")),
        # To the bit the same at every call.
        *(job_of(options=NO_DRAWS, rows_of_pass=256) for _ in range(3)),
    ]
    await bench.submit(*plain, *others)
    found = await bench.answers(*plain, *others)
    assert sorted(found, key=str) == sorted([[blocker], plain, *([job] for job in others)], key=str)


@pytest.mark.parametrize("seconds", [1e-9, 1.0])
async def test_the_passes_of_a_job_without_draws_do_not_depend_on_measured_speed(bench: Bench, seconds: float) -> None:
    job = job_of(600, options=NO_DRAWS, rows_of_pass=256)
    bench.engine.scheduler.rates.record(job.model, 1e6, 1e6 * seconds)
    await bench.submit(job)
    await bench.answers(job)
    assert [part.rows for slices in bench.passes for part in slices] == [256, 256, 88]


@pytest.mark.usefixtures("short_passes")
async def test_a_small_job_waits_for_one_pass_of_large_ones_which_take_turns(bench: Bench) -> None:
    large, small = [job_of(1000), job_of(1000)], job_of()
    await bench.hold(large[0])
    await bench.submit(large[1], small)
    passes = await bench.answers(small, *large)
    assert passes[1] == [small]
    assert [part.rows for slices in bench.passes for part in slices if part.job is not small] == [100] * 20
    assert {passes[2][0], passes[3][0]} == set(large)


@pytest.mark.usefixtures("short_passes")
async def test_a_large_job_is_not_starved_by_small_ones(bench: Bench) -> None:
    await bench.hold()
    large, small = job_of(300), [job_of(60) for _ in range(10)]
    await bench.submit(*small, large)
    kinds = [jobs == [large] for jobs in (await bench.answers(large, *small))[1:7]]
    assert kinds in ([False, True] * 3, [True, False] * 3)


@pytest.mark.usefixtures("short_passes")
async def test_a_pass_takes_a_quarter_of_the_small_jobs_that_wait_if_that_is_more(bench: Bench) -> None:
    await bench.hold()
    small = [job_of(50) for _ in range(32)]
    await bench.submit(*small)
    assert [len(jobs) for jobs in await bench.answers(*small)][:7] == [1, 8, 6, 4, 3, 2, 2]


async def test_a_caller_with_one_job_comes_before_the_second_of_a_caller_with_many_and_what_does_not_fit_waits() -> (
    None
):
    turns, many, one = (
        FairQueue(),
        [job_of(cost=cost, caller="many") for cost in (4.0, 3.0, 5.0, 1.0)],
        job_of(caller="one"),
    )
    for job in (*many, one):
        turns.add(job, job.cost)
    taken = [turns.take(room) for room in (lambda _: 5.0, lambda _: 1.0, lambda _: 6.0)]
    assert taken == [[many[0], one], [many[1]], [many[2], many[3]]]
    assert not turns


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(1.0, 50.0), st.integers(1, 3), st.booleans()), max_size=30),
    st.floats(1.0, 100.0),
)
async def test_every_job_is_taken_once_and_a_pass_has_one_lane(
    asked: list[tuple[str, float, int, bool]], most: float
) -> None:
    turns, jobs, taken = FairQueue(), list[Job](), list[Job]()
    for caller, cost, samples, over in asked:
        jobs.append(job_of(caller=caller, cost=cost, options=PredictOptions(samples=samples)))
        turns.add(jobs[-1], cost)
        jobs[-1].over = over
    while turns:
        those = turns.take(lambda _: most)
        assert len({job.options.samples for job in those}) <= 1
        taken += those
    assert sorted(map(id, taken)) == sorted(id(job) for job in jobs if not job.over)


# Room


async def test_above_the_bounds_of_requests_and_of_cost_the_caller_is_told_when_to_come_back() -> None:
    async with Bench(2, 1e6) as bench:
        large, small = job_of(90, cost=9e5), job_of()
        bench.engine.scheduler.rates.record(large.model, 1e6, 10.0)  # 10 microseconds a row-draw
        await bench.submit(large)
        with pytest.raises(TooLargeError, match="at most 50 rows"):
            await bench.submit(job_of(51, cost=1.02e6))
        with pytest.raises(QueueFullError):
            await bench.submit(job_of(cost=2e5))
        await bench.submit(small)
        for ask in (bench.admission.require_room, lambda: bench.admission.admit(small.model, 1.0, 1)):
            with pytest.raises(QueueFullError, match=r"9\.0 s") as caught:
                ask()
            assert caught.value.retry_after == 9
        await bench.answers(large, small)
        await asyncio.gather(*bench.tasks)
        bench.admission.require_room()


def test_work_is_pending_until_its_request_ends_and_counts_less_as_it_is_done() -> None:
    admission = Bench(2, 100).admission
    admitted = admission.admit(FakeModel(), 90.0, 90)
    for done, left in ((0.0, 90.0), (40.0, 50.0), (60.0, 0.0)):  # together a little more than was admitted
        admission.done(admitted, done)
        assert (admission.pending, admission.pending_cost) == (1, left)
    admission.end(admitted)
    admission.end(admission.admit(FakeModel(), 90.0, 90))
    assert (admission.pending, admission.pending_cost) == (0, 0.0)


def test_while_more_comes_than_can_be_computed_the_queue_of_small_requests_is_kept_short() -> None:
    clock = Clock()
    scheduler = Scheduler(compute, clock)
    admission = Admission(1000, 1e9, scheduler.rates, lambda: scheduler.standing, 0.5, clock)
    jobs = [job_of(cost=1e5) for _ in range(100)]  # of 0.02 s each
    scheduler.submit(jobs)
    admission.require_room()  # a burst is welcome
    clock.now = 11.0
    with pytest.raises(QueueFullError, match=r"for 11 s the queue has not been empty") as full:
        admission.require_room()
    assert full.value.retry_after == 2
    for job in jobs[:80]:
        scheduler.abandon(job)
    admission.require_room()


# Deadlines, clients that go, and the end


@pytest.mark.usefixtures("short_passes")
async def test_a_job_whose_deadline_has_passed_is_never_begun_and_a_long_one_stops() -> None:
    clock = Clock()
    async with Bench(clock=clock) as bench:
        long = await bench.hold(job_of(1000, deadline=2.0))
        others = await bench.submit(job_of(deadline=2.0), job_of(deadline=0.0))
        clock.now = 3.0
        bench.release.set()
        with pytest.raises(DeadlineError, match=r"100 of 1000 rows were computed.*Send fewer rows"):
            await bench.task_of[long]
        said = [str(error) for error in await asyncio.gather(*others, return_exceptions=True)]
        assert "within 2 seconds: it waited for its turn. Ask for fewer samples" in said[0]
        assert "within 0 seconds" in said[1]
        assert len(bench.passes) == 1


async def stays() -> dict[str, Any]:
    await asyncio.Event().wait()
    raise AssertionError


async def leaves() -> dict[str, Any]:
    return {"type": "http.disconnect"}


@pytest.mark.parametrize(
    ("receive", "seconds", "error"), [(stays, 0.1, DeadlineError), (leaves, 20.0, ClientGoneError)]
)
async def test_a_deadline_or_a_client_that_leaves_ends_the_wait(
    bench: Bench, receive: Receive, seconds: float, error: type[Exception]
) -> None:
    job = job_of(deadline=bench.engine.clock() + seconds)
    (task,) = await bench.submit(job, receive=receive)
    with pytest.raises(error):
        await task
    assert job.over
    assert bench.admission.pending == 0


@pytest.mark.parametrize("ends", [stays, leaves])
async def test_a_watched_request_leaves_no_circle_for_the_garbage_collector(bench: Bench, ends: Receive) -> None:
    async def receive() -> MutableMapping[str, Any]:
        return await ends()

    gone, job = weakref.ref(receive), job_of(deadline=bench.engine.clock() + 0.2)
    gc.disable()
    try:
        await bench.submit(job, receive=receive)
        await asyncio.gather(*bench.tasks, return_exceptions=True)
        bench.tasks.clear()
        bench.task_of.clear()
        del receive
        for _ in range(5):
            await asyncio.sleep(0)
        assert gone() is None
    finally:
        gc.enable()


async def test_a_job_that_nobody_waits_for_is_dropped_and_its_client_no_longer_watched(bench: Bench) -> None:
    blocker, gone, next_one = await bench.hold(), job_of(), job_of()
    before = len(asyncio.all_tasks())
    (task,) = await bench.submit(gone, receive=stays)
    await asyncio.sleep(0.2)  # by then its client is watched
    assert len(asyncio.all_tasks()) == before + 2
    task.cancel()
    await bench.submit(next_one)
    assert bench.admission.pending == 2
    assert len(asyncio.all_tasks()) == before + 1
    assert await bench.answers(blocker, next_one) == [[blocker], [next_one]]


async def test_closing_finishes_what_was_admitted_and_admits_nothing_more(bench: Bench) -> None:
    job = await bench.hold()
    assert not bench.engine.close(0.01)
    with pytest.raises(NotReadyError):
        await bench.submit(job_of())
    await bench.answers(job)
    assert await asyncio.to_thread(bench.engine.close, 10)


def test_an_event_loop_that_has_ended_stops_nothing() -> None:
    bench = Bench()
    bench.engine.start()

    async def leave() -> None:
        await bench.hold()

    asyncio.run(leave())

    async def ask() -> None:
        job = job_of()
        await bench.submit(job)
        await bench.answers(job)

    with contextlib.closing(asyncio.new_event_loop()) as loop:
        loop.run_until_complete(ask())
    assert bench.engine.close(10)
    assert bench.admission.pending == 0


async def test_an_error_reaches_its_caller_alone(bench: Bench) -> None:
    bad, good = job_of(), job_of()
    bench.errors[bad] = ZeroDivisionError()
    tasks = await bench.submit(bad, good)
    await bench.answers(good)
    with pytest.raises(ZeroDivisionError):
        await tasks[0]


async def test_the_first_call_comes_before_all_work() -> None:
    bench, seen = Bench(), list[int]()
    job = job_of()
    await bench.submit(job)
    bench.engine.start(first=lambda: seen.append(len(bench.passes)))
    await bench.answers(job)
    assert await asyncio.to_thread(bench.engine.close, 10)
    assert seen == [0]


async def test_the_times_in_the_queue_and_in_computation_are_told() -> None:
    clock = Clock()
    async with Bench(clock=clock) as bench:
        first, second = await bench.hold(), job_of()
        clock.now = 1.0
        await bench.submit(second)
        clock.now = 3.0
        await bench.answers(second)
        assert (first.timing.queue, first.timing.compute) == (0.0, 3.0)
        assert second.timing.queue == 2.0
