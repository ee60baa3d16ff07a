"""The task of the engine benchmark: predictions of a network with the same variational parameters in every system.

On each request, a system predicts the same rows repeatedly for the requested seconds, in each kind of call.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from benchmarks.peers.network_task import NetworkTask

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from typing import TypeAlias

    from numpy.typing import NDArray

    from benchmarks.peers.exchange import Session

    Call: TypeAlias = Callable[[NDArray[np.float32], int], Mapping[str, NDArray[Any]]]
    """Predicts rows ``[B, D]`` with S draws; gives at least ``mean`` and ``epistemic_std``, ``[B]`` each."""

__all__ = [
    "ACTIVATION",
    "COLUMNS",
    "COMPONENTS",
    "EDGE",
    "INPUTS",
    "LEVELS",
    "SHOWN",
    "EngineTask",
    "Layer",
    "engine_session",
    "inverse_softplus",
    "percentiles_of",
    "shown_rows",
]

COLUMNS = 8
"""Numeric columns of the table."""
INPUTS = 2 * COLUMNS
"""Encoded features, D: each column has a second one, which is zero unless the row lies beyond the training range."""
EDGE = 2.0
"""Training ranges are from -EDGE to EDGE."""
ACTIVATION = "silu"
"""The default of `murho train`."""
COMPONENTS = 3
"""Components of an observation with mixture noise."""
NETWORK_OUTPUTS = {"fixed": 1, "heteroscedastic": 2, "mixture": 3 * COMPONENTS}
"""Kind of noise → outputs: means, then noise, then logits of the weights."""
LEVELS = (5.0, 50.0, 95.0)
"""Percentile levels of an observation, Murho's default."""
SHOWN = 64
"""Most rows of an answer that are returned for comparison."""


class Layer(NamedTuple):
    """Variational parameters of a layer, float32.

    Attributes:
        weight_mu: ``[inputs, outputs]``.
        weight_sigma: ``[inputs, outputs]``.
        bias_mu: ``[outputs]``.
        bias_sigma: ``[outputs]``.
    """

    weight_mu: NDArray[np.float32]
    weight_sigma: NDArray[np.float32]
    bias_mu: NDArray[np.float32]
    bias_sigma: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class EngineTask(NetworkTask):
    """A network with `ACTIVATION` between its layers, and its posterior.

    Attributes:
        noise: ``fixed``, of `NOISE`. Murho alone also has ``heteroscedastic``, with a second output for the noise, and
            ``mixture`` of `COMPONENTS`, with nine outputs.
    """

    inputs: ClassVar[int] = INPUTS

    noise: str = "fixed"

    @property
    def outputs(self) -> int:
        """Number of outputs of the network."""
        return NETWORK_OUTPUTS[self.noise]

    @property
    def parameters(self) -> int:
        """Number of weights and biases of one draw."""
        return sum((inputs + 1) * outputs for inputs, outputs in self.sizes)

    def flops(self, samples: int, batch: int) -> int:
        """Operations in the matrix products of S draws and B rows; a multiplication and an addition count as two."""
        return 2 * samples * batch * sum(inputs * outputs for inputs, outputs in self.sizes)

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

    def rows(self, batch: int) -> NDArray[np.float32]:
        """Encoded rows within the training range, ``[B, D]``."""
        generator = np.random.default_rng([self.seed, batch])
        rows = np.zeros((batch, INPUTS), dtype=np.float32)
        rows[:, :COLUMNS] = EDGE * (2.0 * generator.random((batch, COLUMNS), dtype=np.float32) - 1.0)
        return rows


def shown_rows(batch: int) -> NDArray[np.intp]:
    """Indices of the rows whose answers are compared: at most `SHOWN`, evenly spaced."""
    return np.unique(np.linspace(0, batch - 1, min(batch, SHOWN)).astype(np.intp))


def inverse_softplus(sigma: NDArray[np.float32]) -> NDArray[np.float32]:
    """The rho with ``log(1 + exp(rho)) = sigma``."""
    rho: NDArray[np.float32] = np.log(np.expm1(sigma.astype(np.float64))).astype(np.float32)
    return rho


def percentiles_of(observations: NDArray[np.float32]) -> NDArray[np.float32]:
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
    percentiles: NDArray[np.float32] = (1.0 - share) * ordered[:, below] + share * ordered[:, above]
    return percentiles


def engine_session(prepare: Callable[[EngineTask], Mapping[str, Call]]) -> Session:
    """The session of a script in the engine benchmark.

    A request has ``batch``, B, ``samples``, S, and ``seconds``, the approximate length of the turn, in which each kind
    of call is made at least once. The answer has ``times``, the median time of each kind in the turn; ``first``, the
    time of the first call of each kind; and ``answers``, those of the main kind for `shown_rows`.

    Args:
        prepare: Sets the system up; returns the kinds of call to time, the main one first.
    """

    def session(text: str) -> Generator[dict[str, Any], dict[str, Any], None]:
        task = EngineTask.from_json(text)
        calls = prepare(task)
        first: dict[tuple[int, int], dict[str, float]] = {}
        answer: dict[str, Any] = {"parameters": task.parameters}
        while True:
            request = yield answer
            batch, samples = request["batch"], request["samples"]
            rows, cell = task.rows(batch), (batch, samples)
            if cell not in first:
                # The first call compiles, makes the draws that are kept, and allocates memory.
                first[cell] = {name: _timed(call, rows, samples)[0] for name, call in calls.items()}
            answer = _turn(calls, rows, samples, request["seconds"]) | {"first": first[cell]}

    return session


def _turn(calls: Mapping[str, Call], rows: NDArray[np.float32], samples: int, seconds: float) -> dict[str, Any]:
    """Times all calls of one kind before the next kind, so that the caches hold that kind's data."""
    times, answers = {}, []
    for name, call in calls.items():
        durations: list[float] = []
        began = time.perf_counter()
        while not durations or time.perf_counter() - began < seconds / len(calls):
            duration, answer = _timed(call, rows, samples)
            durations.append(duration)
        times[name] = statistics.median(durations)
        answers.append(answer)
    shown = shown_rows(len(rows))
    return {
        "times": times,
        "answers": {key: np.asarray(values)[shown].tolist() for key, values in answers[0].items()},
    }


def _timed(call: Call, rows: NDArray[np.float32], samples: int) -> tuple[float, Mapping[str, NDArray[Any]]]:
    began = time.perf_counter()
    answer = call(rows, samples)
    return time.perf_counter() - began, answer
