"""Pruning: the next version of a checkpoint, without the weights of the lowest signal-to-noise ratio."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.data.splits import FEWEST_ROWS_TO_CALIBRATE, HeldOut
from murho.model.posterior.posterior import Posterior
from murho.model.revision.judging import judge, score_facts
from murho.model.revision.revisions import Revision
from murho.model.revision.signal_to_noise import cut, extrapolation_inputs

if TYPE_CHECKING:
    from murho.model.evaluation.cross_calibration import Calibrated
    from murho.model.evaluation.held_out_rows import HeldOutRows
    from murho.model.revision.revisions import LabelledRows
    from murho.model.revision.signal_to_noise import Cut

__all__ = ["Pruned", "prune"]


@dataclass(frozen=True, slots=True)
class Pruned:
    """The outcome of a pruning.

    Attributes:
        revision: The pruned version, for `model.posterior.checkpoint.write_checkpoint`.
        cut: The removed weights.
        before: Scores of the old version on the labelled rows, as
            `model.revision.judging.judge` returns them; None without rows.
        after: Scores of the pruned version; each half of the rows is scored with a calibration from the other half.
        calibration: ``kept``, ``made anew`` or ``none``.
        judged: The pruned version's predictions for the labelled rows; None without rows.
    """

    revision: Revision
    cut: Cut
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    calibration: str
    judged: HeldOutRows | None


def prune(revision: Revision, fraction: float, rows: LabelledRows | None = None) -> Pruned:
    """Remove the weights with the lowest signal-to-noise ratio.

    Pruning changes the bands. With 50 labelled rows or more they are calibrated anew, as a training does with held-out
    rows. With fewer rows the old calibration is kept. The held-out metrics of the old version do not hold for the
    pruned one: without rows the new version has no metrics.

    Args:
        revision: The version to prune; it is not changed.
        fraction: Share of the weights to remove, without the weights that `model.revision.signal_to_noise` holds.
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
