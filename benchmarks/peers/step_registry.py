"""Whose optimiser step is timed beside Murho's, and the environment of each: packages pinned, scripts beside this file.

A script runs in its own environment, in a process of its own, and may import that environment's packages, numpy
and, of this package, `exchange` and (where there is PyTorch) `torch_parts` alone. Each of them is used as its own
documentation shows.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ENVIRONMENTS", "STEP_PEERS", "StepPeer"]

NUMPY = "numpy==2.4.6"
TORCH = "torch==2.13.0"

ENVIRONMENTS: dict[str, tuple[str, ...]] = {
    "step-bayesian-torch": (NUMPY, TORCH, "bayesian-torch==0.5.0"),
    "step-blitz": (NUMPY, TORCH, "blitz-bayesian-pytorch==0.2.8"),
    "step-numpyro": (NUMPY, "jax==0.10.2", "numpyro==0.22.0"),
    "step-posteriors": (NUMPY, TORCH, "posteriors==0.1.3", "torchopt==0.7.3"),
    "step-pyro": (NUMPY, TORCH, "pyro-ppl==1.9.2"),
    "step-tfp": (NUMPY, "tensorflow==2.21.0", "tf-keras==2.21.0", "tensorflow-probability==0.25.0"),
    "step-torchbnn": (NUMPY, TORCH, "torchbnn==1.2"),
}
"""Environment → what is installed into it."""


@dataclass(frozen=True, slots=True)
class StepPeer:
    """One of them.

    Attributes:
        title: How the table calls it.
        script: Module of this package.
        environment: Where the script runs, of `ENVIRONMENTS`.
        pytorch: Whether it computes with PyTorch, as Murho does.
    """

    title: str
    script: str
    environment: str
    pytorch: bool = True


STEP_PEERS: dict[str, StepPeer] = {
    "pyro": StepPeer("Pyro SVI", "pyro_svi", "step-pyro"),
    "numpyro": StepPeer("NumPyro SVI, jit", "numpyro_svi", "step-numpyro", pytorch=False),
    "bayesian-torch": StepPeer("bayesian-torch", "bayesian_torch_layers", "step-bayesian-torch"),
    "torchbnn": StepPeer("torchbnn", "torchbnn_layers", "step-torchbnn"),
    "blitz": StepPeer("blitz", "blitz_layers", "step-blitz"),
    "posteriors": StepPeer("posteriors vi.diag", "posteriors_diagonal", "step-posteriors"),
    "tfp": StepPeer("TFP, tf.function", "tfp_layers", "step-tfp", pytorch=False),
}
"""Name on the command line → peer."""
