"""Hands outcomes of the compute thread to the event loops that wait for them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from murho.service.engine.jobs import Answer, Job

__all__ = ["settle"]


def settle(outcomes: Sequence[tuple[Job, Answer | BaseException]]) -> None:
    """Hands outcomes to the event loops that wait for them, all of a loop at once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[Job, Answer | BaseException]]] = {}
    for job, outcome in outcomes:
        by_loop.setdefault(job.future.get_loop(), []).append((job, outcome))
    for loop, those in by_loop.items():
        # The loop is closed if the service stops while a job is still in computation.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_set, those)


def _set(outcomes: Sequence[tuple[Job, Answer | BaseException]]) -> None:
    for job, outcome in outcomes:
        if job.future.done():
            continue
        if isinstance(outcome, BaseException):
            job.future.set_exception(outcome)
        else:
            job.future.set_result(outcome)
