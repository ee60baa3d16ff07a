from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

import pytest

from murho.model.predictive.prediction import PredictOptions
from murho.service.engine import scheduler as scheduling
from murho.service.engine.scheduler import Receive, Scheduler
from murho.service.errors import (
    ClientGoneError,
    DeadlineError,
    NotReadyError,
    QueueFullError,
    TooLargeError,
)
from tests.service.some_jobs import Computation, arrived, job_of, submit
from tests.service.support import FakeModel

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


def run(scheduler: Scheduler, test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    scheduler.start()
    try:
        asyncio.run(asyncio.wait_for(test(), 20))
    finally:
        assert scheduler.close(10)


def test_jobs_that_wait_share_a_pass_in_one_thread() -> None:
    computation = Computation(held=True)
    scheduler = Scheduler(computation, 100, 1000)

    async def test() -> None:
        first = job_of()
        submit(scheduler, first)
        await computation.until_begun()
        others = [job_of() for _ in range(20)]
        for job in others:
            submit(scheduler, job)
        await arrived()
        computation.release.set()
        await asyncio.gather(*(job.future for job in [first, *others]))
        assert [[part.job for part in slices] for slices in computation.passes] == [[first], others]

    run(scheduler, test)
    assert computation.threads == {"compute"}
    assert (scheduler.admission.pending, scheduler.admission.pending_cost) == (0, 0)


def test_what_the_answers_of_a_pass_bring_joins_those_who_wait_in_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scheduling, "PASS_SECONDS", 20.0)  # a slow machine still sends the answers in time
    computation = Computation(held=True)
    scheduler = Scheduler(computation, 100, 1000)

    async def test() -> None:
        first, waiting, again = job_of(), job_of(), job_of()
        submit(scheduler, first)
        await computation.until_begun()
        submit(scheduler, waiting)
        await arrived()
        computation.release.set()
        await first.future
        submit(scheduler, again)
        await asyncio.gather(waiting.future, again.future)
        assert [[part.job for part in slices] for slices in computation.passes] == [[first], [waiting, again]]

    run(scheduler, test)


def test_only_jobs_of_one_model_seed_and_number_of_draws_share_a_pass() -> None:
    computation = Computation(held=True)
    scheduler = Scheduler(computation, 100, 1000)
    other = FakeModel("other")

    async def test() -> None:
        blocker = job_of(model=FakeModel("blocker"))
        submit(scheduler, blocker)
        await computation.until_begun()
        seed = FakeModel().spec.default_seed
        kinds = [
            (job_of(), "plain"),
            (job_of(options=PredictOptions(samples=8)), "8 draws"),
            (job_of(options=PredictOptions(samples=4, percentiles=(1.0,))), "plain"),
            (job_of(options=PredictOptions(samples=4, seed=seed)), "plain"),
            (job_of(options=PredictOptions(samples=4, seed=seed + 1)), "another seed"),
            (job_of(model=other), "another model"),
        ]
        for job, _ in kinds:
            submit(scheduler, job)
        await arrived()
        computation.release.set()
        await asyncio.gather(*(job.future for job, _ in kinds))
        names = dict(kinds)
        shared = [{names[part.job] for part in slices} for slices in computation.passes[1:]]
        assert sorted(map(tuple, shared)) == [("8 draws",), ("another model",), ("another seed",), ("plain",)]

    run(scheduler, test)


def test_a_job_without_draws_shares_no_pass_so_that_its_mean_is_the_same_to_the_bit() -> None:
    computation = Computation(held=True)
    scheduler = Scheduler(computation, 100, 1000)

    async def test() -> None:
        blocker = job_of()
        submit(scheduler, blocker)
        await computation.until_begun()
        others = [job_of(options=PredictOptions(samples=0), rows_of_pass=256) for _ in range(3)]
        for job in others:
            submit(scheduler, job)
        await arrived()
        computation.release.set()
        await asyncio.gather(*(job.future for job in others))
        assert [[part.job for part in slices] for slices in computation.passes[1:]] == [[job] for job in others]

    run(scheduler, test)


@pytest.mark.parametrize("seconds", [1e-9, 1.0])
def test_the_passes_of_a_job_without_draws_do_not_depend_on_measured_speed(seconds: float) -> None:
    computation = Computation()
    scheduler = Scheduler(computation, 100, 1e6)

    async def test() -> None:
        job = job_of(600, options=PredictOptions(samples=0), rows_of_pass=256)
        scheduler.rates.record(job.model, 1e6, 1e6 * seconds)
        submit(scheduler, job)
        await job.future
        assert [part.rows for slices in computation.passes for part in slices] == [256, 256, 88]

    run(scheduler, test)


def test_a_small_job_waits_for_one_pass_of_a_large_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "PASS_SECONDS", 100 * 2e-7)  # 100 rows
    computation = Computation(held=True)
    scheduler = Scheduler(computation, 100, 1e6)

    async def test() -> None:
        large = [job_of(1000), job_of(1000)]
        for job in large:
            submit(scheduler, job)
        await computation.until_begun()
        small = job_of()
        submit(scheduler, small)
        await arrived()
        computation.release.set()
        await small.future
        await asyncio.gather(*(job.future for job in large))
        assert [part.job for part in computation.passes[1]] == [small]
        sizes = [part.rows for slices in computation.passes for part in slices if part.job is not small]
        assert sizes == [100] * 20
        # The two large ones take turns.
        assert {slices[0].job for slices in computation.passes[2:4]} == set(large)

    run(scheduler, test)


def test_a_large_job_is_not_starved_by_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "PASS_SECONDS", 100 * 2e-7)
    computation = Computation(held=True)
    scheduler = Scheduler(computation, 1000, 1e6)

    async def test() -> None:
        blocker = job_of()
        submit(scheduler, blocker)
        await computation.until_begun()
        large, small = job_of(300), [job_of(60) for _ in range(10)]
        for job in [*small, large]:
            submit(scheduler, job)
        await arrived()
        computation.release.set()
        await asyncio.gather(large.future, *(job.future for job in small))
        kinds = [slices[0].job is large for slices in computation.passes[1:]]
        assert kinds[:6] == [False, True, False, True, False, True] or kinds[:6] == [
            True,
            False,
            True,
            False,
            True,
            False,
        ]

    run(scheduler, test)


def test_while_more_comes_than_can_be_computed_the_queue_of_small_requests_is_kept_short() -> None:
    computation = Computation(held=True)
    ahead = [0.0]
    scheduler = Scheduler(computation, 1000, 1e9, max_standing_wait=0.5, clock=lambda: time.monotonic() + ahead[0])

    async def test() -> None:
        blocker = job_of()
        submit(scheduler, blocker)
        await computation.until_begun()
        jobs = [job_of(cost=1e5) for _ in range(100)]  # of 0.02 s each
        tasks = [submit(scheduler, job) for job in jobs]
        await arrived()
        scheduler.admission.require_room()  # a burst is welcome
        ahead[0] = 11.0
        with pytest.raises(QueueFullError, match=r"for \d\d s the queue has not been empty") as caught:
            scheduler.admission.require_room()
        assert caught.value.retry_after == 2
        for task in tasks[:80]:
            task.cancel()
        await arrived()
        scheduler.admission.require_room()
        computation.release.set()
        await asyncio.gather(blocker.future, *(job.future for job in jobs[80:]))

    run(scheduler, test)


def test_a_long_job_stops_soon_after_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "PASS_SECONDS", 100 * 2e-7)
    computation = Computation(held=True)
    now = 0.0
    scheduler = Scheduler(computation, 100, 1e6, clock=lambda: now)

    async def test() -> None:
        nonlocal now
        job = job_of(1000, deadline=2.0)
        submit(scheduler, job)
        await computation.until_begun()
        now = 3.0
        await arrived()
        computation.release.set()
        with pytest.raises(DeadlineError, match=r"100 of 1000 rows were computed.*Send fewer rows"):
            await job.future
        assert len(computation.passes) == 1

    run(scheduler, test)


def test_a_job_that_nobody_waits_for_is_dropped() -> None:
    computation = Computation(held=True)
    scheduler = Scheduler(computation, 100, 100)

    async def test() -> None:
        blocker, gone, next_one = job_of(), job_of(), job_of()
        submit(scheduler, blocker)
        await computation.until_begun()
        task = submit(scheduler, gone)
        await arrived()
        task.cancel()
        await arrived()
        assert scheduler.admission.pending == 1
        submit(scheduler, next_one)
        await arrived()
        computation.release.set()
        await next_one.future
        assert [part.job for slices in computation.passes for part in slices] == [blocker, next_one]

    run(scheduler, test)
    assert (scheduler.admission.pending, scheduler.admission.pending_cost) == (0, 0)


def test_closing_finishes_what_was_admitted_and_admits_nothing_more() -> None:
    computation = Computation(held=True)
    scheduler = Scheduler(computation, 100, 100)
    scheduler.start()

    async def test() -> None:
        job = job_of()
        submit(scheduler, job)
        await computation.until_begun()
        assert not scheduler.close(0.01)
        with pytest.raises(NotReadyError):
            submit(scheduler, job_of())
        await arrived()
        computation.release.set()
        await job.future
        assert await asyncio.to_thread(scheduler.close, 10)

    asyncio.run(test())


def test_an_event_loop_that_has_ended_stops_nothing() -> None:
    computation = Computation(held=True)
    scheduler = Scheduler(computation, 100, 100)
    scheduler.start()

    async def leave() -> None:
        submit(scheduler, job_of())
        await computation.until_begun()

    asyncio.run(leave())
    computation.release.set()

    async def ask() -> None:
        job = job_of()
        submit(scheduler, job)
        await job.future

    with contextlib.closing(asyncio.new_event_loop()) as loop:
        loop.run_until_complete(ask())
    assert scheduler.close(10)
    assert scheduler.admission.pending == 0


def test_work_is_pending_until_its_request_ends_and_counts_less_as_it_is_done() -> None:
    scheduler = Scheduler(Computation(), 2, 100)
    admission = scheduler.admission
    admitted = admission.admit(FakeModel(), 90.0, 90)
    assert (scheduler.admission.pending, scheduler.admission.pending_cost) == (1, 90.0)
    with pytest.raises(QueueFullError):
        admission.admit(FakeModel(), 20.0, 20)
    admission.done(admitted, 40.0)
    assert (scheduler.admission.pending, scheduler.admission.pending_cost) == (1, 50.0)
    admission.done(admitted, 60.0)  # together a little more than was admitted
    assert (scheduler.admission.pending, scheduler.admission.pending_cost) == (1, 0.0)
    admission.end(admitted)
    admission.end(admission.admit(FakeModel(), 90.0, 90))
    assert (scheduler.admission.pending, scheduler.admission.pending_cost) == (0, 0.0)
    with pytest.raises(TooLargeError):
        admission.admit(FakeModel(), 101.0, 90)


async def stays() -> dict[str, Any]:
    await asyncio.Event().wait()
    raise AssertionError


async def leaves() -> dict[str, Any]:
    return {"type": "http.disconnect"}


@pytest.mark.parametrize(
    ("receive", "seconds", "error"), [(stays, 0.1, DeadlineError), (leaves, 20.0, ClientGoneError)]
)
def test_a_deadline_or_a_client_that_leaves_ends_the_wait(
    receive: Receive, seconds: float, error: type[Exception]
) -> None:
    computation = Computation(held=True)
    scheduler = Scheduler(computation, 10, 100)

    async def test() -> None:
        job = job_of(deadline=scheduler.clock() + seconds)
        with pytest.raises(error):
            await submit(scheduler, job, receive)
        assert job.over
        assert scheduler.admission.pending == 0
        computation.release.set()

    run(scheduler, test)


def test_a_caller_that_is_cancelled_is_forgotten() -> None:
    computation = Computation(held=True)
    scheduler = Scheduler(computation, 10, 100)

    async def test() -> None:
        job = job_of()
        task = submit(scheduler, job, stays)
        await asyncio.sleep(0.2)  # by then its client is watched
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert job.over
        await arrived()
        assert len(asyncio.all_tasks()) <= 2  # the watch ends with the wait
        computation.release.set()

    run(scheduler, test)


def test_a_pass_takes_a_quarter_of_the_small_jobs_that_wait_if_that_is_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "PASS_SECONDS", 100 * 2e-7)
    computation = Computation(held=True)
    scheduler = Scheduler(computation, 1000, 1e6)

    async def test() -> None:
        blocker = job_of()
        submit(scheduler, blocker)
        await computation.until_begun()
        small = [job_of(50) for _ in range(32)]
        for job in small:
            submit(scheduler, job)
        await arrived()
        computation.release.set()
        await asyncio.gather(*(job.future for job in small))
        assert [len(slices) for slices in computation.passes[1:]][:6] == [8, 6, 4, 3, 2, 2]

    run(scheduler, test)


def test_an_error_reaches_its_caller_alone() -> None:
    computation = Computation()
    scheduler = Scheduler(computation, 10, 10)

    async def test() -> None:
        bad, good = job_of(), job_of()
        computation.errors[bad] = ZeroDivisionError()
        submit(scheduler, bad)
        submit(scheduler, good)
        with pytest.raises(ZeroDivisionError):
            await bad.future
        await good.future

    run(scheduler, test)


def test_the_first_call_comes_before_all_work() -> None:
    computation = Computation()
    scheduler = Scheduler(computation, 10, 10)
    seen: list[int] = []

    async def test() -> None:
        job = job_of()
        submit(scheduler, job)
        scheduler.start(first=lambda: seen.append(len(computation.passes)))
        await job.future

    asyncio.run(test())
    assert scheduler.close(10)
    assert seen == [0]


def test_above_the_bound_of_requests_the_caller_is_told_to_come_back() -> None:
    computation = Computation(held=True)
    scheduler = Scheduler(computation, 2, 1000)

    async def test() -> None:
        jobs = [job_of(), job_of()]
        for job in jobs:
            submit(scheduler, job)
        with pytest.raises(QueueFullError) as caught:
            submit(scheduler, job_of())
        assert caught.value.retry_after == 1
        with pytest.raises(QueueFullError):
            scheduler.admission.require_room()
        await arrived()
        computation.release.set()
        await asyncio.gather(*(job.future for job in jobs))
        scheduler.admission.require_room()

    run(scheduler, test)
    assert (scheduler.admission.pending, scheduler.admission.pending_cost) == (0, 0)


def test_the_time_after_which_to_come_back_is_that_of_the_work_that_waits() -> None:
    computation = Computation(held=True)
    scheduler = Scheduler(computation, 1, 1e9)

    async def test() -> None:
        scheduler.rates.record(job_of().model, 1e6, 10.0)  # 10 microseconds a row-draw
        job = job_of(cost=5e5)
        submit(scheduler, job)
        with pytest.raises(QueueFullError, match=r"5\.0 s") as caught:
            scheduler.admission.require_room()
        assert caught.value.retry_after == 5
        await arrived()
        computation.release.set()
        await job.future

    run(scheduler, test)


def test_the_bound_of_cost_counts_the_work() -> None:
    computation = Computation(held=True)
    scheduler = Scheduler(computation, 100, 10)

    async def test() -> None:
        job = job_of(4, cost=8)
        submit(scheduler, job)
        with pytest.raises(QueueFullError):
            submit(scheduler, job_of(3))
        with pytest.raises(TooLargeError, match="at most 5 rows"):
            submit(scheduler, job_of(11, cost=22))
        await arrived()
        computation.release.set()
        await job.future

    run(scheduler, test)


def test_a_job_whose_deadline_has_passed_is_never_begun() -> None:
    computation = Computation(held=True)
    now = 0.0
    scheduler = Scheduler(computation, 100, 100, clock=lambda: now)

    async def test() -> None:
        nonlocal now
        blocker = job_of()
        submit(scheduler, blocker)
        await computation.until_begun()
        late = job_of(deadline=2.0)
        task = submit(scheduler, late)
        await arrived()
        now = 3.0
        computation.release.set()
        with pytest.raises(DeadlineError, match=r"within 2 seconds: it waited for its turn"):
            await task
        assert len(computation.passes) == 1

    run(scheduler, test)
    assert scheduler.admission.pending == 0


def test_the_times_in_the_queue_and_in_computation_are_told() -> None:
    computation = Computation(held=True)
    now = 0.0
    scheduler = Scheduler(computation, 100, 100, clock=lambda: now)

    async def test() -> None:
        nonlocal now
        first, second = job_of(), job_of()
        submit(scheduler, first)
        await computation.until_begun()
        now = 1.0
        submit(scheduler, second)
        await arrived()
        now = 3.0
        computation.release.set()
        await second.future
        assert (first.timing.queue, first.timing.compute) == (0.0, 3.0)
        assert second.timing.queue == 2.0

    run(scheduler, test)
