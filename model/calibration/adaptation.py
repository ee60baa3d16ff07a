"""Bands that follow outcomes: what a model's newest outcomes say of its calibrated answers, and the map that follows.

Each outcome has a normal score under the checkpoint's calibration, ``z = Phi^-1(F(y))``, standard normal while the
model is right. If the world changes, scores shift and spread. The newest of them make a second map, from nominal scores
to such scores, and the checkpoint's calibration comes after it. So a band moves to where outcomes are now, and each row
keeps the shape of its own predictive. Without outcomes the second map is the identity.

rolling
    Conformal quantiles of the newest scores, all alike, once there are ten.
adaptive
    *Shift and scale* at once, from the first outcome on: the weighted median of the scores, and their spread about it,
    both held by a prior (one outcome at 0; eight of spread 1). Scores standardised by them, of weights that halve every
    `HALF_LIFE` outcomes, and few points of a standard normal make a conformal map (Tibshirani et al. 2019). So bands
    move before they widen. *Levels* that the 5 % tails aim at follow the misses of answers that were given, each tail
    by itself (adaptive conformal inference: Gibbs and Candes 2021, doi:10.48550/arXiv.2106.00170):
    ``a += rate * (0.05 - missed)``. All levels of a side are stretched as its tail is. Outcomes that come D outcomes
    late answer to the levels of D outcomes ago. So the rate is at most ``DELAYED / D``, or levels would swing.

The median of many outcomes is right, each alone may be wrong: neither map moves far for a single odd one. An outcome
counts at most as one of `STEP` standard deviations in the answer that it belongs to, so a world that has changed by
more is followed in steps, as answers with newer bands come true.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from scipy.special import ndtri

from murho.model.calibration.conformal import ConformalMap, fit_conformal_map
from murho.model.json_validation import MisfitError, Stored

Doubles = NDArray[np.float64]

AdaptationMethod: TypeAlias = Literal["rolling", "adaptive"]

KEPT = 500
"""Scores that are kept: the newest."""
DIGITS = 4
HALF_LIFE = 150.0
PRIOR_OUTCOMES = 1.0
"""Outcomes at score 0 that the shift is held by."""
PRIOR_SPREADS = 8.0
"""Outcomes of spread 1 that the scale is held by."""
POINTS = 20
"""Points of a standard normal beside the standardised scores."""
TAIL = 0.05
NORMAL_TAIL = -1.6448536269514722
"""Its normal score."""
LEVELS = (0.001, 0.25)
"""Least and largest level that a tail may aim at."""
RATE, DELAYED = 0.002, 0.05
FURTHEST = 8.0
"""Largest size of a score."""
STEP = 3.0
"""Largest size of a score in the answer that was given: so far one outcome reaches beyond the bands it had."""


@dataclass(frozen=True)
class Adaptation(Stored):
    """What has been learned from the outcomes of one model's version.

    Attributes:
        method: ``rolling`` or ``adaptive``.
        outcomes: Number of outcomes so far.
        scores: Normal scores of the newest, under the checkpoint's calibration; the newest last.
        tails: Levels that the lower and the upper 5 % tail aim at.
    """

    method: AdaptationMethod
    outcomes: Annotated[int, Field(ge=0)] = 0
    scores: tuple[float, ...] = ()
    tails: tuple[float, float] = (TAIL, TAIL)

    def __post_init__(self) -> None:
        """Raise a `MisfitError` if there are more scores than are kept, or a level is out of its limits."""
        if len(self.scores) > min(KEPT, self.outcomes):
            raise MisfitError("scores", f"at most {KEPT} numbers, one an outcome", len(self.scores))
        if not all(LEVELS[0] <= level <= LEVELS[1] for level in self.tails):
            raise MisfitError("tails", f"two levels from {LEVELS[0]} to {LEVELS[1]}", self.tails)

    def by(self, method: AdaptationMethod) -> Adaptation:
        """Return the same outcomes, learned from by a method from now on."""
        return self if method == self.method else replace(self, method=method)

    def update(self, pits: Doubles, then: Adaptation | None, kept: Doubles | None = None) -> Adaptation:
        """Take in outcomes of answers that were given with the same state.

        Args:
            pits: Of the outcomes in the answers that were given, ``[T]``, in order.
            then: The state that made these answers; None: they had the checkpoint's calibration.
            kept: Normal scores whose percentiles alone were kept of the answers, rising; PITs go straight between them.
                None: PITs are those of the answers themselves.
        """
        most = FURTHEST if self.method == "rolling" else STEP  # quantiles go by order, whatever the sizes are
        scores = torch.from_numpy(ndtri(pits)).clamp(-most, most)
        tails = self.tails
        if then is not None and (moved := then.drift_map) is not None:
            if kept is not None:
                reached = moved.calibrate(torch.from_numpy(kept))
                moved = ConformalMap(tuple(kept.tolist()), tuple(reached.tolist()), moved.rows)
            scores = moved.calibrate(scores).clamp(-FURTHEST, FURTHEST)
            # One by one: how outcomes are told, alone or many at a time, changes nothing.
            for late, pit in enumerate(pits.tolist(), start=self.outcomes - then.outcomes):
                rate = min(RATE, DELAYED / max(1, late))
                lower, upper = (
                    level + rate * (TAIL - missed)
                    for level, missed in zip(tails, (pit < TAIL, pit > 1.0 - TAIL), strict=True)
                )
                tails = (min(max(lower, LEVELS[0]), LEVELS[1]), min(max(upper, LEVELS[0]), LEVELS[1]))
        newest = (*self.scores, *np.round(scores.numpy(), DIGITS).tolist())[-KEPT:]
        return replace(self, outcomes=self.outcomes + len(pits), scores=newest, tails=tails)

    @cached_property
    def drift_map(self) -> ConformalMap | None:
        """From nominal scores to scores under the checkpoint's calibration; None for too few outcomes."""
        scores = np.array(self.scores)
        if self.method == "rolling" or not len(scores):
            return fit_conformal_map(scores)
        weights = 0.5 ** (np.arange(len(scores))[::-1] / HALF_LIFE)
        total, order = weights.sum(), np.argsort(scores)
        middle = scores[order][np.searchsorted(np.cumsum(weights[order]), 0.5 * total)]
        shift = middle * total / (total + PRIOR_OUTCOMES)
        scale = np.sqrt((PRIOR_SPREADS + weights @ (scores - shift) ** 2) / (PRIOR_SPREADS + total))
        points = ndtri((np.arange(POINTS) + 0.5) / POINTS)
        standard = np.concatenate([(scores - shift) / scale, points])
        fitted = fit_conformal_map(standard, weights=np.concatenate([weights, np.ones(POINTS)]))
        if fitted is None:
            return None
        # A tail that aims at level a reaches for the nominal 5 % as far as an untouched one for a.
        lower, upper = ndtri(self.tails) / NORMAL_TAIL
        nominal = np.array(fitted.nominal)
        nominal = np.where(nominal < 0.0, nominal / lower, nominal / upper)
        observed = shift + scale * np.array(fitted.observed)
        return ConformalMap(tuple(nominal.tolist()), tuple(observed.tolist()), fitted.rows)
