"""Which inputs each member reads: half of the members of a mixed encoding do without the bins.

Networks that read the same rows in two ways err on different rows, so their mixture is better than either kind alone,
as mixtures of networks with other hyperparameters are (Wenzel et al. 2020, "Hyperparameter ensembles for robustness and
uncertainty quantification"). All members of a checkpoint have the same shapes: weights from inputs that their member
does not read are zero, and answers are computed as for any other checkpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from murho.model.data.splits import folds_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from murho.model.networks.bayesian_network import Architecture

__all__ = [
    "UNREAD_RHO",
    "are_alike",
    "inputs_read",
    "is_unread",
    "mixed_reading",
    "weights_from_inputs",
    "without_unread",
]

UNREAD_RHO = -39.0
"""rho of a weight from an input that its member does not read: its sigma is 1e-17, and its mean is 0. As with a pruned
weight (`model.revision.signal_to_noise.PRUNED_RHO`, from which it differs), a draw of it vanishes in a float32 sum."""


def is_unread(mu: Tensor, rho: Tensor) -> Tensor:
    """Mask of the weights from inputs that their member does not read; the shape of ``mu`` and ``rho``."""
    return (mu == 0.0) & (rho == UNREAD_RHO)


def mixed_reading(members: int, inputs: int, bins: Sequence[int]) -> Tensor:
    """Whether each member of a mixed encoding reads each input, ``[M, D]``, bool.

    Members of every second partition into folds read no bins, so that a row's judges are of both kinds. With one
    partition these are the members of odd numbers.

    Args:
        members: M.
        inputs: D.
        bins: Numbers of the inputs that are bins of a number.
    """
    folds = folds_of(members)
    together = folds if members > folds else 1
    reads = torch.ones(members, inputs, dtype=torch.bool)
    plain = [member for member in range(members) if member // together % 2]
    reads[torch.tensor(plain, dtype=torch.long)[:, None], torch.tensor(bins, dtype=torch.long)] = False
    return reads


def are_alike(reads: Tensor | None) -> bool:
    """Whether members differ in what they read by chance alone, if at all, and not as two kinds.

    They are of two kinds where all members of one partition into folds read an input that none of the other reads.

    Args:
        reads: Whether each member reads each input, ``[M, D]``, bool; None: all do.
    """
    if reads is None:
        return True
    shares = torch.stack([part.float().mean(dim=0) for part in reads.split(folds_of(len(reads)))])
    return not bool((shares.amax(dim=0) - shares.amin(dim=0) == 1.0).any())


def weights_from_inputs(architecture: Architecture, index: int, inputs: Tensor) -> Tensor:
    """Mask of the weights of a layer that come from given inputs, ``[M, inputs of the layer, outputs]``.

    Args:
        architecture: The network's sizes.
        index: Number of the layer.
        inputs: Mask of the inputs of each member, ``[M, D]``.
    """
    width, outputs = architecture.layers[index]
    found = torch.zeros(architecture.members, width, outputs, dtype=torch.bool)
    # The first layer reads the inputs alone; with a skip, the weights of the inputs come last in the last layer.
    before = 0 if index == 0 else architecture.hidden[index - 1]
    found[:, before:] = inputs[:, : width - before, None]
    return found


def without_unread(
    tensors: Mapping[str, Tensor], architecture: Architecture, reads: Tensor | None
) -> dict[str, Tensor]:
    """The tensors of a network without the weights from inputs that their member does not read.

    Args:
        tensors: mu, rho and noise parameters by name; not changed.
        architecture: The network's sizes.
        reads: Whether each member reads each input, ``[M, D]``, bool; None: all do.
    """
    kept = dict(tensors)
    if reads is None:
        return kept
    for index in range(len(architecture.layers)):
        gone = weights_from_inputs(architecture, index, ~reads.cpu()).to(next(iter(tensors.values())).device)
        for part, value in (("mu", 0.0), ("rho", UNREAD_RHO)):
            name = f"layers.{index}.weight.{part}"
            kept[name] = tensors[name].masked_fill(gone, value)
    return kept


def inputs_read(tensors: Mapping[str, Tensor]) -> Tensor | None:
    """Whether each member of a checkpoint reads each input, ``[M, D]``, bool; None: all members read all."""
    mu, rho = (tensors[f"layers.0.weight.{part}"].cpu() for part in ("mu", "rho"))
    reads = ~is_unread(mu, rho).any(dim=2)
    return None if bool(reads.all()) else reads
