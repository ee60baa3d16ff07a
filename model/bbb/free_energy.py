"""The free energy of Bayes by Backprop: the share of each minibatch, its gradient, gradient clipping.

``F = KL(q || prior) - E_q[log p(targets | rows, w)]`` in nats (Blundell et al. 2015, equation 2). Minibatch i of T has
the loss ``F_i = weight_i KL - E_q[log p(minibatch i | w)]``. The weights sum to one, so the sum over an epoch is
exactly F (equation 8). Where rows have weights of their own (``--weight``), each row's log p is multiplied by its
weight; these weights have the mean 1, so the KL keeps its share.

Where a fit does not stay finite, the error names the first quantity that is not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from murho.model.bbb.likelihood import Likelihood
from murho.model.bbb.network import BayesianNetwork, learned_tensors
from murho.model.bbb.priors import Prior
from murho.model.errors import FitError


def kl_weights(kind: str, minibatches: int) -> list[float]:
    """Share of the KL in each minibatch of an epoch.

    Args:
        kind: ``uniform`` (1/T) or ``geometric``: ``2^(T-i) / (2^T - 1)`` for i = 1..T, so that the prior dominates
            early in an epoch and the data late (Blundell et al. 2015, section 3.4).
        minibatches: T.

    Returns:
        T numbers that sum to 1.
    """
    if kind == "geometric":
        # 2^(T-i) / (2^T - 1) with 2^T cancelled, which does not overflow with a thousand minibatches.
        return [2.0**-i / (1.0 - 2.0**-minibatches) for i in range(1, minibatches + 1)]
    return [1.0 / minibatches] * minibatches


@dataclass(frozen=True, slots=True)
class FreeEnergy:
    """Loss of one minibatch and its parts, in nats per row; the parts are averaged over members.

    Attributes:
        loss: The loss that the optimiser minimises, summed over members, which do not interact.
        negative_log_likelihood: ``-E_q[log p]`` per row, times the row's weight if it has one.
        kl: The whole ``KL(q || prior) / N``, for any share of this minibatch.
    """

    loss: Tensor
    negative_log_likelihood: Tensor
    kl: Tensor


GRADIENT_NORM = 10.0


class GradientStep:
    """Computes the loss of a minibatch, and writes its gradient to ``.grad`` of the parameters: the plain step.

    `model.bbb.compiled` has the same formulas, with the gradient written out; it is several times as fast.
    """

    def __init__(
        self,
        network: BayesianNetwork,
        likelihood: Likelihood,
        prior: Prior,
        *,
        total_rows: int,
        draws: int = 1,
        kl_ratios: Tensor | None = None,
    ) -> None:
        """Store the parameters.

        Args:
            network: Its ``mu`` and ``rho`` get gradients.
            likelihood: Its learned noise, if any, gets a gradient.
            prior: The prior of all weights.
            total_rows: N.
            draws: Draws per row.
            kl_ratios: N over the number of rows of each member, ``[M]``, if members learn from different numbers of
                rows, so that the KL of each member counts once for its own rows.
        """
        self.network, self.likelihood, self.prior = network, likelihood, prior
        self.total_rows, self.draws, self.kl_ratios = total_rows, draws, kl_ratios
        self._parameters: list[Tensor] = [*network.parameters(), *likelihood.parameters()]

    def __call__(
        self,
        rows: Tensor,
        targets: Tensor,
        row_weights: Tensor | None = None,
        *,
        kl_weight: float,
        minibatches: int,
        temperature: float = 1.0,
        beta: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> FreeEnergy:
        """Free energy of a minibatch, scaled to nats per training row, and its gradient.

        Args:
            rows: Encoded rows, ``[B, D]``, or ``[M, B, D]`` if members see different rows.
            targets: Standardised targets, ``[B]`` or ``[M, B]``.
            row_weights: Weight of each row, ``[B]`` or ``[M, B]``, of mean 1 over the N training rows; None: all are 1.
                It multiplies the row's log likelihood: its importance, not a number of repeats. N, and so the KL per
                row, is the number of rows, whatever their weights.
            kl_weight: Share of the KL in this minibatch; the shares of an epoch sum to 1.
            minibatches: T. The loss is ``(T / N) F_i``, so that its mean over an epoch is exactly F / N, even if
                minibatches differ in size.
            temperature: Factor of the KL; 1 is the exact free energy.
            beta: Exponent of `Likelihood.reweight_mean_gradient`. It changes the gradient, not the loss.
            generator: Source of the draws, on the device of the rows.

        Returns:
            The loss and its parts.
        """
        network, scale = self.network, minibatches / self.total_rows
        weights = torch.ones_like(targets) if row_weights is None else row_weights
        observed, weights = (part.repeat(*[1] * (part.dim() - 1), self.draws) for part in (targets, weights))
        with torch.enable_grad():
            outputs = network(rows, generator, self.draws)  # [M, S B, P]
            even = self.likelihood.reweight_mean_gradient(outputs, weights, beta) if beta > 0.0 else outputs
            negative = -(self.likelihood.log_density(even, observed) * weights).sum()
            kl = self.prior.kl(network.mu, network.sigma(), network.groups, generator)
            divergence = (kl if self.kl_ratios is None else kl * self.kl_ratios).sum()
            loss = divergence * (scale * temperature * kl_weight) + negative * (scale / self.draws)
            gradients = torch.autograd.grad(loss + self.likelihood.earlier_loss(), self._parameters)
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient
        rows_of_all = outputs.shape[0] * outputs.shape[1]
        parts = (loss, negative / rows_of_all, divergence / (len(kl) * self.total_rows))
        return FreeEnergy(*(part.detach() for part in parts))

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
            quantities = {"the targets": targets, "the inputs": rows, **self._loss_parts(energy)}
            require_finite(self.network, self.likelihood, epoch, quantities)
        if largest > GRADIENT_NORM:
            factor = (GRADIENT_NORM / norms).clamp_(max=1.0).unsqueeze(1)
            for gradient in gradients:
                gradient.mul_(factor)

    def _loss_parts(self, energy: FreeEnergy) -> dict[str, Tensor]:
        """Parts of the loss and gradients, as computed: NaN and infinity spread from the last layer to the first."""
        computed = {"the log likelihood": energy.negative_log_likelihood, "the KL": energy.kl}
        for name, parameter in self.likelihood.named_parameters():
            computed |= {} if parameter.grad is None else {f"the gradient of noise.{name}": parameter.grad}
        mu, rho = self.network.mu.grad, self.network.rho.grad
        if mu is not None and rho is not None:
            computed |= {
                f"the gradient of {name}": part for name, part in reversed(self.network.name_views(mu, rho).items())
            }
        return computed


def require_finite(network: BayesianNetwork, likelihood: Likelihood, epoch: int, quantities: dict[str, Tensor]) -> None:
    """Raise a FitError for the first parameter or quantity that is not finite.

    There may be none: where only squares of large gradients overflowed, clipping is enough.
    """
    for name, tensor in (learned_tensors(network, likelihood) | quantities).items():
        if not bool(torch.isfinite(tensor).all()):
            raise FitError(
                f"the fit became non-finite in epoch {epoch} ({name}); "
                "use a smaller --learning-rate, or look for extreme values in the table"
            )
