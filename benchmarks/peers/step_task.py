"""The task of the step benchmark: optimiser steps on minibatches of made-up rows.

A system sets itself up, trains for `LEARNING_STEPS` steps, and says how well it then describes the rows: a step that
teaches nothing would be no step. Each request makes it take steps for about so many seconds.

Memory is the peak of resident memory, and how much of that came after the imports: data, parameters, optimiser, work
space, what a library compiles, and what it loads only when it is first used.
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from benchmarks.peers.exchange import peak_memory
from benchmarks.peers.network_task import NOISE, NetworkTask

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from numpy.typing import NDArray

    from benchmarks.peers.exchange import Session

__all__ = [
    "DRAWS",
    "INPUTS",
    "LEARNING_RATE",
    "LEARNING_STEPS",
    "PRIOR_SIGMA",
    "StepTask",
    "Steps",
    "System",
    "Timing",
    "step_session",
]

INPUTS = 8
"""Features, D."""
PRIOR_SIGMA = 1.0
"""Standard deviation of the Gaussian prior of every weight and bias."""
LEARNING_RATE = 1e-2
"""Of Adam."""
LEARNING_STEPS = 1000
"""Steps before the first that is timed; they also let a library compile."""
DRAWS = 16
"""Draws behind the mean that is judged after `LEARNING_STEPS`."""
STEPS_AT_A_TIME = 10
"""Steps between two looks at the clock."""


@dataclass(frozen=True, slots=True)
class StepTask(NetworkTask):
    """A network with ReLU between its layers, and its minibatches.

    Attributes:
        batch: Rows a minibatch, B.
        members: Networks trained side by side, M; peers know of one.
        rows: Training rows, N.
    """

    inputs: ClassVar[int] = INPUTS

    batch: int
    members: int = 1
    rows: int = 1280

    def data(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Rows ``[N, D]`` and targets ``[N]``, both standardised: a smooth function, and noise of `NOISE`."""
        generator = np.random.default_rng(self.seed)
        rows = generator.normal(size=(self.rows, INPUTS))
        clean = rows[:, 0] - 0.5 * rows[:, 1] + np.sin(2.0 * rows[:, 2])
        clean *= math.sqrt(1.0 - NOISE**2) / clean.std()
        targets = clean - clean.mean() + NOISE * generator.normal(size=self.rows)
        return rows.astype(np.float32), targets.astype(np.float32)

    def minibatches(self) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
        """The rows in pieces of B, ``[B, D]`` and ``[B]``; what does not fill one is left out."""
        rows, targets = self.data()
        return [
            (rows[first : first + self.batch], targets[first : first + self.batch])
            for first in range(0, len(rows) - self.batch + 1, self.batch)
        ]


@dataclass(frozen=True, slots=True)
class Timing:
    """A stretch of steps.

    Attributes:
        steps: How many.
        wall: Seconds that they took.
        processor: Seconds of processor time of all threads. On a busy machine it says more than ``wall``.
    """

    steps: int
    wall: float
    processor: float


class System(Protocol):
    """What is timed."""

    def take(self, *, steps: int | None = None, seconds: float | None = None) -> Timing:
        """Takes so many steps, or steps for about so long."""
        ...

    def predict(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Mean of the function values of `DRAWS` draws, ``[B]``."""
        ...


class Steps:
    """A peer: takes its minibatches in turn."""

    def __init__(
        self,
        minibatches: int,
        step: Callable[[int], object],
        draw: Callable[[NDArray[np.float32]], NDArray[np.float32]],
        finish: Callable[[], object] = lambda: None,
    ) -> None:
        """Takes its parts.

        Args:
            minibatches: How many there are.
            step: One optimiser step on the minibatch of that number.
            draw: Function values of rows ``[B, D]`` under one draw, ``[B]`` or ``[B, 1]``.
            finish: Waits for steps that are still being computed.
        """
        self._minibatches, self._step, self._draw, self._finish = minibatches, step, draw, finish
        self._taken = 0

    def take(self, *, steps: int | None = None, seconds: float | None = None) -> Timing:
        """See `System.take`."""
        before = self._taken
        processor, wall = time.process_time(), time.perf_counter()
        while True:
            for _ in range(STEPS_AT_A_TIME):
                self._step(self._taken % self._minibatches)
                self._taken += 1
            if (steps is not None and self._taken - before >= steps) or (
                seconds is not None and time.perf_counter() - wall >= seconds
            ):
                break
        self._finish()
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        return Timing(self._taken - before, wall, processor)

    def predict(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """See `System.predict`."""
        draws = [np.asarray(self._draw(rows)).reshape(len(rows)) for _ in range(DRAWS)]
        mean: NDArray[np.float32] = np.mean(draws, axis=0, dtype=np.float32)
        return mean


def step_session(prepare: Callable[[StepTask], System]) -> Session:
    """What a script does in the step benchmark.

    It first says the ``rmse`` after `LEARNING_STEPS` and the ``spread`` of the targets, then for each request, its
    ``seconds``, the values of `Timing`; each time also ``peak``, the most memory so far, and ``memory``, how much of
    that came after the imports, bytes.

    Args:
        prepare: Sets the system up.
    """

    def session(text: str) -> Generator[dict[str, float], dict[str, Any], None]:
        task, imported = StepTask.from_json(text), peak_memory()
        rows, targets = task.data()
        system = prepare(task)
        system.take(steps=LEARNING_STEPS)
        error = float(np.sqrt(np.mean((system.predict(rows) - targets) ** 2)))
        said: dict[str, float] = {"rmse": error, "spread": float(targets.std())}
        while True:
            peak = peak_memory()
            request = yield said | {"memory": peak - imported, "peak": peak}
            said = asdict(system.take(seconds=request["seconds"]))

    return session
