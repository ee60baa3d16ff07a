"""Updating: the next version of a checkpoint, from new rows, with the old posterior as their prior.

mu and sigma of the weights hold what the earlier rows taught. With them as the prior, a fit to the new rows alone gives
the posterior of all rows, up to the approximation by independent Gaussians (`model.bbb.priors`). The earlier rows are
not needed. Weights with a small sigma stay, unless the new rows give strong evidence against them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from murho.model.bbb.fit import Fit, default_batch_size, fit
from murho.model.bbb.fit_rows import Rows
from murho.model.bbb.network import BayesianNetwork, learned_tensors, load_tensors, noise_tensors
from murho.model.bbb.priors import PosteriorPrior, gaussian_kl
from murho.model.bbb.schedule import FitOptions
from murho.model.checkpoint.posterior import Posterior
from murho.model.checkpoint.spec import ModelSpec
from murho.model.distributions.mixtures import WideRule
from murho.model.errors import OptionError
from murho.model.runtime import at_most_threads
from murho.model.seeds import seed_for
from murho.model.tables.splits import (
    FEWEST_ROWS_TO_CALIBRATE,
    MOST_HELD_OUT,
    HeldOut,
    Split,
    Units,
    folds_of,
    single_rows,
)
from murho.model.training.candidates import Reporter
from murho.model.training.options import UpdateOptions
from murho.model.training.revisions import LabelledRows, Revised, revise


def posterior_shift(old: Mapping[str, Tensor], new: Mapping[str, Tensor]) -> dict[str, float]:
    """How far a posterior has moved, from its tensors by name.

    Returns:
        ``kl``: ``KL(new || old)`` of all weights and biases of a member, nats, mean over members: the information
        gained from the new rows. ``moved``: share of the weights and biases whose mean moved more than one old sigma.
    """
    kl, moved = 0.0, []
    for name in (name.removesuffix("mu") for name in old if name.endswith(".mu")):
        means, scales = ([of[name + part].double().flatten(1) for of in (old, new)] for part in ("mu", "rho"))
        before, after = map(functional.softplus, scales)
        kl += float(gaussian_kl(means[1], after, means[0], before).mean())
        moved.append(((means[1] - means[0]).abs() > before).double().flatten())
    return {"kl": kl, "moved": float(torch.cat(moved).mean())}


FEWEST_ROWS_TO_HOLD_OUT = 10
"""With fewer new rows than this, all members learn from all rows, and the calibration stays unchanged."""
ROWS_FOR_ONE_HELD_OUT = 7
"""A single member learns from all but one of so many rows; the others calibrate."""
ROWS_TO_JUDGE_A_TEMPERATURE = 25
"""New rows that tell half of what there is to know of the training's temperature."""

STEPS = 2000
"""Steps of an update. They are fewer than in a training, because the fit starts from the old posterior."""
FEWEST_EPOCHS = 20
ROWS_TIMES_DRAWS = 256
MOST_DRAWS = 8
"""A step with a small minibatch takes several draws per row, up to 256 rows times draws and up to eight draws. It takes
no longer than a step with a large minibatch, and the scales of the weights are less noisy."""


def split_new_rows(count: int, seed: int, members: int, units: Units | None = None) -> Split:
    """Split new units so that each is held out from some members, or one in seven from the only one.

    Several members are cross-fitted, as in a training. In every block of F rows, one is in each of the F folds. So a
    further row leaves the folds of the others as they are. Below 10 rows, or two for each fold, none is held out.
    """
    units, rows = units or single_rows(count), np.arange(count)
    folds = folds_of(members) if members > 1 else ROWS_FOR_ONE_HELD_OUT
    if count < max(FEWEST_ROWS_TO_HOLD_OUT, 2 * folds if members > 1 else 0):
        return Split(rows, rows, rows[:0])
    # Units in the order of their first rows, so that a further row changes no other's number.
    _, first, of_rows = np.unique(units.of_rows, return_index=True, return_inverse=True)
    numbers, partitions = first.argsort().argsort()[of_rows.reshape(-1)], []
    for partition in range(2 if members % (2 * folds) == 0 else 1):
        generator = np.random.Generator(np.random.PCG64(seed_for(seed, f"folds {partition}")))
        blocks = [generator.permutation(folds) for _ in range(math.ceil(units.count / folds))]
        partitions.append(np.concatenate(blocks)[numbers])
    if members == 1:
        learned, held_out = rows[partitions[0] > 0], rows[partitions[0] == 0]
        return Split(learned, learned, held_out[:MOST_HELD_OUT], units=units)
    judged = np.random.Generator(np.random.PCG64(seed)).permutation(count)[:MOST_HELD_OUT]
    return Split(rows, judged, judged, np.stack(partitions), units=units)


def temperature_of(spec: ModelSpec, rows: int) -> float:
    """Factor of the KL in an update with n new rows: from 1 for few rows to the training's, by the same ratio a step.

    The training's temperature t gives old and new rows the same weight. But rows show that a factor below 1 helps only
    where they are many: with it, each of a handful of rows would count as several. So the factor is ``t^w`` with
    ``w = n^2 / (n^2 + 25^2)``.
    """
    share = rows**2 / (rows**2 + ROWS_TO_JUDGE_A_TEMPERATURE**2)
    return float(spec.temperature**share)


def fit_to_new_rows(
    old: Posterior,
    rows: LabelledRows,
    split: Split,
    options: UpdateOptions,
    *,
    seed: int,
    reporter: Reporter,
    device: str = "cpu",
) -> Fit:
    """Fit to new rows from a version's parameters, with its posterior as the prior at full weight from the first step.

    All epochs are run, and the last parameters are kept, with a learning rate that has fallen to nothing: held-out rows
    that decide when to stop would make the outcome of a few rows more depend on chance. A learned noise of a single
    value has no prior in the weights; it remembers the earlier rows by their number.
    """
    spec, target = old.spec, torch.device(device)
    likelihood = spec.likelihood.make(spec.architecture.members)
    likelihood.learn_target(spec.target)
    network = BayesianNetwork(spec.architecture, torch.Generator())
    load_tensors(network.named_tensors() | noise_tensors(likelihood), old.tensors)
    features, targets = torch.from_numpy(rows.encoded.inputs), rows.standardise_targets(old)
    folds = None if split.folds is None else torch.from_numpy(split.folds)

    def part(numbers: np.ndarray) -> Rows:
        return Rows(features[numbers], targets[numbers], None if folds is None else folds[:, numbers])

    training = part(split.training)
    likelihood.remember(spec.rows_learned / training.seen_by(spec.architecture.members).longest)
    batch_size = default_batch_size(len(training))
    fit_options = FitOptions(
        draws_per_step=int(np.clip(ROWS_TIMES_DRAWS // min(len(training), batch_size), 1, MOST_DRAWS)),
        learning_rate=options.learning_rate,
        batch_size=batch_size,
        epochs=options.epochs or max(FEWEST_EPOCHS, STEPS // math.ceil(len(training) / batch_size)),
        patience=None,
        warm_up_steps=0,
        temperature=temperature_of(spec, len(rows)),
        seed=seed,
    )
    prior = PosteriorPrior(network.mu.detach().clone().to(target), network.sigma().detach().to(target))
    reporter.begin(f"update of version {old.version}")
    try:
        return fit(
            network,
            likelihood,
            prior,
            training,
            part(split.validation),
            fit_options,
            device=target,
            progress=reporter,
        )
    finally:
        reporter.end()


@at_most_threads()
def update(
    old: Posterior,
    rows: LabelledRows,
    options: UpdateOptions,
    *,
    reporter: Reporter,
    device: str = "cpu",
) -> Revised:
    """Learn from new rows with a version's posterior as the prior.

    Schema, encoding and standardisation of the version stay, because its weights are only valid with them. From 10 new
    rows on, they are held out and cross-fitted as in a training, and pooled with the rows behind the calibration. From
    50 rows on, a version without calibration gets one, and the held-out metrics are those of the new rows. All else
    changes little with one row more, whatever their number.

    Args:
        old: The version to update; it is not changed.
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
    if "pruning" in old.spec.records:
        raise OptionError(
            f"version {old.version} of {old.name!r} was pruned, and weights that are gone can't learn: update the "
            f"version it was made from (--version {old.spec.records['pruning'].get('from_version', 'V')}), then prune "
            "the outcome"
        )
    seed, members = old.seed if options.seed is None else options.seed, old.architecture.members
    split = split_new_rows(len(rows), seed, members, rows.units)
    learned, rows_before = len(split.training), old.spec.rows_learned
    held_out = len(split.calibration) > 0
    if not held_out:
        reporter.say(
            f"{len(rows)} new rows are too few to hold any out: all are learned from, and the calibration stays"
        )
    elif split.folds is not None:
        reporter.say(f"new {split.describe()}")
    else:
        reporter.say(f"new rows: {learned} learned from, {len(split.calibration)} held out")
    outcome = fit_to_new_rows(old, rows, split, options, seed=seed, reporter=reporter, device=device)
    interrupted = outcome.stopped == "interrupted"
    if interrupted:
        reporter.say(f"interrupted: kept the best parameters so far (epoch {outcome.best_epoch})")

    likelihood, tensors = old.spec.likelihood, learned_tensors(outcome.network, outcome.likelihood)
    spec = old.spec.stamp(
        likelihood=replace(
            likelihood,
            wide=None if likelihood.wide is None else WideRule.after(rows_before + learned, likelihood.wide.most),
            shares=None
            if likelihood.shares is None
            else likelihood.shares.after(rows_before, rows.targets[split.training]),
        )
    )
    groups = [HeldOut(split.calibration if held_out else split.training, None)]
    groups = groups if split.folds is None else split.held_out_groups(members)
    calibrating = held_out and (spec.calibration is not None or len(rows) >= FEWEST_ROWS_TO_CALIBRATE)
    facts = {
        "left_out_rows": rows.left_out,
        "learned_rows": learned,
        "total_rows": rows_before + learned,
        "outside": rows.outside,
        **posterior_shift(old.tensors, tensors),
        "held_out": held_out,
        "epochs": outcome.epochs,
        "best_epoch": outcome.best_epoch,
        "stopped": outcome.stopped,
        "interrupted": interrupted,
        "temperature": outcome.temperature,
        "learning_rate": options.learning_rate,
        "seed": seed,
        "seconds": round(time.monotonic() - began, 3),
    }
    revised = revise(
        old,
        Posterior(spec, tensors),
        "update",
        facts,
        rows,
        groups,
        calibrating=range(len(groups)) if calibrating else (),
        units=split.units,
        earlier=spec.calibration,
        history=outcome.history,
    )
    return revised if held_out else replace(revised, judged=None)
