"""The tasks of the step and the engine benchmark: a network with one output and known noise, the same in every system.

*Steps*: a system first trains for `LEARNING_STEPS` steps on minibatches of synthetic rows and reports its RMSE, as a
check that its steps learn; on each request it takes steps for a while. *Engine*: every system has the same variational
parameters, and predicts the same rows again and again, in each of its kinds of call.
"""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from benchmarks.peers.exchange import Session
    from murho.model.arrays import Floats, Places

    Call: TypeAlias = Callable[[NDArray[np.float32], int], Mapping[str, NDArray[Any]]]
    """Predicts rows ``[B, D]`` with S draws; gives at least ``mean`` and ``epistemic_std``, ``[B]`` each."""

NOISE = 0.2
"""Known standard deviation of the observation noise."""
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
COLUMNS = 8
"""Numeric columns of the engine's table."""
EDGE = 2.0
"""Its training ranges are from -EDGE to EDGE."""
ACTIVATION = "silu"
"""The default of `murho train`."""
COMPONENTS = 3
"""Components of an observation with mixture noise."""
LEVELS = (5.0, 50.0, 95.0)
"""Percentile levels of an observation, Murho's default."""


@dataclass(frozen=True, slots=True)
class NetworkTask:
    """A network.

    Attributes:
        hidden: Widths of the hidden layers.
        threads: Number of threads.
        seed: Seed of all random numbers.
    """

    inputs: ClassVar[int]
    """Encoded features, D."""
    outputs: ClassVar[int] = 1

    hidden: tuple[int, ...]
    threads: int = 1
    seed: int = 0

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """``(inputs, outputs)`` of each layer."""
        return list(pairwise((self.inputs, *self.hidden, self.outputs)))


@dataclass(frozen=True, slots=True)
class StepTask(NetworkTask):
    """A network with ReLU between its layers, and its minibatches.

    Attributes:
        batch: Rows per minibatch, B.
        members: Networks trained at the same time, M; 1 for peers.
        rows: Training rows, N.
    """

    inputs: ClassVar[int] = 8

    batch: int = 32
    members: int = 1
    rows: int = 1280

    def data(self) -> tuple[Floats, Floats]:
        """Rows ``[N, D]`` and targets ``[N]``, both standardised: a smooth function with noise of `NOISE`."""
        generator = np.random.default_rng(self.seed)
        rows = generator.normal(size=(self.rows, self.inputs))
        clean = rows[:, 0] - 0.5 * rows[:, 1] + np.sin(2.0 * rows[:, 2])
        clean *= math.sqrt(1.0 - NOISE**2) / clean.std()
        targets = clean - clean.mean() + NOISE * generator.normal(size=self.rows)
        return rows.astype(np.float32), targets.astype(np.float32)

    def minibatches(self) -> list[tuple[Floats, Floats]]:
        """Minibatches of rows ``[B, D]`` and targets ``[B]``; rows that do not fill a minibatch are left out."""
        rows, targets = self.data()
        firsts = range(0, len(rows) - self.batch + 1, self.batch)
        return [(rows[first : first + self.batch], targets[first : first + self.batch]) for first in firsts]


class System(Protocol):
    """A system in the step benchmark."""

    def take(self, *, steps: int | None = None, seconds: float | None = None) -> dict[str, float]:
        """Take steps, so many or for about so long; give their number and ``wall`` seconds."""
        ...

    def predict(self, rows: Floats) -> Floats:
        """Mean of the function values of `DRAWS` draws, ``[B]``."""
        ...


class Steps:
    """The `System` of a peer, which takes its minibatches in turn."""

    def __init__(
        self,
        minibatches: int,
        step: Callable[[int], object],
        draw: Callable[[Floats], Floats],
        finish: Callable[[], object] = lambda: None,
    ) -> None:
        """Make a system of a peer's functions.

        Args:
            minibatches: Number of minibatches.
            step: Takes one optimiser step, given the number of a minibatch.
            draw: Function values of rows ``[B, D]`` under one draw, ``[B]`` or ``[B, 1]``.
            finish: Waits for steps that are still being computed.
        """
        self._minibatches, self._step, self._draw, self._finish = minibatches, step, draw, finish
        self._taken = 0

    def take(self, *, steps: int | None = None, seconds: float | None = None) -> dict[str, float]:
        """Take steps, so many or for about so long."""
        before = self._taken
        wall = time.perf_counter()
        while (self._taken - before < steps) if steps is not None else (time.perf_counter() - wall < (seconds or 0.0)):
            for _ in range(STEPS_AT_A_TIME):
                self._step(self._taken % self._minibatches)
                self._taken += 1
        self._finish()
        return {"steps": self._taken - before, "wall": time.perf_counter() - wall}

    def predict(self, rows: Floats) -> Floats:
        """Mean of the function values of `DRAWS` draws, ``[B]``."""
        draws = [np.asarray(self._draw(rows)).reshape(len(rows)) for _ in range(DRAWS)]
        return np.asarray(np.mean(draws, axis=0, dtype=np.float32))


def step_session(prepare: Callable[[StepTask], System]) -> Session:
    """Return the session of a script in the step benchmark.

    When it is ready it says ``rmse``, after `LEARNING_STEPS`, in standard deviations of the targets. A request is a
    number of seconds, answered by what `System.take` gives.
    """

    def session(task: StepTask) -> tuple[dict[str, float], Callable[[float], dict[str, float]]]:
        rows, targets = task.data()
        system = prepare(task)
        system.take(steps=LEARNING_STEPS)
        error = float(np.sqrt(np.mean((system.predict(rows) - targets) ** 2)) / targets.std())
        return {"rmse": error}, lambda seconds: system.take(seconds=seconds)

    return session


class Layer(NamedTuple):
    """Variational parameters of a layer, float32: weights ``[inputs, outputs]`` and biases ``[outputs]``."""

    weight_mu: Floats
    weight_sigma: Floats
    bias_mu: Floats
    bias_sigma: Floats


@dataclass(frozen=True, slots=True)
class EngineTask(NetworkTask):
    """A network with `ACTIVATION` between its layers, and its posterior.

    Each column has a second input, which is zero unless the row lies beyond the training range.

    Attributes:
        noise: ``fixed``, of `NOISE`. Murho alone also has ``heteroscedastic``, with a second output for the noise, and
            ``mixture`` of `COMPONENTS`, with nine outputs.
    """

    inputs: ClassVar[int] = 2 * COLUMNS

    noise: str = "fixed"

    @property
    def outputs(self) -> int:  # type: ignore[override]
        """Number of outputs: means, then noise, then logits of the weights."""
        return {"fixed": 1, "heteroscedastic": 2, "mixture": 3 * COMPONENTS}[self.noise]

    @property
    def parameters(self) -> int:
        """Number of weights and biases of one draw."""
        return sum((inputs + 1) * outputs for inputs, outputs in self.sizes)

    def posterior(self) -> list[Layer]:
        """Variational parameters: means that keep the scale of the inputs, sigmas of 15 to 45 % of that scale."""
        generator = np.random.default_rng(self.seed)
        layers = []
        for number, (inputs, outputs) in enumerate(self.sizes):
            scale = (2.0 if number else 4.0) ** 0.5 / inputs**0.5  # half of the inputs are zero
            parts = []
            for shape in ((inputs, outputs), (outputs,)):
                parts += [scale * generator.normal(size=shape), scale * generator.uniform(0.15, 0.45, shape)]
            means = 1 if self.noise != "mixture" else COMPONENTS
            if number == len(self.sizes) - 1:
                for part, start in zip(parts, (0.0, 0.0, -1.5, 0.0), strict=True):  # softplus(-1.5) is NOISE
                    part[..., means : 2 * means] = start + 0.1 * part[..., means : 2 * means]
            layers.append(Layer(*(part.astype(np.float32) for part in parts)))
        return layers

    def rows_of(self, batch: int) -> Floats:
        """Return encoded rows within the training range, ``[B, D]``."""
        generator = np.random.default_rng([self.seed, batch])
        rows = np.zeros((batch, self.inputs), dtype=np.float32)
        rows[:, :COLUMNS] = EDGE * (2.0 * generator.random((batch, COLUMNS), dtype=np.float32) - 1.0)
        return rows


def shown_rows(batch: int) -> Places:
    """Return indices of the rows whose answers are compared: at most 64, evenly spaced."""
    return np.unique(np.linspace(0, batch - 1, min(batch, 64)).astype(np.intp))


def inverse_softplus(sigma: Floats) -> Floats:
    """Return the rho with ``log(1 + exp(rho)) = sigma``."""
    return np.asarray(np.log(np.expm1(sigma.astype(np.float64))).astype(np.float32))


def percentiles_of(observations: Floats) -> Floats:
    """Percentiles of draws of an observation: the values of `numpy.percentile`, by a sort, which is faster.

    Args:
        observations: ``[S, B]``.

    Returns:
        ``[B, K]`` for `LEVELS`.
    """
    ordered = np.sort(np.ascontiguousarray(observations.T), axis=1)
    positions = np.array(LEVELS) / 100.0 * (ordered.shape[1] - 1)
    below = positions.astype(np.intp)
    above = np.minimum(below + 1, ordered.shape[1] - 1)
    share = (positions - below).astype(np.float32)
    return np.asarray((1.0 - share) * ordered[:, below] + share * ordered[:, above])


def engine_session(prepare: Callable[[EngineTask], Mapping[str, Call]]) -> Session:
    """Return the session of a script in the engine benchmark.

    A request is B, S and the approximate seconds of the turn, in which each kind of call is made at least once. The
    answer has ``times``, the median time of each kind in the turn, and ``answers``, those of the main kind for
    `shown_rows`.

    Args:
        prepare: Sets the system up; returns the kinds of call to time, the main one first.
    """

    def session(task: EngineTask) -> tuple[None, Callable[[tuple[int, int, float]], dict[str, Any]]]:
        calls = prepare(task)
        warm: set[tuple[int, int]] = set()

        def answer(request: tuple[int, int, float]) -> dict[str, Any]:
            batch, samples, seconds = request
            rows = task.rows_of(batch)
            if (batch, samples) not in warm:
                # The first call compiles, makes the draws that are kept, and allocates memory.
                warm.add((batch, samples))
                for call in calls.values():
                    call(rows, samples)
            times: dict[str, float] = {}
            answers: dict[str, NDArray[Any]] = {}
            for name, call in calls.items():  # all of one kind before the next: the caches hold that kind's data
                durations: list[float] = []
                began = time.perf_counter()
                while not durations or time.perf_counter() - began < seconds / len(calls):
                    duration, given = _timed(call, rows, samples)
                    durations.append(duration)
                times[name] = statistics.median(durations)
                answers = answers or {key: np.asarray(values)[shown_rows(batch)] for key, values in given.items()}
            return {"times": times, "answers": answers}

        return None, answer

    return session


def _timed(call: Call, rows: Floats, samples: int) -> tuple[float, Mapping[str, NDArray[Any]]]:
    began = time.perf_counter()
    answer = call(rows, samples)
    return time.perf_counter() - began, answer
