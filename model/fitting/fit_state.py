"""The state of a fit as named tensors and numbers: at its start, while it runs, and at its end."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch

from murho.model.errors import FitError
from murho.model.fitting.fit_types import Epoch, Fit
from murho.model.likelihoods.registry import make_likelihood
from murho.model.networks.bayesian_network import Architecture, BayesianNetwork
from murho.model.networks.named_tensors import learned_tensors, tensor_problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from murho.model.fitting.fit_types import FitOptions
    from murho.model.likelihoods.likelihood import Likelihood

__all__ = [
    "FitState",
    "Keeper",
    "copy_into",
    "finished_fit",
    "finished_state",
    "history_from_json",
    "history_to_json",
    "make_model",
    "start_from",
]

_OUTCOME = ("validation", "epochs", "best_epoch", "stopped", "temperature", "work")
"""Fields of a `Fit` that are plain numbers or words."""


@dataclass(frozen=True, slots=True)
class FitState:
    """The state of a fit, to resume it or to restore its outcome.

    Attributes:
        tensors: Tensors by name, on any device.
        numbers: Numbers by name, for JSON; infinity and NaN become null there.
    """

    tensors: Mapping[str, Tensor]
    numbers: Mapping[str, Any]


class Keeper(Protocol):
    """Keeps the state of a fit, so that it can be resumed if the process dies."""

    def due(self) -> bool:
        """Whether a state should be kept now."""
        ...

    def keep(self, state: FitState) -> None:
        """Replace the kept state. The tensors change with the next step, so copy them."""
        ...


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


def copy_into(there: Mapping[str, Tensor], given: Mapping[str, Tensor], what: str) -> None:
    """Copy tensors into those of the same names.

    Args:
        there: Tensors to overwrite.
        given: A finite tensor for each name of ``there``, and no other.
        what: Name of ``given`` in messages.

    Raises:
        FitError: A tensor is missing, unknown, of another shape or type, or not finite; it is named.
    """
    problem = tensor_problem(given, there)
    if problem is not None:
        raise FitError(f"{what} does not fit: {problem}")
    for name, tensor in there.items():
        tensor.copy_(given[name])


def start_from(initial: Mapping[str, Tensor], network: BayesianNetwork, likelihood: Likelihood) -> None:
    """Set the parameters of a fit to given values.

    Args:
        initial: A tensor for each name of `learned_tensors`, and no other.
        network: Gets ``layers.*``.
        likelihood: Gets ``noise.*``.

    Raises:
        FitError: A tensor does not fit, as in `copy_into`.
    """
    copy_into(learned_tensors(network, likelihood), initial, "the start of the fit")


def history_to_json(history: tuple[Epoch, ...] | list[Epoch]) -> list[tuple[Any, ...]]:
    """Epochs as rows of numbers, in the order of the fields."""
    return [
        (
            epoch.number,
            epoch.epochs,
            epoch.negative_log_likelihood,
            epoch.kl,
            epoch.validation,
            epoch.seconds,
        )
        for epoch in history
    ]


def history_from_json(rows: list[list[Any]]) -> list[Epoch]:
    """The inverse of `history_to_json`; null is NaN, as before the first validation."""
    return [
        Epoch(number, epochs, nll, kl, math.nan if validation is None else validation, seconds)
        for number, epochs, nll, kl, validation, seconds in rows
    ]


def finished_state(fit: Fit) -> FitState:
    """The outcome of a fit as a state."""
    numbers = {name: getattr(fit, name) for name in _OUTCOME}
    return FitState(learned_tensors(fit.network, fit.likelihood), numbers | {"history": history_to_json(fit.history)})


def finished_fit(state: FitState, options: FitOptions, inputs: int) -> Fit:
    """The inverse of `finished_state`.

    Args:
        state: Return value of `finished_state`.
        options: Options of the fit.
        inputs: D.

    Raises:
        FitError: The tensors do not match the options.
    """
    network, likelihood = make_model(options, inputs, torch.Generator())
    copy_into(learned_tensors(network, likelihood), state.tensors, "the snapshot")
    numbers = state.numbers
    return Fit(
        network,
        likelihood,
        history=tuple(history_from_json(numbers["history"])),
        **{name: numbers[name] for name in _OUTCOME},
    )
