"""An engine for tests: jobs of a fake model, and passes that are noted and held."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any, Self

import pytest

from murho.model.predictive.prediction import PredictOptions
from murho.service.engine.engine import LocalEngine, Receive
from murho.service.engine.jobs import Answer, Job, ModelLike, Outcome, Slice
from tests.service.support import FakeModel

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
    """Return a job; each row costs 1 by default."""
    cost = float(rows) if cost is None else cost
    return Job(model, {}, options, rows, cost, caller, deadline, 0, rows_of_pass)


class Bench:
    """An engine whose passes wait for `release`; at the end nothing is pending.

    Args:
        most: The most jobs that may be pending.
        cost: The most cost that may be.
        more: Other arguments of the engine.

    Attributes:
        passes: The slices of every pass.
        tasks: Those that wait for jobs.
        task_of: The one of each job.
        errors: What comes instead of a job's answer, which is None.
    """

    def __init__(self, most: int = 1000, cost: float = 1e6, **more: Any) -> None:
        self.engine = LocalEngine(self._compute, most, cost, **more)
        self.admission = self.engine.admission
        self.passes: list[list[Slice]] = []
        self.tasks: list[asyncio.Task[Answer]] = []
        self.task_of: dict[Job, asyncio.Task[Answer]] = {}
        self.errors: dict[Job, BaseException] = {}
        self.release, self._begun = threading.Event(), threading.Event()

    async def __aenter__(self) -> Self:
        self.engine.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.release.set()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        assert self.admission.pending == 0
        assert self.admission.pending_cost == pytest.approx(0.0)
        assert self.engine.close(10)

    async def submit(self, *jobs: Job, receive: Receive | None = None) -> list[asyncio.Task[Answer]]:
        """Admits jobs, and lets them reach the queue; each is waited for in a task."""
        admitted = [self.admission.admit(job.model, job.cost, job.rows) for job in jobs]

        async def wait(job: Job, ticket: Any) -> Answer:
            try:
                return await self.engine.answer(job, receive)
            finally:
                self.admission.end(ticket)

        tasks = [asyncio.ensure_future(wait(*each)) for each in zip(jobs, admitted, strict=True)]
        self.tasks += tasks
        self.task_of |= dict(zip(jobs, tasks, strict=True))
        for _ in range(3):
            await asyncio.sleep(0)
        return tasks

    async def hold(self, job: Job | None = None) -> Job:
        """Submit a job, and wait until its pass has begun."""
        job = job or job_of()
        await self.submit(job)
        await asyncio.to_thread(self._begun.wait, 20)
        return job

    async def answers(self, *jobs: Job) -> list[list[Job]]:
        """Releases the passes, waits for the answers of jobs, and returns the jobs of each pass."""
        self.release.set()
        await asyncio.gather(*(self.task_of[job] for job in jobs))
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
