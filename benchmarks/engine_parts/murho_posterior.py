"""Murho's posterior with the variational parameters of a task, as if `murho train` had written it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from benchmarks.peers.engine_task import (
    ACTIVATION,
    COLUMNS,
    COMPONENTS,
    EDGE,
    INPUTS,
    inverse_softplus,
)
from benchmarks.peers.network_task import NOISE
from murho.model.checkpoint.posterior import Posterior
from murho.model.checkpoint.spec import ModelSpec
from murho.model.distributions.mixtures import WideRule

if TYPE_CHECKING:
    from torch import Tensor

    from benchmarks.peers.engine_task import EngineTask

__all__ = ["DEFAULT_SEED", "ROWS", "facts_of", "posterior_of", "spec_of", "tensors_of"]

DEFAULT_SEED = 0
"""Seed of the draws."""
ROWS = 1000
"""Number of training rows in the specification, which sets the wide component of learned noise."""


def facts_of(task: EngineTask) -> dict[str, Any]:
    """Content of ``model.json``: numeric columns ``x0``, ``x1``, … of mean 0 and std 1, and the target ``y``."""
    names = [f"x{number}" for number in range(COLUMNS)]
    features: list[dict[str, Any]] = [
        {
            "name": name,
            "kind": "numeric",
            "unit": None,
            "missing": False,
            "minimum": -EDGE,
            "maximum": EDGE,
            "categories": [],
            "imputed": False,
            "reading": None,
        }
        for name in names
    ]
    scale = {"mean": 0.0, "std": 1.0, "limit": None}
    parts = [{"feature": name, "scale": scale, "bounded": False, "kind": "standard"} for name in names]
    target = {"name": "y", "unit": None, "classes": None, "reading": None}
    return {
        "created": None,
        "murho": None,
        "architecture": {
            "inputs": INPUTS,
            "hidden": list(task.hidden),
            "outputs": task.sizes[-1][1],
            "activation": ACTIVATION,
            "members": 1,
            "skip": False,
        },
        "prior": None,
        "likelihood": {
            "kind": task.noise,
            "sigma": NOISE if task.noise == "fixed" else None,
            "components": COMPONENTS if task.noise == "mixture" else None,
            "wide": None if task.noise == "fixed" else WideRule.after(ROWS).to_json(),
            "shares": None,
        },
        "schema": {"features": features, "target": target, "left_out": {}},
        "encoder": {
            "encoding": "standard",
            "parts": parts,
            "whitening": None,
            "distribution": None,
            "continuations": {},
        },
        "target": {"transform": {"kind": "none"}, "location": 0.0, "scale": 1.0, "limits": None},
        "calibration": None,
        "target_range": None,
        "default_seed": DEFAULT_SEED,
        "training": {},
        "metrics": {},
        "records": {},
    }


def spec_of(task: EngineTask) -> ModelSpec:
    """The specification from the content of ``model.json``."""
    return ModelSpec.from_json(facts_of(task))


def tensors_of(task: EngineTask) -> dict[str, Tensor]:
    """The tensors mu and rho of one member, by their names in a checkpoint."""
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
    """The posterior on the CPU, ready to predict."""
    return Posterior(spec_of(task), tensors_of(task), engine=engine)
