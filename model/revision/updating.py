"""Updating: the next version of a checkpoint, from new rows, with the old posterior as their prior.

mu and sigma of the weights hold what the earlier rows taught. With them as the prior, a fit to the new rows alone gives
the posterior of all rows, up to the approximation by independent Gaussians (`model.networks.posterior_prior`). The
earlier rows are not needed. Weights with a small sigma stay, unless the new rows give strong evidence against them.
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
    """The outcome of an update.

    Attributes:
        revision: The new version, for `model.posterior.checkpoint.write_checkpoint`.
        shift: Shift of the posterior.
        before: Scores of the old version on the new rows, as
            `model.evaluation.cross_calibration.calibrate_and_score` returns them.
        after: Scores of the new version. If ``held_out``, each row is scored by members that have not learned from it.
        held_out: Whether new rows were held out. If not, ``after`` has scores on rows that the version has learned.
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
    """Learn from new rows with a version's posterior as the prior.

    Schema, encoding and standardisation of the version stay, because its weights are only valid with them. With 50 new
    rows or more, rows are held out and cross-fitted as in a training, and the bands are calibrated anew.

    Args:
        revision: The version to update; it is not changed.
        rows: The new rows.
        options: Options of the update.
        reporter: Gets the progress.
        device: Device of the fit.

    Raises:
        OptionError: The version was pruned.
        FitError: The fit became non-finite.
    """
    began = time.monotonic()
    old = revision.posterior
    _refuse_pruned(revision)
    seed = old.seed if options.seed is None else options.seed
    split = split_new_rows(rows, seed, old.architecture.members)
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
    conformal, after = calibrate_and_score(
        new, rows.encoded, rows.targets, groups, calibrating=calibrating, units=split.units
    )
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
