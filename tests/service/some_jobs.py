"""Jobs for tests of the queue, and a computation that can be held."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from murho.model.predictive.prediction import PredictOptions
from murho.service.engine.jobs import Answer, Job, ModelLike, Outcome, Slice
from tests.service.support import FakeModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from murho.service.engine.scheduler import Receive, Scheduler

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


def submit(scheduler: Scheduler, job: Job, receive: Receive | None = None) -> asyncio.Task[Answer]:
    """Admits a job, and waits for its answer in a task."""
    admitted = scheduler.admission.admit(job.model, job.cost, job.rows)

    async def wait() -> Answer:
        try:
            return await scheduler.answer(job, receive)
        finally:
            scheduler.admission.end(admitted)

    return asyncio.ensure_future(wait())


async def arrived() -> None:
    """Lets the jobs that were submitted reach the queue."""
    for _ in range(3):
        await asyncio.sleep(0)


class Computation:
    """Notes the slices of every pass, and answers with None, or with an error; may be held."""

    def __init__(self, *, held: bool = False) -> None:
        self.passes: list[list[Slice]] = []
        self.begun = threading.Event()
        self.release = threading.Event()
        self.threads: set[str] = set()
        self.errors: dict[Job, BaseException] = {}
        if not held:
            self.release.set()

    def __call__(self, slices: Sequence[Slice]) -> list[Outcome]:
        self.passes.append(list(slices))
        self.threads.add(threading.current_thread().name)
        self.begun.set()
        assert self.release.wait(20)
        outcomes: list[Outcome] = []
        for part in slices:
            part.job.done = part.stop
            answer = Answer(prediction=None, outside=[])  # type: ignore[arg-type]
            outcomes.append(self.errors.get(part.job, answer if part.stop == part.job.rows else None))
        return outcomes

    async def until_begun(self) -> None:
        await asyncio.to_thread(self.begun.wait, 20)
