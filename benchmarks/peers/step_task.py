"""The task of the step benchmark: optimiser steps on minibatches of synthetic rows.

A system first trains for `LEARNING_STEPS` steps and reports its RMSE, as a check that its steps learn. On each request
it takes steps for the requested seconds.

Memory is the peak of resident memory, and its part above the imports: data, parameters, optimiser, work space, compiled
code, and libraries that are loaded only on first use.
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
"""Encoded features, D."""
PRIOR_SIGMA = 1.0
"""Standard deviation of the Gaussian prior of every weight and bias."""
LEARNING_RATE = 1e-2
"""Learning rate of Adam."""
LEARNING_STEPS = 1000
"""Steps before the first timed step; they also let a library compile."""
DRAWS = 16
"""Draws of the mean whose RMSE is reported after `LEARNING_STEPS`."""
STEPS_AT_A_TIME = 10
"""Steps between two readings of the clock."""


@dataclass(frozen=True, slots=True)
class StepTask(NetworkTask):
    """A network with ReLU between its layers, and its minibatches.

    Attributes:
        batch: Rows per minibatch, B.
        members: Networks trained at the same time, M; 1 for peers.
        rows: Training rows, N.
    """

    inputs: ClassVar[int] = INPUTS

    batch: int
    members: int = 1
    rows: int = 1280

    def data(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Rows ``[N, D]`` and targets ``[N]``, both standardised: a smooth function with noise of `NOISE`."""
        generator = np.random.default_rng(self.seed)
        rows = generator.normal(size=(self.rows, INPUTS))
        clean = rows[:, 0] - 0.5 * rows[:, 1] + np.sin(2.0 * rows[:, 2])
        clean *= math.sqrt(1.0 - NOISE**2) / clean.std()
        targets = clean - clean.mean() + NOISE * generator.normal(size=self.rows)
        return rows.astype(np.float32), targets.astype(np.float32)

    def minibatches(self) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
        """Minibatches of rows ``[B, D]`` and targets ``[B]``; rows that do not fill a minibatch are left out."""
        rows, targets = self.data()
        return [
            (rows[first : first + self.batch], targets[first : first + self.batch])
            for first in range(0, len(rows) - self.batch + 1, self.batch)
        ]


@dataclass(frozen=True, slots=True)
class Timing:
    """The time of a number of steps.

    Attributes:
        steps: Number of steps.
        wall: Elapsed seconds.
        processor: Seconds of processor time of all threads; more reliable than ``wall`` on a busy machine.
    """

    steps: int
    wall: float
    processor: float


class System(Protocol):
    """The interface of a system in the step benchmark."""

    def take(self, *, steps: int | None = None, seconds: float | None = None) -> Timing:
        """Takes a number of steps, or steps for about a number of seconds."""
        ...

    def predict(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Mean of the function values of `DRAWS` draws, ``[B]``."""
        ...


class Steps:
    """The `System` of a peer, which takes its minibatches in turn."""

    def __init__(
        self,
        minibatches: int,
        step: Callable[[int], object],
        draw: Callable[[NDArray[np.float32]], NDArray[np.float32]],
        finish: Callable[[], object] = lambda: None,
    ) -> None:
        """Makes a system of a peer's functions.

        Args:
            minibatches: Number of minibatches.
            step: Takes one optimiser step, given the number of a minibatch.
            draw: Function values of rows ``[B, D]`` under one draw, ``[B]`` or ``[B, 1]``.
            finish: Waits for steps that are still being computed.
        """
        self._minibatches, self._step, self._draw, self._finish = minibatches, step, draw, finish
        self._taken = 0

    def take(self, *, steps: int | None = None, seconds: float | None = None) -> Timing:
        """Takes a number of steps, or steps for about a number of seconds."""
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
        """Mean of the function values of `DRAWS` draws, ``[B]``."""
        draws = [np.asarray(self._draw(rows)).reshape(len(rows)) for _ in range(DRAWS)]
        mean: NDArray[np.float32] = np.mean(draws, axis=0, dtype=np.float32)
        return mean


def step_session(prepare: Callable[[StepTask], System]) -> Session:
    """The session of a script in the step benchmark.

    The first line has ``rmse``, after `LEARNING_STEPS`, and ``spread``, the standard deviation of the targets. The
    answer to each request of ``seconds`` has the values of `Timing`. Both also have ``peak``, the peak memory so far,
    and ``memory``, its part above the imports, bytes.

    Args:
        prepare: Sets the system up.
    """

    def session(text: str) -> Generator[dict[str, float], dict[str, Any], None]:
        task, imported = StepTask.from_json(text), peak_memory()
        rows, targets = task.data()
        system = prepare(task)
        system.take(steps=LEARNING_STEPS)
        error = float(np.sqrt(np.mean((system.predict(rows) - targets) ** 2)))
        answer: dict[str, float] = {"rmse": error, "spread": float(targets.std())}
        while True:
            peak = peak_memory()
            request = yield answer | {"memory": peak - imported, "peak": peak}
            answer = asdict(system.take(seconds=request["seconds"]))

    return session
