from __future__ import annotations

import asyncio
from typing import Any

import pytest

from murho.service.engine.scheduler import Scheduler
from murho.service.engine.waiting import Waiting
from murho.service.errors import ClientGoneError, DeadlineError
from tests.service.some_jobs import Computation, job_of


def held() -> tuple[Computation, Scheduler, Waiting]:
    computation = Computation(held=True)
    scheduler = Scheduler(computation, 10, 100)
    scheduler.start()
    return computation, scheduler, Waiting(scheduler)


async def stays() -> dict[str, Any]:
    await asyncio.Event().wait()
    raise AssertionError


async def leaves() -> dict[str, Any]:
    return {"type": "http.disconnect"}


def test_a_deadline_ends_the_wait_while_the_job_is_computed() -> None:
    computation, scheduler, waiting = held()

    async def test() -> None:
        job = job_of(deadline=scheduler.clock() + 0.1)
        scheduler.submit(job)
        with pytest.raises(DeadlineError):
            await waiting.answer(job, stays)
        assert job.over
        assert scheduler.pending == 0
        computation.release.set()

    asyncio.run(test())
    assert scheduler.close(10)


def test_a_client_that_leaves_ends_the_wait() -> None:
    computation, scheduler, waiting = held()

    async def test() -> None:
        job = job_of()
        scheduler.submit(job)
        with pytest.raises(ClientGoneError):
            await waiting.answer(job, leaves)
        assert job.over
        computation.release.set()

    asyncio.run(test())
    assert scheduler.close(10)


def test_a_caller_that_is_cancelled_is_forgotten() -> None:
    computation, scheduler, waiting = held()

    async def test() -> None:
        job = job_of()
        scheduler.submit(job)
        task = asyncio.ensure_future(waiting.answer(job, stays))
        await asyncio.sleep(0.2)  # by then its client is watched
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert job.over
        assert len(asyncio.all_tasks()) <= 2  # the watch ends with the wait
        computation.release.set()

    asyncio.run(test())
    assert scheduler.close(10)


def test_an_answer_needs_no_watch() -> None:
    computation, scheduler, waiting = held()
    computation.release.set()
    asked = 0

    async def receive() -> dict[str, Any]:
        nonlocal asked
        asked += 1
        return await stays()

    async def test() -> None:
        for _ in range(3):
            job = job_of()
            scheduler.submit(job)
            await waiting.answer(job, receive)

    asyncio.run(test())
    assert scheduler.close(10)
    assert asked == 0
