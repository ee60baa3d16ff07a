from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from murho.service.errors import DeadlineError, NotReadyError, QueueFullError, TooLargeError
from murho.service.scheduler import Abandoned, Scheduler, Timing

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


def run(scheduler: Scheduler, test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    scheduler.start()
    try:
        asyncio.run(asyncio.wait_for(test(), 20))
    finally:
        assert scheduler.close(10)


class Blocker:
    """Work that computes until it is released."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.release = threading.Event()

    def __call__(self, _: Abandoned) -> str:
        self.begun.set()
        assert self.release.wait(20)
        return "done"

    async def until_begun(self) -> None:
        await asyncio.to_thread(self.begun.wait, 20)


def test_work_runs_in_one_thread_in_order_of_arrival() -> None:
    scheduler = Scheduler(100, 100)
    seen: list[tuple[int, str]] = []

    async def test() -> None:
        def work(number: int) -> Callable[[Abandoned], int]:
            def record(_: Abandoned) -> int:
                seen.append((number, threading.current_thread().name))
                return number

            return record

        assert await asyncio.gather(*(scheduler.run(work(number)) for number in range(20))) == list(range(20))

    run(scheduler, test)
    assert seen == [(number, "compute") for number in range(20)]


def test_the_first_call_comes_before_all_work() -> None:
    scheduler = Scheduler(10, 10)
    seen: list[str] = []
    scheduler.start(first=lambda: seen.append("first"))
    asyncio.run(scheduler.run(lambda _: seen.append("work")))
    scheduler.close()
    assert seen == ["first", "work"]


def test_an_error_reaches_its_caller_alone() -> None:
    scheduler = Scheduler(10, 10)

    async def test() -> None:
        with pytest.raises(ZeroDivisionError):
            await scheduler.run(lambda _: 1 // 0)
        assert await scheduler.run(lambda _: "next") == "next"

    run(scheduler, test)


def test_above_the_bound_of_requests_the_caller_is_told_to_come_back() -> None:
    scheduler = Scheduler(2, 1000)
    blocker = Blocker()

    async def test() -> None:
        running = [asyncio.ensure_future(scheduler.run(blocker)) for _ in range(2)]
        await blocker.until_begun()
        with pytest.raises(QueueFullError) as caught:
            await scheduler.run(blocker)
        assert caught.value.retry_after is not None
        assert caught.value.retry_after >= 1
        blocker.release.set()
        assert await asyncio.gather(*running) == ["done", "done"]
        assert await scheduler.run(lambda _: "room again") == "room again"

    run(scheduler, test)
    assert (scheduler.pending, scheduler.pending_cost) == (0, 0)


def test_the_bound_of_cost_counts_rows_and_draws() -> None:
    scheduler = Scheduler(100, 10)
    blocker = Blocker()

    async def test() -> None:
        running = asyncio.ensure_future(scheduler.run(blocker, cost=8))
        await blocker.until_begun()
        with pytest.raises(QueueFullError):
            await scheduler.run(blocker, cost=3)
        with pytest.raises(TooLargeError, match="at most 10"):
            await scheduler.run(blocker, cost=11)
        blocker.release.set()
        await running

    run(scheduler, test)


def test_a_deadline_ends_the_wait_and_the_work_is_never_begun() -> None:
    scheduler = Scheduler(100, 100)
    blocker = Blocker()
    begun: list[str] = []

    async def test() -> None:
        running = asyncio.ensure_future(scheduler.run(blocker))
        await blocker.until_begun()
        with pytest.raises(DeadlineError, match="no answer within"):
            await scheduler.run(lambda _: begun.append("late"), deadline=scheduler.clock() + 0.05)
        blocker.release.set()
        await running
        await scheduler.run(lambda _: None)

    run(scheduler, test)
    assert not begun


def test_a_deadline_ends_the_wait_for_running_work_and_tells_it() -> None:
    scheduler = Scheduler(100, 100)
    told = threading.Event()

    def work(abandoned: Abandoned) -> None:
        while not abandoned():
            threading.Event().wait(0.005)
        told.set()

    async def test() -> None:
        with pytest.raises(DeadlineError):
            await scheduler.run(work, deadline=scheduler.clock() + 0.05)
        assert await asyncio.to_thread(told.wait, 10)

    run(scheduler, test)


def test_work_of_a_caller_that_is_gone_is_never_begun() -> None:
    scheduler = Scheduler(100, 100)
    blocker = Blocker()
    begun: list[str] = []

    async def test() -> None:
        running = asyncio.ensure_future(scheduler.run(blocker))
        await blocker.until_begun()
        gone = asyncio.ensure_future(scheduler.run(lambda _: begun.append("for nobody")))
        await asyncio.sleep(0.01)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        blocker.release.set()
        await running
        await scheduler.run(lambda _: None)

    run(scheduler, test)
    assert not begun
    assert scheduler.pending == 0


def test_closing_finishes_what_was_admitted_and_admits_nothing_more() -> None:
    scheduler = Scheduler(100, 100)
    blocker = Blocker()
    scheduler.start()

    async def test() -> None:
        running = asyncio.ensure_future(scheduler.run(blocker))
        await blocker.until_begun()
        assert not scheduler.close(0.01)
        with pytest.raises(NotReadyError):
            await scheduler.run(blocker)
        blocker.release.set()
        assert await running == "done"
        assert await asyncio.to_thread(scheduler.close, 10)

    asyncio.run(test())


def test_the_times_in_the_queue_and_in_computation_are_told() -> None:
    scheduler = Scheduler(100, 100)

    async def test() -> None:
        first, second = Timing(), Timing()

        def work(_: object) -> bool:
            return threading.Event().wait(0.05)

        await asyncio.gather(scheduler.run(work, timing=first), scheduler.run(work, timing=second))
        assert first.compute >= 0.05
        assert first.queue < second.queue
        assert second.queue >= 0.05

    run(scheduler, test)
