"""Fits side by side: their members become those of one network, and its posterior the mixture of theirs."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from model.fits import Fit
from model.networks import BayesianNetwork

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["stacked"]


def stacked(fits: Sequence[Fit]) -> Fit:
    """One fit with the members of several, in their order.

    Args:
        fits: Of the same inputs, widths and observation model. With F folds the members of each are a multiple of F,
            so that member m of the stack, too, is kept from fold ``m mod F``.

    Returns:
        Validation, epochs, their history and how the fit ended are those of the first.
    """
    first = fits[0]
    members = sum(part.network.architecture.members for part in fits)
    architecture = replace(first.network.architecture, members=members)
    network = BayesianNetwork(architecture, torch.Generator().manual_seed(0))
    likelihood = copy.deepcopy(first.likelihood)
    with torch.no_grad():
        network.mu.copy_(torch.cat([part.network.mu for part in fits]))
        network.rho.copy_(torch.cat([part.network.rho for part in fits]))
    for name, parameter in likelihood.named_parameters():
        # What a noise learns it learns for each member, see `model.likelihoods.HomoscedasticNoise`.
        parts = [dict(part.likelihood.named_parameters())[name].detach() for part in fits]
        parameter.data = torch.cat(parts)
    return Fit(
        network, likelihood, first.validation, first.epochs, first.best_epoch, first.stopped, first.history
    )
