"""Pruning: the next version of a checkpoint, without the weights of the lowest signal-to-noise ratio.

A weight's signal-to-noise ratio is ``|mu| / sigma`` (Blundell et al. 2015, section 5.1, figure 3 and table 2). If it is
low, even the sign of the weight is uncertain, and its draws are mostly noise.

Some weights with a low ratio are held, which means never removed: those of inputs that are zero for every training row,
such as the distance beyond the training range (`model.encoding.encoder.Ranges`) and "is unseen". No training row has
moved these weights, so their mean is zero and their scale is that of the prior. They have no effect on training rows.
Elsewhere they give the epistemic uncertainty.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn import functional

from murho.model.bbb.network import Architecture, inputs_read, weights_from_inputs
from murho.model.checkpoint.posterior import Posterior
from murho.model.errors import OptionError
from murho.model.tables.splits import FEWEST_ROWS_TO_CALIBRATE, HeldOut
from murho.model.training.revisions import LabelledRows, Revised, revise

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from murho.model.encoding.encoder import Encoder

__all__ = [
    "PRUNED_RHO",
    "Cut",
    "cut",
    "extrapolation_inputs",
    "held_weights",
    "is_removed",
    "prune",
    "signal_to_noise",
]

PRUNED_RHO = -40.0
"""rho of a removed weight: its sigma, 4e-18, is positive, and the square of sigma is a normal float32.

A draw is below 1e-16, and below 1e-10 times the largest input (`model.encoding.encoder.LARGEST`): it vanishes in a
float32 sum."""


@dataclass(frozen=True, slots=True)
class Cut:
    """What a pruning removes.

    Attributes:
        fraction: Share of the weights that are not held.
        threshold: Highest signal-to-noise ratio of a removed weight.
        weights: Number of all weights.
        held: Weights that are never removed.
        removed: Weights that are removed, with those that an earlier pruning has removed.
    """

    fraction: float
    threshold: float
    weights: int
    held: int
    removed: int


def signal_to_noise(mu: Tensor, rho: Tensor) -> Tensor:
    """``|mu| / sigma``, any shape, float64."""
    return mu.double().abs() / functional.softplus(rho.double())


def is_removed(mu: Tensor, rho: Tensor) -> Tensor:
    """Mask of the weights that an earlier pruning has removed; the shape of ``mu`` and ``rho``."""
    return (mu == 0.0) & (rho <= PRUNED_RHO)


def extrapolation_inputs(encoder: Encoder) -> list[int]:
    """Numbers of the encoded features that are zero for every training row, except for outliers of a column."""
    return [*encoder.unseen, *encoder.range_distance_columns]


def cut(
    tensors: Mapping[str, Tensor], architecture: Architecture, fraction: float, held_inputs: Sequence[int]
) -> tuple[dict[str, Tensor], Cut]:
    """Remove the weights with the lowest signal-to-noise ratio, ranked over all layers and members.

    Biases stay: they are few, and a unit changes without its bias. Weights that an earlier pruning removed count as
    removed.

    Args:
        tensors: mu, rho and noise parameters of a checkpoint by name.
        architecture: The network's sizes.
        fraction: Share to remove of the weights that are not held; strictly between 0 and 1.
        held_inputs: Encoded features whose weights are held.

    Returns:
        The tensors, with new tensors for the weights, and the counts.

    Raises:
        OptionError: The fraction is out of range, removes no weight, or removes no more than an earlier pruning.
    """
    if not 0.0 < fraction < 1.0:
        raise OptionError(f"--fraction must lie strictly between 0 and 1, not {fraction:g}")
    names = [f"layers.{index}.weight" for index in range(len(architecture.layers))]
    mu, rho = (torch.cat([tensors[f"{name}.{part}"].flatten() for name in names]) for part in ("mu", "rho"))
    held = torch.cat([part.flatten() for part in held_weights(tensors, architecture, held_inputs)])
    ratios, free, gone = signal_to_noise(mu, rho), int((~held).sum()), int(is_removed(mu, rho).sum())
    count = round(fraction * free)
    if count == 0:
        raise OptionError(f"--fraction {fraction:g} of {free:,} weights is less than one; give a larger one")
    if count <= gone:
        raise OptionError(
            f"--fraction {fraction:g} is no more than the {gone / free:.3g} of the weights that this version has lost "
            "already; give a larger one"
        )
    order = torch.where(held, torch.inf, ratios).argsort(stable=True)
    removed = torch.zeros_like(held)
    removed[order[:count]] = True
    pruned = dict(tensors)
    for name, out in zip(names, removed.split([tensors[f"{name}.mu"].numel() for name in names]), strict=True):
        for part, value in ((f"{name}.mu", 0.0), (f"{name}.rho", PRUNED_RHO)):
            pruned[part] = tensors[part].masked_fill(out.view_as(tensors[part]), value)
    threshold = float(ratios[order[count - 1]])
    return pruned, Cut(fraction, threshold, len(held), len(held) - free, count)


def held_weights(tensors: Mapping[str, Tensor], architecture: Architecture, inputs: Sequence[int]) -> list[Tensor]:
    """Masks of the weights that are never removed, ``[M, inputs, outputs]`` for each layer.

    They are those from the given encoded features, and those from inputs that their member does not read: they are zero
    from the start, and no gain of a pruning.

    Args:
        tensors: mu and rho by name.
        architecture: The network's sizes.
        inputs: Numbers of encoded features.
    """
    reads = inputs_read(tensors)
    held = torch.zeros(architecture.members, architecture.inputs, dtype=torch.bool) if reads is None else ~reads
    held[:, list(inputs)] = True
    return [weights_from_inputs(architecture, index, held) for index in range(len(architecture.layers))]


def prune(old: Posterior, fraction: float, rows: LabelledRows | None = None) -> Revised:
    """Remove the weights with the lowest signal-to-noise ratio.

    Pruning changes the bands. With 50 labelled rows or more they are calibrated anew, as a training does with held-out
    rows. With fewer rows the old calibration is kept. The held-out metrics of the old version do not hold for the
    pruned one: without rows the new version has no metrics.

    Args:
        old: The version to prune; it is not changed.
        fraction: Share of the weights to remove, without the weights that `model.training.pruning` holds.
        rows: Labelled rows for scores and calibration, from which no member has learned.

    Raises:
        OptionError: The fraction is out of range, or removes nothing new.
    """
    tensors, what = cut(old.tensors, old.architecture, fraction, extrapolation_inputs(old.encoder))
    count = 0 if rows is None else len(rows)
    order, enough = np.random.Generator(np.random.PCG64(old.seed)).permutation(count), count >= FEWEST_ROWS_TO_CALIBRATE
    # No member has learned from the rows; each half is scored with a calibration from the other half.
    groups = [HeldOut(np.sort(part), None) for part in (np.array_split(order, 2) if enough else [order])]
    new = Posterior(old.spec.made_now(metrics={}), tensors)
    return revise(old, new, "pruning", asdict(what), rows, groups, calibrating=range(2) if enough else ())
