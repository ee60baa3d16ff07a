"""The next version of a checkpoint, after new rows: its posterior is their prior.

What the earlier rows taught is in mu and sigma of every weight. With that as the prior, a fit to the new rows alone
ends where a fit to all rows would, as far as independent Gaussians can tell (see `model.networks.posterior_prior`).
Nothing of the earlier rows is needed, and weights that they had made sure of stay where the new rows do not insist.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from murho.model.data.splits import HeldOut
from murho.model.distributions.wide_component import WideRule
from murho.model.errors import OptionError
from murho.model.evaluation.cross_calibration import calibrate_and_score
from murho.model.posterior.posterior import Posterior
from murho.model.revision.posterior_shift import PosteriorShift
from murho.model.revision.revisions import Revision
from murho.model.revision.signal_to_noise import is_removed
from murho.model.revision.update_fit import (
    FEWEST_ROWS_TO_HOLD_OUT,
    UpdateOptions,
    fit_to_new_rows,
    noise_of_all_rows,
    split_new_rows,
    temperature_of,
)

if TYPE_CHECKING:
    from murho.model.revision.revisions import LabelledRows
    from murho.model.training.candidates import Reporter

__all__ = ["Updated", "update"]


@dataclass(frozen=True, slots=True)
class Updated:
    """What `model.posterior.checkpoint.write_checkpoint` writes, and what was done.

    Attributes:
        revision: The new version.
        shift: How far the posterior shifted.
        before: Scores of the old version on the new rows, see `model.evaluation.cross_calibration.calibrate_and_score`.
        after: Those of the new version; each row judged by a member that has not learned from it, if ``held_out``.
        held_out: Whether new rows were held out; if not, ``after`` is of rows learned from.
        calibration: ``kept``, ``made anew`` or ``none``.
    """

    revision: Revision
    shift: PosteriorShift
    before: dict[str, Any]
    after: dict[str, Any]
    held_out: bool
    calibration: str


def update(
    revision: Revision,
    rows: LabelledRows,
    options: UpdateOptions,
    *,
    reporter: Reporter,
    device: str = "cpu",
) -> Updated:
    """Learns from new rows with a version's posterior as the prior.

    Schema, encoding and standardisation stay those of the version: its weights mean nothing in others. With 50 new
    rows or more they are held out and cross-fitted as in a training, and the bands calibrated anew.

    Args:
        revision: The version to update; nothing of it is changed.
        rows: The new rows.
        options: How.
        reporter: Is told of the progress.
        device: Where to fit.

    Raises:
        OptionError: The version was pruned.
        FitError: The fit became non-finite.
    """
    began = time.monotonic()
    old = revision.posterior
    _refuse_pruned(revision)
    seed = old.seed if options.seed is None else options.seed
    split = split_new_rows(len(rows), seed, old.architecture.members)
    enough = len(split.calibration) > 0
    if enough:
        reporter.say(f"new {split.describe()}" if split.folds is None else split.describe())
    else:
        reporter.say(
            f"{len(rows)} new rows: fewer than {FEWEST_ROWS_TO_HOLD_OUT}, so none is held out: all are learned from; "
            f"noise and calibration stay those of version {old.version}"
        )
    outcome = fit_to_new_rows(revision, rows, split, options, seed=seed, reporter=reporter, device=device)
    if outcome.stopped == "interrupted":
        reporter.say(f"interrupted: kept the best parameters so far (epoch {outcome.best_epoch})")

    tensors = {name: tensor.detach() for name, tensor in outcome.network.named_tensors().items()}
    rows_before = revision.spec.rows_learned
    learned = len(split.training)
    tensors |= noise_of_all_rows(revision.tensors, outcome, rows_before, learned)
    spec = revision.spec.made_now()
    if spec.likelihood.wide is not None:
        wide = WideRule.after(rows_before + learned)
        spec = replace(spec, likelihood=replace(spec.likelihood, wide=wide))
    new = Posterior(spec, tensors)
    groups = split.held_out(old.architecture.members) if enough else [HeldOut(split.training, None)]
    calibrating = range(0 if split.folds is not None else 1, len(groups)) if enough else ()
    _, before = calibrate_and_score(old, rows.encoded, rows.targets, groups, calibrating=())
    conformal, after = calibrate_and_score(new, rows.encoded, rows.targets, groups, calibrating=calibrating)
    calibration = "none" if spec.calibration is None else "kept"
    if conformal is not None:
        spec, calibration = replace(spec, calibration=conformal), "made anew"
    if enough:
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
        "held_out": enough,
        "calibration": calibration,
        "before": _scores(before),
        "after": _scores(after),
        "epochs": outcome.epochs,
        "best_epoch": outcome.best_epoch,
        "stopped": outcome.stopped,
        "interrupted": outcome.stopped == "interrupted",
        "temperature": temperature_of(revision.spec, enough),
        "learning_rate": options.learning_rate,
        "seed": seed,
        "seconds": round(time.monotonic() - began, 3),
    }
    spec = replace(spec, records={**spec.records, "update": facts})
    return Updated(Revision(tensors, Posterior(spec, tensors)), shift, before, after, enough, calibration)


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


def _scores(report: dict[str, Any]) -> dict[str, float]:
    return {name: report[name] for name in ("nll", "crps", "rmse")}
