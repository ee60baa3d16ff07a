"""Pruning: the next version of a checkpoint, without the weights of the lowest signal-to-noise ratio.

A weight's signal-to-noise ratio is ``|mu| / sigma`` (Blundell et al. 2015, section 5.1, figure 3 and table 2). If it is
low, even the sign of the weight is uncertain, and its draws are mostly noise.

Some weights with a low ratio are held, which means never removed: those of inputs that are zero for every training row,
such as the distance beyond the training range (`model.encoding.encoder.Ranges`) and "is unseen". No training row has
moved these weights, so their mean is zero and their scale is that of the prior. They have no effect on training rows.
Elsewhere they give the epistemic uncertainty.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from murho.model.bbb.network import Architecture, removed_weights, unread_inputs, weights_from_inputs, without_absent
from murho.model.checkpoint.posterior import Posterior
from murho.model.encoding.encoder import Encoder
from murho.model.errors import OptionError
from murho.model.tables.splits import FEWEST_ROWS_TO_CALIBRATE, HeldOut
from murho.model.training.revisions import LabelledRows, Revised, revise


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


def extrapolation_inputs(encoder: Encoder) -> list[int]:
    """Numbers of the encoded features that are zero for every training row, except for outliers of a column."""
    return [*encoder.unseen, *encoder.range_distance_columns]


def cut(
    tensors: Mapping[str, Tensor], architecture: Architecture, fraction: float, held_inputs: Sequence[int]
) -> tuple[Architecture, Cut]:
    """Remove the weights with the lowest signal-to-noise ratio, ranked over all layers and members.

    Biases stay: they are few, and a unit changes without its bias. Weights that an earlier pruning removed count as
    removed. Weights from inputs that their member does not read are held too: they are no gain of a pruning.

    Args:
        tensors: mu, rho and noise parameters of a checkpoint by name.
        architecture: The network's sizes.
        fraction: Share to remove of the weights that are not held; strictly between 0 and 1.
        held_inputs: Encoded features whose weights are held.

    Returns:
        The architecture without these weights, and the counts.

    Raises:
        OptionError: The fraction is out of range, removes no weight, or removes no more than an earlier pruning.
    """
    if not 0.0 < fraction < 1.0:
        raise OptionError(f"--fraction must lie strictly between 0 and 1, not {fraction:g}")
    layers, inputs = range(len(architecture.layers)), unread_inputs(architecture)
    inputs[:, list(held_inputs)] = True

    def flat(parts: Iterable[Tensor]) -> Tensor:
        return torch.cat([part.flatten() for part in parts])

    mu, rho = (flat(tensors[f"layers.{layer}.weight.{part}"].double() for layer in layers) for part in ("mu", "rho"))
    ratios, earlier = mu.abs() / functional.softplus(rho), flat(removed_weights(architecture))
    held = flat(weights_from_inputs(architecture, layer, inputs) for layer in layers)
    free, gone = int((~held).sum()), int(earlier.sum())
    count = round(fraction * free)
    if count == 0:
        raise OptionError(f"--fraction {fraction:g} of {free:,} weights is less than one; give a larger one")
    if count <= gone:
        raise OptionError(
            f"--fraction {fraction:g} is no more than the {gone / free:.3g} of the weights that this version has lost "
            "already; give a larger one"
        )
    order = torch.where(held, torch.inf, ratios.masked_fill(earlier, -1.0)).argsort(stable=True)
    removed = torch.zeros_like(held)
    removed[order[:count]] = True
    what = Cut(fraction, float(ratios[order[count - 1]]), len(held), len(held) - free, count)
    return replace(architecture, removed=np.packbits(removed.numpy()).tobytes()), what


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
    architecture, what = cut(old.tensors, old.architecture, fraction, extrapolation_inputs(old.encoder))
    count = 0 if rows is None else len(rows)
    order, enough = np.random.Generator(np.random.PCG64(old.seed)).permutation(count), count >= FEWEST_ROWS_TO_CALIBRATE
    # No member has learned from the rows; each half is scored with a calibration from the other half.
    groups = [HeldOut(np.sort(part), None) for part in (np.array_split(order, 2) if enough else [order])]
    spec = old.spec.stamp(metrics={}, architecture=architecture)
    new = Posterior(spec, without_absent(old.tensors, architecture))
    return revise(old, new, "pruning", asdict(what), rows, groups, calibrating=range(2) if enough else ())
