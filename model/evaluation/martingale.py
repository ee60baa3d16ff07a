"""An anytime-valid test of whether outcomes still come as the held-out rows did.

The PIT of an outcome is ``u = F(y)``, its place in the calibrated predictive of its row. While the model is right,
PITs are uniform. A *betting function* f is a density on (0, 1): who bets with it multiplies a capital of 1 by ``f(u)``
at each outcome. Under uniform PITs the capital is a martingale. It ever reaches ``1 / alpha`` with probability alpha at
most (Ville's inequality; Vovk, Gammerman and Shafer 2022, "Algorithmic learning in a random world", part III). So the
test may be looked at after every outcome, and goes on for ever.

The capital here is spread over

- *bets*: the density of ``N(m, s^2)`` to ``N(0, 1)`` at ``z = Phi^-1(u)``: outcomes too high or low, too far or near;
- *starts*: a bet from outcome k on has the share ``G(k - 1) - G(k)`` of ``G(k) = log a / log(a + k)``. A model that
  was right for long costs a late bet little more than ``log k`` nats (a mixture over change points, as in Shin, Ramdas
  and Rinaldo 2022, "E-detectors", doi:10.51387/23-NEJSDS51, but with a limit of false alarms for ever).

A map of n held-out rows is not exact: PITs are uniform only to about ``1 / sqrt(n)``, and of many outcomes that would
raise an alarm. Hence the test bets on the ranks of PITs among the n held-out rows, which lie evenly by construction of
the map, and all earlier outcomes: conformal p-values, uniform if outcomes are *exchangeable* with the held-out rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import numpy as np
import torch
from pydantic import Field

from murho.model.json_validation import MisfitError, Stored

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Doubles = NDArray[np.float64]

__all__ = ["Alarm", "PitMartingale"]

BETS = (
    *((mean, 1.0) for mean in (-1.2, -0.6, -0.2, 0.2, 0.6, 1.2)),
    *((0.0, std) for std in (0.5, 0.8, 1.25, 1.7)),
    *((mean, 1.6) for mean in (-1.2, 1.2)),
)
"""Mean and standard deviation of the normal scores that a bet expects."""
LEAST_START = 100.0
"""a: starts count from here, so that none of the first is worth much more than the others."""
FALSE_ALARMS = 0.005
"""alpha: the probability of ever raising an alarm over exchangeable outcomes is no larger."""
BINS = 64
"""Equal bins of PITs whose counts tell ranks; PITs of a bin count as evenly spread in it."""
LEAST_LEVEL = 1e-6
"""No p-value counts as further out."""
BLOCK = 4_096
"""Outcomes at a time."""


@dataclass(frozen=True)
class Alarm(Stored):
    """What raised an alarm.

    Attributes:
        outcomes: Number of outcomes when it was raised.
        since: Number of outcomes before the model went wrong, as the winning bet has it.
    """

    outcomes: Annotated[int, Field(ge=1)]
    since: Annotated[int, Field(ge=0)]


@dataclass
class PitMartingale(Stored):
    """The test of one stream of outcomes; as a `Stored` part, it goes on from its JSON.

    Attributes:
        rows: n, held-out rows behind the calibration; None: PITs are tested for being uniform, not exchangeable.
        outcomes: Number of outcomes so far.
        alarm: The first alarm; it stays.
        bets: Log of the capital of each bet, which has begun before the next outcome.
        starts: Number of outcomes before each bet's most successful part began.
        best: Log of the capital of that part.
        bins: Outcomes in each bin of PITs; empty without ``rows``.
    """

    rows: Annotated[int, Field(ge=1)] | None = None
    outcomes: Annotated[int, Field(ge=0)] = 0
    alarm: Alarm | None = None
    bets: list[float] = field(default_factory=lambda: _log_share(np.zeros(len(BETS))).tolist())
    starts: list[int] = field(default_factory=lambda: [0] * len(BETS))
    best: list[float] = field(default_factory=lambda: _log_share(np.zeros(len(BETS))).tolist())
    bins: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Raise a `MisfitError` unless there is a capital for each bet, and a count for each bin."""
        self.bins = self.bins or [0] * (BINS if self.rows else 0)
        for name, values, size in (
            ("bets", self.bets, len(BETS)),
            ("starts", self.starts, len(BETS)),
            ("best", self.best, len(BETS)),
            ("bins", self.bins, BINS if self.rows else 0),
        ):
            if len(values) != size:
                raise MisfitError(name, f"{size} numbers", values)

    @property
    def log_value(self) -> float:
        """Log of the capital; 0 at the beginning, in nats."""
        return float(np.logaddexp.reduce([*self.bets, float(_log_kept(np.array(self.outcomes + 1.0)))]))

    def update(self, pits: ArrayLike) -> None:
        """Take in the PITs of further outcomes, in their order.

        Args:
            pits: One, or ``[T]``, from 0 to 1. Where a target repeats values, a PIT is drawn evenly from the step of
                the distribution function.

        Raises:
            ValueError: A PIT is not from 0 to 1.
        """
        values = np.atleast_1d(np.asarray(pits, dtype=np.float64))
        if not np.all((values >= 0.0) & (values <= 1.0)):
            raise ValueError("PITs are from 0 to 1")
        for start in range(0, len(values), BLOCK):
            self._bet(torch.special.ndtri(torch.from_numpy(self._levels(values[start : start + BLOCK]))).numpy())

    def _levels(self, pits: Doubles) -> Doubles:
        """Conformal p-values of further outcomes, ``[T]``, which count among the earlier ones."""
        if self.rows is None:
            return pits.clip(LEAST_LEVEL, 1.0 - LEAST_LEVEL)
        place = np.minimum((pits * BINS).astype(int), BINS - 1)
        mine = np.arange(BINS) == place[:, None]
        after = np.array(self.bins) + np.cumsum(mine, axis=0)
        self.bins = after[-1].tolist()
        earlier = np.concatenate([np.zeros((len(pits), 1)), np.cumsum(after - mine, axis=1)], axis=1)
        below, count = earlier[np.arange(len(pits)), place], after[np.arange(len(pits)), place]
        units = self.rows + self.outcomes + np.arange(1.0, len(pits) + 1.0)
        # A share of the held-out rows, all of the earlier outcomes of lower bins, and a share of those of its own.
        levels: Doubles = (self.rows * pits + below + (pits * BINS - place) * count) / units
        least = np.maximum(0.5 / units, LEAST_LEVEL)
        return levels.clip(least, 1.0 - least)

    def _bet(self, scores: Doubles) -> None:
        """Bet on the normal scores of p-values, ``[T]``."""
        means, stds = np.array(BETS).T
        gains = 0.5 * (scores[:, None] ** 2 - ((scores[:, None] - means) / stds) ** 2) - np.log(stds)
        gained = np.concatenate([np.zeros((1, len(BETS))), np.cumsum(gains, axis=0)])  # [T + 1, bets]
        count = self.outcomes + np.arange(1.0, len(scores) + 1.0)
        begun = _log_share(count)[:, None] - gained[1:]  # worth of what begins after an outcome, had it begun at first
        capital = np.logaddexp.accumulate(np.concatenate([[self.bets], begun])) + gained
        values = np.logaddexp(np.logaddexp.reduce(capital[1:], axis=1), _log_kept(count + 1.0))
        best = np.maximum.accumulate(np.concatenate([[self.best], begun]))
        since = np.where(best[1:] > best[:-1], count[:, None].astype(int), self.starts)
        starts = np.maximum.accumulate(np.concatenate([[self.starts], since]))
        if self.alarm is None and (raised := np.flatnonzero(values >= -math.log(FALSE_ALARMS))).size:
            first = int(raised[0]) + 1
            self.alarm = Alarm(self.outcomes + first, int(starts[first, capital[first].argmax()]))
        self.outcomes += len(scores)
        self.bets, self.best, self.starts = capital[-1].tolist(), (best + gained)[-1].tolist(), starts[-1].tolist()


def _log_kept(outcomes: Doubles) -> Doubles:
    """Log of the share of the capital in bets that begin after so many outcomes."""
    kept: Doubles = np.log(math.log(LEAST_START) / np.log(LEAST_START + outcomes))
    return kept


def _log_share(outcomes: Doubles) -> Doubles:
    """Log of the share of one bet that begins after so many outcomes."""
    shares: Doubles = np.log(np.exp(_log_kept(outcomes)) - np.exp(_log_kept(outcomes + 1.0))) - math.log(len(BETS))
    return shares
