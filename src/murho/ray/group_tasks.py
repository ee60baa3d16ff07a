"""Trainings of groups as tasks of Ray, some at a time, so that few tables are in memory."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from murho.ray.library import processors_of_ray, ray_running

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from murho.model.commands.train_groups import Runner
    from murho.model.training.group_models import GroupOutcome, GroupTask

__all__ = ["as_tasks"]

TRIES = 3
"""How often a training is begun again after its worker has died. It finds the checkpoint, if that was written."""


def as_tasks(workers: int | None = None) -> Runner:
    """A `model.commands.train_groups.Runner` on Ray, which is started with the first task if none is running.

    Args:
        workers: Trainings at a time, each on one processor; None: as many as there are processors.
    """
    return partial(_run, workers)


def _run(workers: int | None, tasks: Iterable[GroupTask]) -> Iterator[GroupOutcome]:
    import ray

    from murho.model.training.group_models import train_group

    with ray_running(workers):
        train = ray.remote(num_cpus=1, max_retries=TRIES)(train_group)
        at_a_time = workers or processors_of_ray()
        waiting = iter(tasks)
        # With given workers no more trainings are handed over; else twice as many, so that none waits for this process.
        running = [train.remote(task) for task in islice(waiting, at_a_time if workers else 2 * at_a_time)]
        while running:
            (done,), running = ray.wait(running, num_returns=1)
            try:
                outcome = ray.get(done)
            except ray.exceptions.RayTaskError as error:
                raise error.cause from error
            running += [train.remote(task) for task in islice(waiting, 1)]
            yield outcome
