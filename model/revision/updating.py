"""Updating: the next version of a checkpoint, from new rows, with the old posterior as their prior.

mu and sigma of the weights hold what the earlier rows taught. With them as the prior, a fit to the new rows alone gives
the posterior of all rows, up to the approximation by independent Gaussians (`model.networks.posterior_prior`). The
earlier rows are not needed. Weights with a small sigma stay, unless the new rows give strong evidence against them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from murho.model.data.splits import FEWEST_ROWS_TO_CALIBRATE, HeldOut
from murho.model.distributions.wide_component import WideRule
from murho.model.errors import OptionError
from murho.model.networks.named_tensors import learned_tensors
from murho.model.networks.read_inputs import inputs_read, without_unread
from murho.model.posterior.posterior import Posterior
from murho.model.revision.judging import judge, score_facts
from murho.model.revision.posterior_shift import PosteriorShift
from murho.model.revision.revisions import Revision
from murho.model.revision.signal_to_noise import is_removed
from murho.model.revision.update_fit import (
    UpdateOptions,
    fit_to_new_rows,
    split_new_rows,
    temperature_of,
)

if TYPE_CHECKING:
    from murho.model.data.splits import Split
    from murho.model.evaluation.held_out_rows import HeldOutRows
    from murho.model.fitting.fit_types import Epoch
    from murho.model.revision.revisions import LabelledRows
    from murho.model.training.candidates import Reporter

__all__ = ["Updated", "update"]


@dataclass(frozen=True, slots=True)
class Updated:
    """The outcome of an update.

    Attributes:
        revision: The new version, for `model.posterior.checkpoint.write_checkpoint`.
        shift: Shift of the posterior.
        before: Scores of the old version on the new rows, as
            `model.revision.judging.judge` returns them.
        after: Scores of the new version. If ``held_out``, estimated from members that have not learned the row.
        held_out: Whether new rows were held out. If not, ``after`` has scores on rows that the version has learned.
        judged: The new version's predictions for the rows that ``after`` is of.
        history: All epochs of the fit.
        calibration: ``pooled`` with the new rows, ``made`` from them, ``kept`` or ``none``.
    """

    revision: Revision
    shift: PosteriorShift
    before: dict[str, Any]
    after: dict[str, Any]
    held_out: bool
    calibration: str
    judged: HeldOutRows
    history: tuple[Epoch, ...]


def update(
    revision: Revision,
    rows: LabelledRows,
    options: UpdateOptions,
    *,
    reporter: Reporter,
    device: str = "cpu",
) -> Updated:
    """Learn from new rows with a version's posterior as the prior.

    Schema, encoding and standardisation of the version stay, because its weights are only valid with them. From 10 new
    rows on, they are held out and cross-fitted as in a training, and pooled with the rows behind the calibration. From
    50 rows on, a version without calibration gets one, and the held-out metrics are those of the new rows. All else
    changes little with one row more, whatever their number.

    Args:
        revision: The version to update; it is not changed.
        rows: The new rows.
        options: Options of the update.
        reporter: Gets the progress.
        device: Device of the fit.

    Raises:
        OptionError: The version was pruned.
        FitError: The fit became non-finite.
        KeyboardInterrupt: Interrupted before the end of the first epoch.
    """
    began = time.monotonic()
    old = revision.posterior
    _refuse_pruned(revision)
    seed = old.seed if options.seed is None else options.seed
    split = split_new_rows(len(rows), seed, old.architecture.members, rows.units)
    held_out, many = len(split.calibration) > 0, len(rows) >= FEWEST_ROWS_TO_CALIBRATE
    if not held_out:
        reporter.say(
            f"{len(rows)} new rows are too few to hold any out: all are learned from, and the calibration stays"
        )
    elif split.folds is not None:
        reporter.say(f"new {split.describe()}")
    else:
        reporter.say(f"new rows: {len(split.training)} learned from, {len(split.calibration)} held out")
    outcome = fit_to_new_rows(revision, rows, split, options, seed=seed, reporter=reporter, device=device)
    if outcome.stopped == "interrupted":
        reporter.say(f"interrupted: kept the best parameters so far (epoch {outcome.best_epoch})")

    learned_now = learned_tensors(outcome.network, outcome.likelihood)
    tensors = without_unread(learned_now, old.architecture, inputs_read(revision.tensors))
    rows_before = revision.spec.rows_learned
    learned = len(split.training)
    spec = revision.spec.made_now()
    if spec.likelihood.wide is not None:
        wide = WideRule.after(rows_before + learned)
        spec = replace(spec, likelihood=replace(spec.likelihood, wide=wide))
    if spec.likelihood.shares is not None:
        shares = spec.likelihood.shares.after(rows_before, rows.targets[split.training])
        spec = replace(spec, likelihood=replace(spec.likelihood, shares=shares))
    new = Posterior(spec, tensors)
    groups = _groups(split, old.architecture.members)
    calibrating = range(len(groups)) if held_out and (many or spec.calibration is not None) else ()
    before = judge(old, rows, groups).metrics
    calibrated = judge(
        new,
        rows,
        groups,
        calibrating=calibrating,
        units=None if split.units is None else split.units.of_rows,
        even=split.units is not None and split.units.grouped,
        earlier=spec.calibration,
    )
    conformal, after = calibrated.conformal, calibrated.metrics
    calibration = "none" if spec.calibration is None else "kept"
    if conformal is not None:
        calibration = "made" if spec.calibration is None else "pooled"
        spec = replace(spec, calibration=conformal)
    if many:
        spec = replace(spec, metrics=after)
    shift = PosteriorShift.between(revision.tensors, tensors, old.architecture)
    facts = {
        "from_version": old.version,
        "rows": len(rows),
        "left_out_rows": rows.left_out,
        "learned_rows": learned,
        "total_rows": rows_before + learned,
        "outside": rows.outside,
        **shift.to_json(),
        "held_out": held_out,
        "calibration": calibration,
        "before": score_facts(before),
        "after": score_facts(after),
        "epochs": outcome.epochs,
        "best_epoch": outcome.best_epoch,
        "stopped": outcome.stopped,
        "interrupted": outcome.stopped == "interrupted",
        "temperature": temperature_of(revision.spec, len(rows)),
        "learning_rate": options.learning_rate,
        "seed": seed,
        "seconds": round(time.monotonic() - began, 3),
    }
    spec = replace(spec, records={**spec.records, "update": facts})
    return Updated(
        revision=Revision(tensors, Posterior(spec, tensors)),
        shift=shift,
        before=before,
        after=after,
        held_out=held_out,
        calibration=calibration,
        judged=calibrated.held_out,
        history=outcome.history,
    )


def _groups(split: Split, members: int) -> list[HeldOut]:
    """New rows to judge, with the members that have not learned from them; all rows, if none is held out."""
    if split.folds is not None:
        return split.held_out(members)
    return [HeldOut(split.calibration if len(split.calibration) else split.training, None)]


def _refuse_pruned(revision: Revision) -> None:
    old, tensors = revision.posterior, revision.tensors
    for index in range(len(old.architecture.layers)):
        name = f"layers.{index}.weight"
        if bool(is_removed(tensors[f"{name}.mu"], tensors[f"{name}.rho"]).any()):
            source = revision.spec.records.get("pruning", {}).get("from_version")
            raise OptionError(
                f"version {old.version} of {old.name!r} was pruned, and weights that are gone can't learn: update "
                f"the version it was made from (--version {source or 'V'}), then prune the outcome"
            )
