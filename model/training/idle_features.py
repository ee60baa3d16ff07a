"""Idle features: members do without features that tell nothing.

Idle features are those whose shuffling does not make held-out answers worse: among few rows and many features a network
fits targets to features that say nothing. After the first trial each feature is shuffled among the held-out rows, as
for permutation importance (Breiman 2001, "Random forests"), and the answers are scored again. For a member, a feature
is idle unless this makes answers worse by more than half a standard error, over the rows that this member learns from:
no member is chosen by the rows that it judges. So members may differ in what they read.

A trial without idle features is kept if it is better by more than one standard error and by 0.05 nats; then it is
judged in turn. A feature that trials do not need may still help longer fits, which are more exact: where features are
few for the rows, too little is gained, and they stay. When nothing is gained any more, the same is tried with features
that make answers worse by less than one standard error. What is left of the idle features then goes with the targets of
these very rows by chance, and flatters their scores. So at last members do without all that make answers worse by less
than 1.5 standard errors, unless this is worse by more than one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from murho.model.bbb.fit import Fit
from murho.model.bbb.fit_rows import Rows
from murho.model.seeds import seed_for
from murho.model.training.candidate_fits import CandidateFits
from murho.model.training.candidates import (
    MOST_CELLS,
    NARROW,
    ROWS_A_FEATURE,
    TRIAL,
    Attempt,
    Candidate,
    has_few_rows,
)
from murho.model.training.scoring import mean_and_error, paired_difference, row_differences

LEAST_IMPORTANCE = (0.5, 1.0)
"""Harm of shuffling below which a feature is idle: first the lower one. The first trial among many idle features has
hardly learned some that act together, and at 1 these were lost."""
LAST_IMPORTANCE = 1.5
"""Harm below which a feature is idle at last, if others have been left out."""
FEWEST_SHUFFLES, MOST_SHUFFLES = 2, 10
"""Shuffles of a feature: their mean has less of the noise of a single shuffle."""
CLEAR = 2.0
"""Harm from which a feature is not shuffled any more."""
SHOWN_NAMES = 10
"""Names of features in a note."""


def without_idle_features(
    fits: CandidateFits, first: Candidate, incumbent: Attempt, fit: Fit | None
) -> tuple[Attempt, Fit | None]:
    """Try a candidate without its idle features, if features are many, as long as this makes it better.

    Args:
        fits: Makes the fits.
        first: The candidate.
        incumbent: Its trial, whose candidate has the temperature that it found.
        fit: Its fit; None if it failed.

    Returns:
        The best trial, and its fit.
    """
    judged: Attempt | None = None
    importance: dict[str, Tensor] = {}
    rows, features = len(fits.data.split.training), len(fits.data.schema.features)
    many = rows < ROWS_A_FEATURE * features and has_few_rows(rows, features)
    for least in (*LEAST_IMPORTANCE, LAST_IMPORTANCE) if many else ():
        last = least == LAST_IMPORTANCE
        while fit is not None and not (fits.interrupted or fits.plan.late):
            if last and not incumbent.candidate.unread:
                break
            if judged is not incumbent:
                judged, importance = incumbent, shuffling_importance(fits, incumbent, fit)
            tried = replace(incumbent.candidate, temperature=first.temperature)
            candidate = _without(fits, tried, importance, least)
            if candidate.unread in {attempt.candidate.unread for attempt in fits.attempts}:
                break
            fits.plan.add(TRIAL)
            attempt, outcome = fits.fit(candidate, TRIAL)
            if attempt.rows is None or incumbent.rows is None:
                break
            difference, error = paired_difference(attempt.rows, incumbent.rows)
            if difference > (error if last else -max(error, NARROW)):
                break
            incumbent, fit = attempt, outcome
            if last:
                break
    return incumbent, fit


def shuffling_importance(fits: CandidateFits, attempt: Attempt, outcome: Fit) -> dict[str, Tensor]:
    """How much worse the answers of a fit are for each held-out row, ``[N]``, where a feature is shuffled, by its name.

    Each feature's own inputs are shuffled together. Those for the distance to the training rows stay as they are, so
    that a shuffled row does not count as unlike the others. A feature that no member reads is left out.

    Args:
        fits: Has made the fit.
        attempt: Its candidate and scores.
        outcome: The fit.
    """
    candidate, data = attempt.candidate, fits.data
    _, rows = data.rows(candidate.inputs, candidate.transform)
    unread = candidate.inputs.unread_by_all
    columns = {
        name: where
        for name, where in data.encoder(candidate.inputs).columns_of.items()
        if where.stop > where.start and name not in unread
    }
    scores = fits.row_scores(candidate, outcome, rows)
    most = max(1, min(MOST_SHUFFLES, MOST_CELLS // (len(rows) * len(columns))))
    generator = torch.Generator().manual_seed(seed_for(fits.options.seed, "shuffles"))
    importance: dict[str, Tensor] = {}
    for name, where in columns.items():
        shuffled = torch.zeros_like(scores)
        for number in range(1, most + 1):
            features = rows.features.clone()
            features[:, where] = features[torch.randperm(len(rows), generator=generator)][:, where]
            shuffled += fits.row_scores(candidate, outcome, replace(rows, features=features))
            importance[name] = row_differences(shuffled / number, scores)
            if number >= FEWEST_SHUFFLES and _importance_z(importance[name]) > CLEAR:
                break
    return importance


def idle_by_member(importance: Mapping[str, Tensor], rows: Rows, members: int, least: float) -> list[set[str]]:
    """Return the features that are idle for each member, by the rows that it learns from.

    Args:
        importance: What `shuffling_importance` returned.
        rows: The held-out rows, N.
        members: M.
        least: Harm of a feature that is not idle, standard errors of the mean over the rows.

    Returns:
        M sets of names; an empty one for a member that learns from no held-out row.
    """
    seen = rows.seen_by(members)
    counts = seen.counts if len(seen.counts) == members else seen.counts * members
    found = []
    for numbers, count in zip(seen.rows.expand(members, -1), counts, strict=True):
        own = numbers[:count]
        idle = {name for name, of_rows in importance.items() if count > 1 and _importance_z(of_rows[own]) <= least}
        found.append(idle)
    return found


def _without(fits: CandidateFits, candidate: Candidate, importance: Mapping[str, Tensor], least: float) -> Candidate:
    """Return the candidate whose members do without further features; a member that would read none stays as it was."""
    names = [feature.name for feature in fits.data.schema.features]
    _, rows = fits.data.rows(candidate.inputs, candidate.transform)
    idle = idle_by_member(importance, rows, fits.options.members, least)
    unread = []
    for found, before in zip(idle, map(set, candidate.unread or [()] * len(idle)), strict=True):
        gone = before if found | before >= set(names) else found | before
        unread.append(tuple(name for name in names if name in gone))
    return replace(candidate, unread=tuple(unread) if any(unread) else ())


def _importance_z(values: Tensor) -> float:
    """Return the mean over rows in standard errors of it; 0 where all are 0."""
    mean, error = mean_and_error(values)
    return mean / error if error > 0.0 else math.copysign(math.inf, mean) if mean else 0.0


def note_of_unread(unread: Sequence[str], features: int) -> str:
    """Return what to tell people about features that answers do not depend on.

    Args:
        unread: Their names.
        features: How many features the table has.
    """
    shown = ", ".join(map(repr, unread[:SHOWN_NAMES])) + (", …" if len(unread) > SHOWN_NAMES else "")
    return (
        f"answers do not depend on {len(unread)} of {features} features, which told nothing on held-out rows: {shown} "
        "(--idle-features keep: they do)"
    )
