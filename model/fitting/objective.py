"""The free energy of Bayes by Backprop and how minibatches share its KL term.

``F = KL(q || prior) - E_q[log p(targets | rows, w)]`` in nats (Blundell et al. 2015, equation 2). Over T
minibatches, minibatch i carries ``F_i = weight_i KL - E_q[log p(minibatch i | w)]`` with weights that sum to
one, so that the sum over an epoch is exactly F (equation 8).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from murho.model.errors import OptionError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from murho.model.likelihoods.likelihood import Likelihood
    from murho.model.networks.bayesian_network import BayesianNetwork
    from murho.model.networks.priors import Prior

__all__ = ["KL_WEIGHTS", "FreeEnergy", "free_energy", "kl_weights"]

KL_WEIGHTS = ("uniform", "geometric")


def kl_weights(kind: str, minibatches: int) -> list[float]:
    """Share of the KL that each minibatch of an epoch carries.

    Args:
        kind: ``uniform`` (1/T) or ``geometric``: ``2^(T-i) / (2^T - 1)`` for i = 1..T, so that the prior leads
            early in an epoch and the data late (Blundell et al. 2015, section 3.4).
        minibatches: T.

    Returns:
        T numbers that sum to 1.

    Raises:
        OptionError: The kind is unknown or T is not positive.
    """
    if minibatches < 1:
        raise OptionError(f"an epoch has at least one minibatch, not {minibatches}")
    if kind == "uniform":
        return [1.0 / minibatches] * minibatches
    if kind == "geometric":
        # 2^(T-i) / (2^T - 1) with 2^T cancelled, so that a thousand minibatches do not overflow.
        return [2.0**-i / (1.0 - 2.0**-minibatches) for i in range(1, minibatches + 1)]
    raise OptionError(f"KL weights must be one of {', '.join(KL_WEIGHTS)}, not {kind!r}")


@dataclass(frozen=True, slots=True)
class FreeEnergy:
    """Loss of one minibatch and its parts, in nats per row, averaged over members.

    Attributes:
        loss: What the optimiser descends: summed over members, which do not interact.
        negative_log_likelihood: ``-E_q[log p]`` per row.
        kl: ``KL(q || prior) / N``, whatever share this minibatch carried.
    """

    loss: Tensor
    negative_log_likelihood: Tensor
    kl: Tensor


def free_energy(
    network: BayesianNetwork,
    likelihood: Likelihood,
    prior: Prior,
    rows: Tensor,
    targets: Tensor,
    *,
    total_rows: int,
    kl_weight: float,
    minibatches: int,
    temperature: float = 1.0,
    draws: int = 1,
    generator: torch.Generator | None = None,
) -> FreeEnergy:
    """Free energy of a minibatch, scaled to nats per training row.

    Args:
        network: The variational network.
        likelihood: The observation model.
        prior: The prior of all weights.
        rows: Encoded rows, ``[B, D]``, or ``[M, B, D]`` where members see rows of their own.
        targets: Standardised targets, ``[B]`` or ``[M, B]``.
        total_rows: N.
        kl_weight: The share of the KL that this minibatch carries; shares of an epoch sum to 1.
        minibatches: T. The loss is ``(T / N) F_i``, so that its mean over an epoch is exactly F / N, also where
            minibatches differ in size.
        temperature: Factor of the KL, 1 but for the warm-up at the start of a fit.
        draws: Draws a row.
        generator: Source of the draws, on the device of the rows.

    Returns:
        The loss and its parts.
    """
    sigma = network.sigma()
    outputs = network(rows, generator, draws, sigma)
    per_row = likelihood.log_density(outputs, targets.repeat(*[1] * (targets.dim() - 1), draws)).mean(dim=1)
    kl = network.kl(prior, generator, sigma) / total_rows
    loss = minibatches * (temperature * kl_weight * kl - per_row * (targets.shape[-1] / total_rows))
    return FreeEnergy(loss.sum(), -per_row.detach().mean(), kl.detach().mean())
