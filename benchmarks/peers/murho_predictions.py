"""Murho in the engine benchmark: `Posterior.predict_encoded` with mean, both parts of the std and three percentiles.

The posterior has the variational parameters of the task, as if `murho train` had written it. Murho keeps the draws of
recent seeds, so a second call with the same seed makes none. Further kinds of call are timed: with new draws, as in
every call of a peer; without percentiles; by the torch engine. Runs in Murho's own environment.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.peers.exchange import drive
from benchmarks.peers.networks import ACTIVATION, COLUMNS, COMPONENTS, EDGE, NOISE, engine_session, inverse_softplus
from murho.model.bbb.network import Architecture
from murho.model.checkpoint.posterior import Posterior
from murho.model.checkpoint.spec import LikelihoodSpec, ModelSpec
from murho.model.distributions.mixtures import WideRule
from murho.model.distributions.target_transforms import Identity, Standardisation
from murho.model.encoding.encoder import Encoded, Encoder
from murho.model.encoding.feature_encodings import Scale, Standard
from murho.model.predictive.prediction import PredictOptions
from murho.model.tables.schema import Feature, FeatureKind, Schema, Target

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from benchmarks.peers.networks import Call, EngineTask

ROWS = 1000
"""Number of training rows in the specification, which sets the wide component of learned noise."""


def spec_of(task: EngineTask) -> ModelSpec:
    """Return the specification: numeric columns ``x0``, ``x1``, … of mean 0 and std 1, and the target ``y``."""
    numeric = FeatureKind.NUMERIC
    features = tuple(Feature(f"x{number}", numeric, None, False, -EDGE, EDGE, ()) for number in range(COLUMNS))
    schema = Schema(features, Target("y", None), {})
    fixed = task.noise == "fixed"
    return ModelSpec(
        architecture=Architecture(task.inputs, task.hidden, task.outputs, ACTIVATION),
        likelihood=LikelihoodSpec(
            task.noise,
            sigma=NOISE if fixed else None,
            components=COMPONENTS if task.noise == "mixture" else None,
            wide=None if fixed else WideRule.after(ROWS),
        ),
        target=Standardisation(Identity(), 0.0, 1.0),
        schema=schema,
        encoder=Encoder(schema, "standard", tuple(Standard(feature, Scale(0.0, 1.0)) for feature in features)),
    )


def tensors_of(task: EngineTask) -> dict[str, Tensor]:
    """Return the tensors mu and rho of one member, by their names in a checkpoint."""
    tensors = {}
    for number, layer in enumerate(task.posterior()):
        for part, mu, sigma in (
            ("weight", layer.weight_mu, layer.weight_sigma),
            ("bias", layer.bias_mu[None], layer.bias_sigma[None]),
        ):
            tensors[f"layers.{number}.{part}.mu"] = torch.from_numpy(mu[None])
            tensors[f"layers.{number}.{part}.rho"] = torch.from_numpy(inverse_softplus(sigma)[None])
    return tensors


def posterior_of(task: EngineTask, engine: str = "auto") -> Posterior:
    """Return the posterior on the CPU, ready to predict."""
    return Posterior(spec_of(task), tensors_of(task), engine=engine)


def prepare(task: EngineTask) -> dict[str, Call]:
    """Set Murho up; return the kinds of call."""
    torch.set_num_threads(task.threads)
    posterior, other = posterior_of(task), posterior_of(task)  # new seeds must not displace the kept draws
    reference, seeds = posterior_of(task, engine="torch"), count(1)

    def asked(of: Posterior, **more: Any) -> Call:
        def call(rows: NDArray[np.float32], samples: int) -> Mapping[str, NDArray[Any]]:
            seed: dict[str, Any] = {"seed": next(seeds)} if of is other else {}
            answer = of.predict_encoded(Encoded.like(rows), PredictOptions(samples=samples, **seed, **more))
            return {name: getattr(answer, name) for name in ("mean", "epistemic_std", "std", "percentiles")}

        return call

    return {
        "call": asked(posterior),
        "draws anew": asked(other),
        "mean and std": asked(posterior, percentiles=()),
        "torch engine": asked(reference),
    }


if __name__ == "__main__":
    drive(engine=engine_session(prepare))
