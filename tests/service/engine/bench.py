"""A scheduler for tests: jobs of a fake model, and passes that are noted and held."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Self

import pytest

from murho.model.predictive.prediction import PredictOptions
from murho.service.engine.jobs import Answer, Job, ModelLike, Outcome, Slice
from murho.service.engine.scheduler import Scheduler
from tests.service.support import FakeModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from murho.service.engine.scheduler import Receive

MODEL = FakeModel()


def job_of(
    rows: int = 1,
    *,
    cost: float | None = None,
    caller: str = "",
    model: ModelLike = MODEL,
    deadline: float = float("inf"),
    options: PredictOptions = PredictOptions(samples=4),  # noqa: B008 - immutable
    rows_of_pass: int | None = None,
) -> Job:
    """A job of the running event loop; each row costs 1 by default."""
    future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    cost = float(rows) if cost is None else cost
    return Job(model, {}, options, rows, cost, caller, deadline, 0, future, rows_of_pass)


class Bench:
    """A scheduler whose passes wait for `release`; at the end nothing is pending.

    Args:
        most: The most jobs that may be pending.
        cost: The most cost that may be.
        more: Other arguments of the scheduler.

    Attributes:
        passes: The slices of every pass.
        tasks: Those that wait for jobs.
        errors: What comes instead of a job's answer, which is None.
    """

    def __init__(self, most: int = 1000, cost: float = 1e6, **more: Any) -> None:
        self.scheduler = Scheduler(self._compute, most, cost, **more)
        self.admission = self.scheduler.admission
        self.passes: list[list[Slice]] = []
        self.tasks: list[asyncio.Task[Answer]] = []
        self.errors: dict[Job, BaseException] = {}
        self.release, self._begun = threading.Event(), threading.Event()

    async def __aenter__(self) -> Self:
        self.scheduler.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.release.set()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        assert self.admission.pending == 0
        assert self.admission.pending_cost == pytest.approx(0.0)
        assert self.scheduler.close(10)

    async def submit(self, *jobs: Job, receive: Receive | None = None) -> list[asyncio.Task[Answer]]:
        """Admits jobs, and lets them reach the queue; each is waited for in a task."""
        admitted = [self.admission.admit(job.model, job.cost, job.rows) for job in jobs]

        async def wait(job: Job, ticket: Any) -> Answer:
            try:
                return await self.scheduler.answer(job, receive)
            finally:
                self.admission.end(ticket)

        tasks = [asyncio.ensure_future(wait(*each)) for each in zip(jobs, admitted, strict=True)]
        self.tasks += tasks
        for _ in range(3):
            await asyncio.sleep(0)
        return tasks

    async def hold(self, job: Job | None = None) -> Job:
        """Submits a job, and waits until its pass has begun."""
        job = job or job_of()
        await self.submit(job)
        await asyncio.to_thread(self._begun.wait, 20)
        return job

    async def answers(self, *jobs: Job) -> list[list[Job]]:
        """Releases the passes, waits for the answers of jobs, and returns the jobs of each pass."""
        self.release.set()
        await asyncio.gather(*(job.future for job in jobs))
        return [[part.job for part in slices] for slices in self.passes]

    def _compute(self, slices: Sequence[Slice]) -> list[Outcome]:
        self.passes.append(list(slices))
        assert threading.current_thread().name == "compute"
        self._begun.set()
        assert self.release.wait(20)
        outcomes: list[Outcome] = []
        for part in slices:
            part.job.done = part.stop
            answer = Answer(prediction=None, outside=[])  # type: ignore[arg-type]
            outcomes.append(self.errors.get(part.job, answer if part.stop == part.job.rows else None))
        return outcomes
