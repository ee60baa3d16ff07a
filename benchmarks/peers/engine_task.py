"""The task of the engine benchmark: answers from a network whose variational parameters are the same for every system.

Each request makes a system predict the same rows again and again for about so many seconds, in each kind of call.
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
"""Numeric columns of the table that the networks are for."""
INPUTS = 2 * COLUMNS
"""What they are encoded to, D: each has an input that is zero unless the row lies beyond the training range."""
EDGE = 2.0
"""Training ranges are from -EDGE to EDGE."""
ACTIVATION = "silu"
"""As `murho train` has it by default."""
COMPONENTS = 3
"""Of an observation, where its noise is a mixture."""
NETWORK_OUTPUTS = {"fixed": 1, "heteroscedastic": 2, "mixture": 3 * COMPONENTS}
"""Kind of noise → outputs: means, then noises, then logits of weights."""
LEVELS = (5.0, 50.0, 95.0)
"""Percentiles of an observation that are asked for, as Murho gives by default."""
SHOWN = 64
"""At most so many rows of an answer are given back, to be compared."""


class Layer(NamedTuple):
    """Variational parameters of a layer, float32.

    Attributes:
        weight_mu: ``[inputs, outputs]``.
        weight_sigma: Likewise.
        bias_mu: ``[outputs]``.
        bias_sigma: Likewise.
    """

    weight_mu: NDArray[np.float32]
    weight_sigma: NDArray[np.float32]
    bias_mu: NDArray[np.float32]
    bias_sigma: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class EngineTask(NetworkTask):
    """A network with `ACTIVATION` between its layers, and its posterior.

    Attributes:
        noise: ``fixed``, of `NOISE`. Murho also knows ``heteroscedastic``, with a second output for it, and ``mixture``
            of `COMPONENTS`, with nine outputs.
    """

    inputs: ClassVar[int] = INPUTS

    noise: str = "fixed"

    @property
    def outputs(self) -> int:
        """Of the network."""
        return NETWORK_OUTPUTS[self.noise]

    @property
    def parameters(self) -> int:
        """Weights and biases of one draw."""
        return sum((inputs + 1) * outputs for inputs, outputs in self.sizes)

    def flops(self, samples: int, batch: int) -> int:
        """Of the matrix products of S draws and B rows; a multiplication and an addition are two."""
        return 2 * samples * batch * sum(inputs * outputs for inputs, outputs in self.sizes)

    def posterior(self) -> list[Layer]:
        """Variational parameters: means that keep the scale of their inputs, sigmas of 15 to 45 % of that."""
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
    """Numbers of the rows whose answers are compared: at most `SHOWN`, spread over all of them."""
    return np.unique(np.linspace(0, batch - 1, min(batch, SHOWN)).astype(np.intp))


def inverse_softplus(sigma: NDArray[np.float32]) -> NDArray[np.float32]:
    """The rho of which ``log(1 + exp(rho))`` is sigma."""
    rho: NDArray[np.float32] = np.log(np.expm1(sigma.astype(np.float64))).astype(np.float32)
    return rho


def percentiles_of(observations: NDArray[np.float32]) -> NDArray[np.float32]:
    """Those of draws of an observation: what `numpy.percentile` gives, by a sort, which takes less time.

    Args:
        observations: ``[S, B]``.

    Returns:
        ``[B, K]`` for `LEVELS`.
    """
    ordered = np.sort(np.ascontiguousarray(observations.T), axis=1)
    places = np.array(LEVELS) / 100.0 * (ordered.shape[1] - 1)
    below = places.astype(np.intp)
    above = np.minimum(below + 1, ordered.shape[1] - 1)
    share = (places - below).astype(np.float32)
    percentiles: NDArray[np.float32] = (1.0 - share) * ordered[:, below] + share * ordered[:, above]
    return percentiles


def engine_session(prepare: Callable[[EngineTask], Mapping[str, Call]]) -> Session:
    """What a script does in the engine benchmark.

    A request has ``batch``, B, ``samples``, S, and ``seconds`` of the turn, about; at least one call of each kind is
    made. Its answer has the ``times`` of each kind, medians of the turn; ``first``, those of the very first calls; and
    ``answers``, what the main kind gave for `shown_rows`.

    Args:
        prepare: Sets the system up; gives the kinds of call to be timed, the main one first.
    """

    def session(text: str) -> Generator[dict[str, Any], dict[str, Any], None]:
        task = EngineTask.from_json(text)
        calls = prepare(task)
        first: dict[tuple[int, int], dict[str, float]] = {}
        said: dict[str, Any] = {"parameters": task.parameters}
        while True:
            request = yield said
            batch, samples = request["batch"], request["samples"]
            rows, cell = task.rows(batch), (batch, samples)
            if (
                cell not in first
            ):  # compiles, makes draws that are kept, touches the memory for the first time
                first[cell] = {name: _timed(call, rows, samples)[0] for name, call in calls.items()}
            said = _turn(calls, rows, samples, request["seconds"]) | {"first": first[cell]}

    return session


def _turn(
    calls: Mapping[str, Call], rows: NDArray[np.float32], samples: int, seconds: float
) -> dict[str, Any]:
    """Calls of each kind, one kind after the other, so that each finds the caches as it left them."""
    times, answers = {}, []
    for name, call in calls.items():
        taken: list[float] = []
        began = time.perf_counter()
        while not taken or time.perf_counter() - began < seconds / len(calls):
            one, answer = _timed(call, rows, samples)
            taken.append(one)
        times[name] = statistics.median(taken)
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
