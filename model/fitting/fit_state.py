"""The network and the observation model that a fit starts from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from murho.model.errors import FitError
from murho.model.likelihoods.registry import make_likelihood
from murho.model.networks.bayesian_network import Architecture, BayesianNetwork
from murho.model.networks.named_tensors import learned_tensors, tensor_problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch
    from torch import Tensor

    from murho.model.fitting.fit_types import FitOptions
    from murho.model.likelihoods.likelihood import Likelihood

__all__ = ["make_model", "start_from"]


def make_model(options: FitOptions, inputs: int, generator: torch.Generator) -> tuple[BayesianNetwork, Likelihood]:
    """Make a network and its observation model, on the CPU, with initial parameters.

    Args:
        options: Options of the fit, with architecture and noise.
        inputs: D.
        generator: Source of the initial means.
    """
    likelihood = make_likelihood(
        options.noise,
        members=options.members,
        sigma=options.noise_sigma,
        components=options.noise_components,
        classes=options.classes,
    )
    if options.standardisation is not None:
        likelihood.learn_target(options.standardisation)
    architecture = Architecture(
        inputs=inputs,
        hidden=options.hidden,
        outputs=likelihood.outputs,
        activation=options.activation,
        members=options.members,
        skip=options.skip,
    )
    return BayesianNetwork(architecture, generator, likelihood.initial_outputs, options.reads), likelihood


def start_from(initial: Mapping[str, Tensor], network: BayesianNetwork, likelihood: Likelihood) -> None:
    """Set the parameters of a fit to given values.

    Args:
        initial: A finite tensor for each name of `learned_tensors`, and no other.
        network: Gets ``layers.*``.
        likelihood: Gets ``noise.*``.

    Raises:
        FitError: A tensor is missing, unknown, of another shape or type, or not finite; it is named.
    """
    there = learned_tensors(network, likelihood)
    problem = tensor_problem(initial, there)
    if problem is not None:
        raise FitError(f"the start of the fit does not fit: {problem}")
    for name, tensor in there.items():
        tensor.copy_(initial[name])
