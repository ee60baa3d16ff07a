"""How a system whose step is timed is driven: a line to stdin asks for a stretch of steps, a line of JSON answers.

The process is given a `StepTask` on its command line. It sets itself up, trains for `LEARNING_STEPS` steps, and says
how well it then describes the rows: a step that teaches nothing would be no step. After that each line on stdin,
a number of seconds, makes it take steps for about so long; it ends with its stdin. So many processes can take turns
on one machine, each doing nothing but wait while it is not asked.

Memory is the most that the process has ever had resident, and how much of that came after the imports: the data, the
parameters, the optimiser, the work space, what a library compiles, and what it loads only when it is first used.
"""

from __future__ import annotations

import json
import math
import sys
import time
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

__all__ = [
    "DRAWS",
    "INPUTS",
    "LEARNING_RATE",
    "LEARNING_STEPS",
    "NOISE",
    "PRIOR_SIGMA",
    "StepTask",
    "Steps",
    "System",
    "Timing",
    "drive",
    "peak_memory",
]

INPUTS = 8
"""Features, D."""
NOISE = 0.2
"""Known standard deviation of the observation noise; targets have variance 1."""
PRIOR_SIGMA = 1.0
"""Standard deviation of the Gaussian prior of every weight and bias."""
LEARNING_RATE = 1e-2
"""Of Adam."""
LEARNING_STEPS = 1000
"""Steps before the first that is timed; they also let a library compile."""
DRAWS = 16
"""Draws behind the mean that is judged after `LEARNING_STEPS`."""
STEPS_AT_A_TIME = 10
"""So many steps between two looks at the clock."""
STATUS = Path("/proc/self/status")


@dataclass(frozen=True, slots=True)
class StepTask:
    """A network and its minibatches.

    Attributes:
        hidden: Widths of the hidden layers, ReLU between them.
        batch: Rows a minibatch, B.
        members: Networks trained side by side, M; peers know of one.
        rows: Training rows, N.
        seed: Of the rows.
    """

    hidden: tuple[int, ...]
    batch: int
    members: int = 1
    rows: int = 1280
    seed: int = 0

    def to_json(self) -> str:
        """One line for the command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> StepTask:
        """Reads what `to_json` wrote."""
        said = json.loads(text)
        return cls(**(said | {"hidden": tuple(said["hidden"])}))

    @property
    def layers(self) -> list[tuple[int, int]]:
        """``(inputs, outputs)`` of each layer; one output."""
        return list(pairwise((INPUTS, *self.hidden, 1)))

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
        processor: Seconds of processor time of all threads: where the machine has other work to do this says
            more than ``wall``.
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


def drive(prepare: Callable[[StepTask], System], arguments: Sequence[str] | None = None) -> None:
    """The script of a system; everything that it needs has been imported.

    It first says the ``rmse`` after `LEARNING_STEPS` and the ``spread`` of the targets, then for every stretch what
    `Timing` holds; each time also ``peak``, the most memory so far, and ``memory``, how much of that came after the
    imports, bytes.

    Args:
        prepare: Sets it up.
        arguments: The task; that of the command line by default.
    """
    (text,) = sys.argv[1:] if arguments is None else arguments
    task, imported = StepTask.from_json(text), peak_memory()
    rows, targets = task.data()
    system = prepare(task)
    system.take(steps=LEARNING_STEPS)
    error = float(np.sqrt(np.mean((system.predict(rows) - targets) ** 2)))
    _say({"rmse": error, "spread": float(targets.std()), **_memory(imported)})
    for line in sys.stdin:
        _say(asdict(system.take(seconds=float(line))) | _memory(imported))


def peak_memory() -> int:
    """The most memory that this process has had resident, bytes.

    On Linux not ``ru_maxrss``, which a process takes over from whoever started it: it is that of the parent at least.
    """
    if STATUS.exists():
        for line in STATUS.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    import resource  # not on Windows

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def _memory(imported: int) -> dict[str, int]:
    peak = peak_memory()
    return {"memory": peak - imported, "peak": peak}


def _say(answer: dict[str, float]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
