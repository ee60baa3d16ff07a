"""Gradient clipping, and an error that names the first quantity of a fit that is not finite."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NoReturn

import torch
from torch import Tensor

from murho.model.errors import FitError
from murho.model.networks.named_tensors import learned_tensors, noise_tensors

if TYPE_CHECKING:
    from collections.abc import Iterable

    from murho.model.fitting.objective import FreeEnergy
    from murho.model.likelihoods.likelihood import Likelihood
    from murho.model.networks.bayesian_network import BayesianNetwork

__all__ = ["GradientClipping"]

GRADIENT_NORM = 10.0


class GradientClipping:
    """Clips every gradient before the optimiser reads it, and stops a fit whose loss or gradient is not finite."""

    def __init__(self, network: BayesianNetwork, likelihood: Likelihood) -> None:
        """Store the parameters.

        Args:
            network: The fitted network.
            likelihood: Its observation model.
        """
        self._network, self._likelihood = network, likelihood
        self._parameters: list[Tensor] = [*network.parameters(), *likelihood.parameters()]
        self._named = learned_tensors(network, likelihood)  # views of the parameters

    def clip(self, energy: FreeEnergy, rows: Tensor, targets: Tensor, epoch: int) -> None:
        """Clip the norm of each member's gradient separately, because members do not interact.

        Args:
            energy: The loss of the minibatch. Its gradients are in ``.grad``.
            rows: Encoded rows of the minibatch.
            targets: Targets of the minibatch.
            epoch: The current epoch.

        Raises:
            FitError: The loss or a gradient is not finite; the message names the first such quantity.
        """
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        norms = torch.linalg.vector_norm(
            torch.stack([torch.linalg.vector_norm(gradient, dim=1) for gradient in gradients]), dim=0
        )
        # A single transfer from the device, for both checks: is all finite, and is there a gradient to clip?
        loss, largest = torch.stack((energy.loss, norms.amax())).tolist()
        if not math.isfinite(loss + largest):
            self._stop_if_not_finite(energy, rows, targets, epoch)
        if largest > GRADIENT_NORM:
            factor = (GRADIENT_NORM / norms).clamp_(max=1.0).unsqueeze(1)
            for gradient in gradients:
                gradient.mul_(factor)

    def check_validation(self, measured: float, epoch: int) -> None:
        """Stop the fit if its validation is not finite.

        Raises:
            FitError: The validation is not finite; the message names the first parameter that is not.
        """
        if not math.isfinite(measured):
            _stop(_first_not_finite(self._named.items()) or "the validation", epoch)

    def _stop_if_not_finite(self, energy: FreeEnergy, rows: Tensor, targets: Tensor, epoch: int) -> None:
        """Raise a FitError for the first quantity that is not finite, in the order in which a step computes them."""
        culprit = _first_not_finite([*self._named.items(), ("the targets", targets), ("the inputs", rows)])
        if culprit is None and not bool(torch.isfinite(energy.loss)):
            part = "KL" if bool(torch.isfinite(energy.negative_log_likelihood)) else "log likelihood"
            name, tensor = max(self._named.items(), key=lambda item: float(item[1].abs().max()))
            culprit = f"the {part}; the largest parameter is {float(tensor.abs().max()):.3g} in {name}"
        if culprit is None:
            culprit = _first_not_finite(self._gradients_backwards())
        if culprit is not None:  # else only squares of large gradients overflowed; clipping is enough
            _stop(culprit, epoch)

    def _gradients_backwards(self) -> list[tuple[str, Tensor]]:
        """Gradients in the order of computation: NaN and infinity spread from the last layer to the first."""
        network = self._network
        named = [
            (f"the gradient of {name}", parameter.grad)
            for name, parameter in zip(noise_tensors(self._likelihood), self._likelihood.parameters(), strict=True)
            if parameter.grad is not None
        ]
        if network.mu.grad is not None and network.rho.grad is not None:
            pairs = zip(network.parts(network.mu.grad), network.parts(network.rho.grad), strict=True)
            parts = [part for pair in pairs for part in pair]  # in the order of the tensors' names
            names = [f"the gradient of {name}" for name in network.named_tensors()]
            named += reversed(list(zip(names, parts, strict=True)))
        return named


def _first_not_finite(named: Iterable[tuple[str, Tensor]]) -> str | None:
    return next((name for name, tensor in named if not bool(torch.isfinite(tensor).all())), None)


def _stop(culprit: str, epoch: int) -> NoReturn:
    raise FitError(
        f"the fit became non-finite in epoch {epoch} ({culprit}); "
        "use a smaller --learning-rate, or look for extreme values in the table"
    )
