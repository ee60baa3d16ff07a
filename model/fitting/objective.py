"""The free energy of Bayes by Backprop, and the share of each minibatch in its KL term.

``F = KL(q || prior) - E_q[log p(targets | rows, w)]`` in nats (Blundell et al. 2015, equation 2). Minibatch i of T has
the loss ``F_i = weight_i KL - E_q[log p(minibatch i | w)]``. The weights sum to one, so that the sum over an epoch is
exactly F (equation 8). Where rows have weights of their own (``--weight``), each row's log p is multiplied by its
weight; these weights have the mean 1, so that the KL keeps its share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from murho.model.errors import OptionError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["KL_WEIGHTS", "FreeEnergy", "kl_weights"]

KL_WEIGHTS = ("uniform", "geometric")


def kl_weights(kind: str, minibatches: int) -> list[float]:
    """Share of the KL in each minibatch of an epoch.

    Args:
        kind: ``uniform`` (1/T) or ``geometric``: ``2^(T-i) / (2^T - 1)`` for i = 1..T, so that the prior dominates
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
        # 2^(T-i) / (2^T - 1) with 2^T cancelled, which does not overflow with a thousand minibatches.
        return [2.0**-i / (1.0 - 2.0**-minibatches) for i in range(1, minibatches + 1)]
    raise OptionError(f"KL weights must be one of {', '.join(KL_WEIGHTS)}, not {kind!r}")


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
