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
    from torch import Tensor

__all__ = ["KL_WEIGHTS", "FreeEnergy", "kl_weights"]

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
