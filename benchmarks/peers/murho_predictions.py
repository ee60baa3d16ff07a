"""Murho in the engine benchmark: `Posterior.predict_encoded` with mean, both parts of the std and three percentiles.

Murho keeps the draws of recent seeds, so a second call with the same seed makes none. Four more kinds of call are
timed: with new draws, as in every call of a peer; without percentiles; with the exceedance of three thresholds; and the
network's outputs under every draw alone. Runs in Murho's own environment.
"""

from __future__ import annotations

from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.engine_parts.murho_posterior import DEFAULT_SEED, posterior_of, tensors_of
from benchmarks.peers.engine_task import engine_session
from benchmarks.peers.exchange import drive
from murho.model.encoding.encoder import Encoded
from murho.model.predictive.draws import make_draws
from murho.model.predictive.prediction import PredictOptions
from murho.model.runtime import threads_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from benchmarks.peers.engine_task import Call, EngineTask
    from murho.model.predictive.draws import Draws

__all__ = ["prepare"]

THRESHOLDS = (-1.0, 0.0, 1.0)
"""Thresholds for targets with a standard deviation of 1 to 1.5."""
VALUES_AT_A_TIME = 2**19
"""Most function values in one call of the network: as many as fit into a tile of the engine."""


def prepare(task: EngineTask) -> dict[str, Call]:
    """Sets Murho up; returns the kinds of call."""
    torch.set_num_threads(task.threads)
    posterior, other = posterior_of(task), posterior_of(task)  # new seeds must not displace the kept draws
    reference = posterior_of(task, engine="torch")
    seeds = count(DEFAULT_SEED + 1)
    tensors = tensors_of(task)

    @cache
    def kept(samples: int) -> Draws:
        return make_draws(tensors, posterior.architecture, seed=DEFAULT_SEED, samples=samples)

    def call(rows: NDArray[np.float32], samples: int) -> Mapping[str, NDArray[Any]]:
        answer = posterior.predict_encoded(Encoded.like(rows), PredictOptions(samples=samples))
        return {name: getattr(answer, name) for name in ("mean", "epistemic_std", "std", "percentiles")}

    def fresh(rows: NDArray[np.float32], samples: int) -> Mapping[str, NDArray[Any]]:
        other.predict_encoded(Encoded.like(rows), PredictOptions(samples=samples, seed=next(seeds)))
        return {}

    def network(rows: NDArray[np.float32], samples: int) -> Mapping[str, NDArray[Any]]:
        step = max(1, VALUES_AT_A_TIME // samples)
        weights = sum(layer[0].numel() for layer in kept(samples).layers)
        with threads_for(len(rows) * samples * weights):
            for start in range(0, len(rows), step):
                posterior.engine.forward(kept(samples), torch.from_numpy(rows[start : start + step]))
        return {}

    def moments(rows: NDArray[np.float32], samples: int) -> Mapping[str, NDArray[Any]]:
        posterior.predict_encoded(Encoded.like(rows), PredictOptions(samples=samples, percentiles=()))
        return {}

    def exceedance(rows: NDArray[np.float32], samples: int) -> Mapping[str, NDArray[Any]]:
        posterior.predict_encoded(Encoded.like(rows), PredictOptions(samples=samples, thresholds=THRESHOLDS))
        return {}

    def by_torch(rows: NDArray[np.float32], samples: int) -> Mapping[str, NDArray[Any]]:
        reference.predict_encoded(Encoded.like(rows), PredictOptions(samples=samples))
        return {}

    return {
        "call": call,
        "fresh": fresh,
        "moments": moments,
        "exceedance": exceedance,
        "torch": by_torch,
        "network": network,
    }


if __name__ == "__main__":
    drive(engine=engine_session(prepare))
