"""Targets at a limit: in the likelihood they count as values beyond it (Tobin 1958; a "Tobit" model).

The latent target of such a row is only known to lie at or beyond the limit. So its log density is replaced by the
logarithm of the Gaussian's tail there. Everything else of a gradient stays: `tail_terms` returns what takes the place
of the residual r and of its square, such that ``r / noise`` is still the derivative by the mean, and
``(r^2 - 1) / noise`` the one by the noise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from murho.model.distributions.mixtures import LOG_SQRT_2PI

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["tail_terms"]

FAR = 10.0
"""Normal score from which on the ratio of density and tail is computed by its expansion, to 1e-4."""


def tail_terms(residual: Tensor, targets: Tensor, limits: tuple[float, float]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What stands for a Gaussian's terms in rows whose target is at a limit.

    With ``u = r`` at the maximum and ``u = -r`` at the minimum, the log tail is ``log Q(u)``, and its derivatives are
    those of a residual ``r = ±phi(u) / Q(u)`` and a square ``r^2 = 1 + u phi(u) / Q(u)``.

    Args:
        residual: ``(target - mean) / noise``, any shape.
        targets: Standardised targets, broadcastable to ``residual``.
        limits: Minimum and maximum, standardised; infinite: there is none.

    Returns:
        The mask of the rows at a limit, the log tail, the residual and the square, each broadcastable to ``residual``.
        The last three hold where the mask is set.
    """
    above, below = targets >= limits[1], targets <= limits[0]
    sides = above.to(residual) - below.to(residual)
    reach = sides * residual
    near = reach.clamp_max(FAR)
    log_tail = torch.special.log_ndtr(-reach)
    ratio = torch.exp(-0.5 * near.square() - LOG_SQRT_2PI - torch.special.log_ndtr(-near))
    far = reach.clamp_min(FAR)
    ratio = torch.where(reach > FAR, far + far.reciprocal() - 2.0 * far.pow(-3.0), ratio)
    return above | below, log_tail, sides * ratio, 1.0 + reach * ratio
