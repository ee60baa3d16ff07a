"""Pruning: the next version of a checkpoint, without the weights of the lowest signal-to-noise ratio.

A weight's signal-to-noise ratio is ``|mu| / sigma`` (Blundell et al. 2015, section 5.1, figure 3 and table 2). If it is
low, even the sign of the weight is uncertain, and its draws are mostly noise.

Some weights with a low ratio are held, which means never removed: those of inputs that are zero for every training row,
such as the distance beyond the training range (`model.encoding.ranges`) and "is unseen". No training row has
moved these weights, so their mean is zero and their scale is that of the prior. They have no effect on training rows.
Elsewhere they give the epistemic uncertainty.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn import functional

from murho.model.bbb.network import inputs_read, weights_from_inputs
from murho.model.checkpoint.posterior import Posterior
from murho.model.errors import OptionError
from murho.model.tables.splits import FEWEST_ROWS_TO_CALIBRATE, HeldOut
from murho.model.training.revisions import Revision, judge, score_facts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from murho.model.bbb.network import Architecture
    from murho.model.encoding.encoder import Encoder
    from murho.model.evaluation.held_out import Calibrated
    from murho.model.evaluation.rows import JudgedRows
    from murho.model.training.revisions import LabelledRows

__all__ = [
    "HISTOGRAM_EDGES",
    "PRUNED_RHO",
    "Cut",
    "Layer",
    "Pruned",
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

HISTOGRAM_EDGES = np.linspace(-3.0, 2.0, 41)
"""Edges of the histogram, log10 of the ratio; ratios beyond the edges count in the first and the last bin."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Counts of the weights of one layer, over all members.

    Attributes:
        name: Name of the tensor, such as ``layers.0.weight``.
        weights: All weights.
        held: Weights that are never removed: of `extrapolation_inputs`, and of inputs that their member does not read.
        removed: Removed weights, now zero.
    """

    name: str
    weights: int
    held: int
    removed: int

    @property
    def kept(self) -> int:
        """Weights that are left, held ones included."""
        return self.weights - self.removed


@dataclass(frozen=True, slots=True)
class Cut:
    """The removed weights of a pruning.

    Attributes:
        fraction: Removed share of the weights that are not held.
        threshold: The highest signal-to-noise ratio of a removed weight.
        layers: Counts for each layer.
        removed: Removed weights in each bin of `HISTOGRAM_EDGES`.
        kept: Weights left in each bin, without held ones.
    """

    fraction: float
    threshold: float
    layers: tuple[Layer, ...]
    removed: tuple[int, ...]
    kept: tuple[int, ...]

    def total(self, what: str) -> int:
        """The sum over layers of ``weights``, ``held``, ``removed`` or ``kept``."""
        return sum(getattr(layer, what) for layer in self.layers)

    def to_json(self) -> dict[str, Any]:
        """The counts, for ``model.json``; histogram edges are signal-to-noise ratios."""
        counts = ("weights", "held", "removed", "kept")
        return {
            "fraction": self.fraction,
            "threshold": self.threshold,
            **{what: self.total(what) for what in counts},
            "layers": [
                {"name": layer.name, **{what: getattr(layer, what) for what in counts}} for layer in self.layers
            ],
            "histogram": {
                "edges": [float(f"{edge:.4g}") for edge in 10.0**HISTOGRAM_EDGES],
                "removed": list(self.removed),
                "kept": list(self.kept),
            },
        }


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
    means = [tensors[f"{name}.mu"] for name in names]
    rhos = [tensors[f"{name}.rho"] for name in names]
    held = held_weights(tensors, architecture, held_inputs)
    free = torch.cat([part.flatten() for part in held]).logical_not()
    ratios = torch.cat([signal_to_noise(mu, rho).flatten() for mu, rho in zip(means, rhos, strict=True)])
    gone = torch.cat([is_removed(mu, rho).flatten() for mu, rho in zip(means, rhos, strict=True)])
    count = round(fraction * int(free.sum()))
    _check_count(count, int(free.sum()), int(gone.sum()), fraction)

    order = torch.where(free, ratios, torch.inf).argsort(stable=True)
    removed = torch.zeros_like(free)
    removed[order[:count]] = True
    parts = [part.view_as(mu) for part, mu in zip(removed.split([m.numel() for m in means]), means, strict=True)]
    pruned = dict(tensors)
    for name, part in zip(names, parts, strict=True):
        pruned[f"{name}.mu"] = tensors[f"{name}.mu"].masked_fill(part, 0.0)
        pruned[f"{name}.rho"] = tensors[f"{name}.rho"].masked_fill(part, PRUNED_RHO)
    layers = tuple(
        Layer(name, part.numel(), int(stays.sum()), int(part.sum()))
        for name, part, stays in zip(names, parts, held, strict=True)
    )
    threshold = float(ratios[order[count - 1]])
    return pruned, Cut(fraction, threshold, layers, _histogram(ratios[removed]), _histogram(ratios[free & ~removed]))


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


def _check_count(count: int, free: int, gone: int, fraction: float) -> None:
    if count == 0:
        raise OptionError(f"--fraction {fraction:g} of {free:,} weights is less than one; give a larger one")
    if count <= gone:
        raise OptionError(
            f"--fraction {fraction:g} is no more than the {gone / free:.3g} of the weights that this version has lost "
            "already; give a larger one"
        )


def _histogram(ratios: Tensor) -> tuple[int, ...]:
    logarithms = np.log10(np.maximum(ratios.numpy(), 1e-30))
    clipped = np.clip(logarithms, HISTOGRAM_EDGES[0], HISTOGRAM_EDGES[-1])
    return tuple(int(count) for count in np.histogram(clipped, HISTOGRAM_EDGES)[0])


@dataclass(frozen=True, slots=True)
class Pruned:
    """The outcome of a pruning.

    Attributes:
        revision: The pruned version, for `model.checkpoint.checkpoint.write_checkpoint`.
        cut: The removed weights.
        before: Scores of the old version on the labelled rows, as
            `model.training.revisions.judge` returns them; None without rows.
        after: Scores of the pruned version; each half of the rows is scored with a calibration from the other half.
        calibration: ``kept``, ``made anew`` or ``none``.
        judged: The pruned version's predictions for the labelled rows; None without rows.
    """

    revision: Revision
    cut: Cut
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    calibration: str
    judged: JudgedRows | None


def prune(revision: Revision, fraction: float, rows: LabelledRows | None = None) -> Pruned:
    """Remove the weights with the lowest signal-to-noise ratio.

    Pruning changes the bands. With 50 labelled rows or more they are calibrated anew, as a training does with held-out
    rows. With fewer rows the old calibration is kept. The held-out metrics of the old version do not hold for the
    pruned one: without rows the new version has no metrics.

    Args:
        revision: The version to prune; it is not changed.
        fraction: Share of the weights to remove, without the weights that `model.training.pruning` holds.
        rows: Labelled rows for scores and calibration, from which no member has learned.

    Raises:
        OptionError: The fraction is out of range, or removes nothing new.
    """
    old = revision.posterior
    tensors, what = cut(revision.tensors, old.architecture, fraction, extrapolation_inputs(old.encoder))
    spec = revision.spec.made_now(metrics={})
    calibration = "none" if spec.calibration is None else "kept"
    before = after = judged = None
    if rows is not None:
        before, calibrated = _judge(old, Posterior(spec, tensors), rows)
        after, conformal, judged = calibrated.metrics, calibrated.conformal, calibrated.held_out
        spec = replace(spec, metrics=after)
        if conformal is not None:
            spec, calibration = replace(spec, calibration=conformal), "made anew"
    facts = {
        "from_version": old.version,
        **what.to_json(),
        "calibration": calibration,
        "rows": None if rows is None else len(rows),
        "before": None if before is None else score_facts(before),
        "after": None if after is None else score_facts(after),
    }
    spec = replace(spec, records={**spec.records, "pruning": facts})
    return Pruned(Revision(tensors, Posterior(spec, tensors)), what, before, after, calibration, judged)


def _judge(old: Posterior, new: Posterior, rows: LabelledRows) -> tuple[dict[str, Any], Calibrated]:
    """Scores of the old version, and what the rows say of the new one: no calibration, if they are too few for one."""
    order = np.random.Generator(np.random.PCG64(old.seed)).permutation(len(rows))
    enough = len(rows) >= FEWEST_ROWS_TO_CALIBRATE
    # Two halves: the bands of each half are scored with a calibration from the other.
    groups = [HeldOut(np.sort(part), None) for part in (np.array_split(order, 2) if enough else [order])]
    calibrating = range(len(groups)) if enough else ()
    before = judge(old, rows, groups).metrics
    return before, judge(new, rows, groups, calibrating=calibrating)
