"""How a system whose predictions are timed is driven: a line of JSON asks for calls, a line of JSON answers.

The process is given an `EngineTask` on its command line: a network with its variational parameters, the same for every
system. Each line on stdin, a `Request`, makes it predict the same rows again and again for about so long. It ends with
its stdin. So many processes can take turns on one machine, each doing nothing but wait while it is not asked.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeAlias

    from numpy.typing import NDArray

    Call: TypeAlias = Callable[[NDArray[np.float32], int], Mapping[str, NDArray[Any]]]
    """Predicts rows ``[B, D]`` with S draws; gives at least ``mean`` and ``epistemic_std``, ``[B]`` each."""

__all__ = [
    "ACTIVATION",
    "COLUMNS",
    "COMPONENTS",
    "EDGE",
    "INPUTS",
    "LEVELS",
    "NOISE",
    "EngineTask",
    "Layer",
    "Request",
    "drive",
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
NOISE = 0.2
"""Known standard deviation of the observation noise."""
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
class EngineTask:
    """A network, its posterior and how to compute.

    Attributes:
        hidden: Widths of the hidden layers, `ACTIVATION` between them.
        noise: ``fixed``; Murho knows ``heteroscedastic``, too, with a second output for it, and ``mixture``, of
            `COMPONENTS`, with nine outputs.
        variant: Of the script, see `benchmarks.engine_peers.EnginePeer`.
        threads: How many to compute with.
        seed: Of parameters and rows.
    """

    hidden: tuple[int, ...]
    noise: str = "fixed"
    variant: str = ""
    threads: int = 1
    seed: int = 0

    def to_json(self) -> str:
        """One line for the command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> EngineTask:
        """Reads what `to_json` wrote."""
        said = json.loads(text)
        return cls(**(said | {"hidden": tuple(said["hidden"])}))

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """``(inputs, outputs)`` of each layer."""
        return list(pairwise((INPUTS, *self.hidden, NETWORK_OUTPUTS[self.noise])))

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


@dataclass(frozen=True, slots=True)
class Request:
    """What to predict, and for how long.

    Attributes:
        batch: Rows, B.
        samples: Draws, S.
        seconds: Of the turn, about; at least one call of each kind is made.
    """

    batch: int
    samples: int
    seconds: float


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


def drive(
    prepare: Callable[[EngineTask], Mapping[str, Call]], arguments: Sequence[str] | None = None
) -> None:
    """The script of a system; everything that it needs has been imported.

    Args:
        prepare: Sets it up; gives the kinds of call to be timed, that which answers first.
        arguments: The task; that of the command line by default.
    """
    (text,) = sys.argv[1:] if arguments is None else arguments
    task = EngineTask.from_json(text)
    calls = prepare(task)
    first: dict[tuple[int, int], dict[str, float]] = {}
    _say({"parameters": task.parameters})
    for line in sys.stdin:
        request = Request(**json.loads(line))
        rows, cell = task.rows(request.batch), (request.batch, request.samples)
        if cell not in first:  # compiles, makes draws that are kept, touches the memory for the first time
            first[cell] = {name: _timed(call, rows, request.samples)[0] for name, call in calls.items()}
        _say(_turn(calls, rows, request) | {"first": first[cell]})


def _turn(calls: Mapping[str, Call], rows: NDArray[np.float32], request: Request) -> dict[str, Any]:
    """Calls of each kind, one kind after the other, so that each finds the caches as it left them."""
    times, shown = {}, shown_rows(request.batch)
    for name, call in calls.items():
        taken: list[float] = []
        began = time.perf_counter()
        while not taken or time.perf_counter() - began < request.seconds / len(calls):
            seconds, answer = _timed(call, rows, request.samples)
            taken.append(seconds)
        times[name] = statistics.median(taken)
        if len(times) == 1:
            answers = {key: np.asarray(values)[shown].tolist() for key, values in answer.items()}
    return {"times": times, "answers": answers}


def _timed(call: Call, rows: NDArray[np.float32], samples: int) -> tuple[float, Mapping[str, NDArray[Any]]]:
    began = time.perf_counter()
    answer = call(rows, samples)
    return time.perf_counter() - began, answer


def _say(answer: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
