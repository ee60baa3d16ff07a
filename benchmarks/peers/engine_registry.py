"""Whose posterior predictions are timed beside Murho's: scripts beside this file, environments of the step benchmark.

A script runs in its own environment, in a process of its own, and may import that environment's packages, numpy
and, of this package, `exchange` and (where there is PyTorch) `torch_parts` alone. Each library is used as its own
documentation shows.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ENGINE_PEERS", "EnginePeer"]


@dataclass(frozen=True, slots=True)
class EnginePeer:
    """One of them.

    Attributes:
        title: How the table calls it.
        script: Module of this package.
        environment: Where the script runs, of `benchmarks.step_peers.ENVIRONMENTS`.
        variant: What is asked of the script, if it knows several ways.
        stacked: Whether it computes all draws at once, and so needs memory for the hidden values of all of them.
    """

    title: str
    script: str
    environment: str
    variant: str = ""
    stacked: bool = False


ENGINE_PEERS: dict[str, EnginePeer] = {
    "posteriors": EnginePeer("posteriors, vmap", "posteriors_predictions", "step-posteriors", stacked=True),
    "numpyro-parallel": EnginePeer(
        "NumPyro Predictive, jit, parallel", "numpyro_predictions", "step-numpyro", "parallel", stacked=True
    ),
    "numpyro": EnginePeer("NumPyro Predictive, jit", "numpyro_predictions", "step-numpyro"),
    "pyro-parallel": EnginePeer(
        "Pyro Predictive, parallel", "pyro_predictions", "step-pyro", "parallel", stacked=True
    ),
    "pyro": EnginePeer("Pyro Predictive", "pyro_predictions", "step-pyro"),
    "bayesian-torch": EnginePeer("bayesian-torch", "bayesian_torch_predictions", "step-bayesian-torch"),
    "torchbnn": EnginePeer("torchbnn", "torchbnn_predictions", "step-torchbnn"),
    "blitz": EnginePeer("blitz, mfvi_forward", "blitz_predictions", "step-blitz"),
    "tfp": EnginePeer("TFP, tf.function", "tfp_predictions", "step-tfp"),
}
"""Name on the command line → peer."""
