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

PITs of exchangeable outcomes are not uniform: a calibration map of n held-out rows is right only to ``1 / sqrt(n)``. Of
many outcomes that would raise an alarm. Hence the test bets on ranks of PITs among held-out rows and earlier outcomes:
conformal p-values, which are uniform and independent if outcomes are *exchangeable* with the held-out rows
(`PitRanks`). What the map says of the ranks of held-out rows depends on its kind (`model.calibration.conformal`):

- the signed map puts the percentile of level p at the ``(n + 1) p``-th smallest of the held-out scores: one test, of
  ranks among held-out rows and outcomes;
- the symmetric map puts the central band of coverage c at the ``(n + 1) c``-th smallest of their sizes, and says
  nothing of their signs: one test of ``|2 u - 1|`` as above, and one of ranks among outcomes alone. Either has half of
  the capital, and may raise the alarm with it;
- without a map, and for classes, whose probabilities are calibrated but not conformal: ranks among outcomes alone. A
  model that is wrong from the first outcome on raises no alarm then, one that becomes wrong does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field
from scipy.special import ndtri

from murho.model.arrays import Doubles
from murho.model.evaluation.recorded import SHARES
from murho.model.json_validation import Count, MisfitError, Positive, Share, Stored

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
FAR_OUT = np.array([1e-8, 1e-7, 1e-6, 1e-5, 1e-4])
"""Levels further out than those of a recorded prediction, on either side."""
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
    since: Count


def _bin_edges(*, central: bool) -> Doubles:
    """Where the bins of outcomes meet: at the levels that a recorded prediction has, and further out."""
    levels = np.unique(np.concatenate([SHARES, FAR_OUT, 1.0 - FAR_OUT]))
    return 1.0 - 2.0 * levels[levels < 0.5][::-1] if central else levels


@dataclass
class PitRanks(Stored):
    """Conformal p-values of PITs: ranks among held-out rows, in J bins, and among outcomes, in F finer ones.

    A p-value is the rank of an outcome's bin among all, and within it that among the outcomes there, which are
    exchangeable whatever held-out rows are like. Ties are broken by chance (Vovk, Gammerman and Shafer 2005, "smoothed"
    p-values).

    Attributes:
        edges: Where the bins of held-out rows meet, rising, ``[J - 1]``.
        rows: Held-out rows in each of their bins, as the odds of the first outcome, ``[J]``.
        outcomes: Earlier outcomes in each of the finer bins, ``[F]``.
        central: Whether bins are of ``|2 u - 1|``, the coverage of the central band that ends at an outcome.
    """

    edges: list[Share]
    rows: list[Positive]
    outcomes: list[Count]
    central: bool = False

    def __post_init__(self) -> None:
        """Raise a `MisfitError` unless there is a number for each bin."""
        fine = len(_bin_edges(central=self.central)) + 1
        for name, values, size in (("rows", self.rows, len(self.edges) + 1), ("outcomes", self.outcomes, fine)):
            if len(values) != size:
                raise MisfitError(name, f"{size} numbers", values)

    @classmethod
    def of_rows(cls, rows: int, *, central: bool) -> PitRanks:
        """Ranks among n held-out rows behind a conformal map, and outcomes.

        Args:
            rows: n.
            central: Whether the map is the symmetric one.
        """
        levels = _bin_edges(central=central)
        # Beyond the outermost of n rows the map goes on without evidence, and a prediction beyond its recorded levels.
        edges = levels[np.minimum(levels, 1.0 - levels) > max(1.0 / (rows + 1), SHARES[0]) - 1e-9]
        units = (rows + 1) * np.diff(edges, prepend=0.0, append=1.0)
        return cls(edges.tolist(), units.tolist(), [0] * (len(levels) + 1), central)

    @classmethod
    def of_outcomes(cls) -> PitRanks:
        """Ranks among outcomes alone: all that is known of held-out rows is that they are somewhere."""
        return cls([], [1.0], [0] * (len(_bin_edges(central=False)) + 1))

    def levels(self, pits: Doubles, places: Doubles) -> Doubles:
        """P-values of further outcomes, ``[T]``, which count among the earlier ones.

        Args:
            pits: ``[T]``.
            places: Uniform numbers, ``[T]``, which break ties.
        """
        fine_edges, values = _bin_edges(central=self.central), np.abs(2.0 * pits - 1.0) if self.central else pits
        fine, wide = (np.searchsorted(edges, values, side="right") for edges in (fine_edges, self.edges))
        first = np.concatenate([[0], np.searchsorted(fine_edges, self.edges) + 1, [len(self.outcomes)]])
        counted = np.arange(len(self.outcomes)) == fine[:, None]
        after = np.array(self.outcomes) + np.cumsum(counted, axis=0)
        self.outcomes = after[-1].tolist()
        each = np.arange(len(pits))
        earlier = np.concatenate([np.zeros((len(pits), 1)), np.cumsum(after - counted, axis=1)], axis=1)
        start, end = earlier[each, first[wide]], earlier[each, first[wide + 1]]
        below, same = earlier[each, fine] - start, earlier[each, fine + 1] - earlier[each, fine]
        within = (below + places * (same + 1.0)) / (end - start + 1.0)
        rows = np.concatenate([[0.0], np.cumsum(self.rows)])
        units = rows[wide + 1] - rows[wide] + end - start
        levels: Doubles = (rows[wide] + start + within * units) / (rows[-1] + earlier[:, -1])
        return levels.clip(LEAST_LEVEL, 1.0 - LEAST_LEVEL)


@dataclass
class PitMartingale(Stored):
    """The test of one stream of outcomes; as a `Stored` part, it goes on from its JSON.

    Attributes:
        ranks: What gives the p-values of each test; a test has its part of the capital.
        outcomes: Number of outcomes so far.
        alarm: The first alarm; it stays.
        bets: Log of the capital of each bet of each test, which has begun before the next outcome.
        starts: Number of outcomes before each bet's most successful part began.
        best: Log of the capital of that part.
    """

    ranks: list[PitRanks] = field(default_factory=lambda: [PitRanks.of_outcomes()])
    outcomes: Count = 0
    alarm: Alarm | None = None
    bets: list[float] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    best: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Raise a `MisfitError` unless there is a capital for each bet."""
        size = len(self.ranks) * len(BETS)
        if not self.outcomes:
            self.bets = self.best = _log_share(np.zeros(size), size).tolist()
            self.starts = [0] * size
        for name, values in (("bets", self.bets), ("starts", self.starts), ("best", self.best)):
            if len(values) != size:
                raise MisfitError(name, f"{size} numbers", values)

    @classmethod
    def of(cls, rows: int | None, *, central: bool = False) -> PitMartingale:
        """Return the test of a version's outcomes.

        Args:
            rows: n, held-out rows behind its conformal map; None: it has none.
            central: Whether the map is the symmetric one.
        """
        known = [] if rows is None else [PitRanks.of_rows(rows, central=central)]
        return cls([*known, *([PitRanks.of_outcomes()] if central or not known else [])])

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
            block = values[start : start + BLOCK]
            # The same numbers for the same outcomes, however these are split into blocks.
            places = [np.random.Generator(np.random.PCG64(k).advance(self.outcomes)) for k in range(len(self.ranks))]
            levels = [
                ranks.levels(block, each.random(len(block))) for ranks, each in zip(self.ranks, places, strict=True)
            ]
            self._bet(ndtri(np.stack(levels, axis=1)))

    def _bet(self, scores: Doubles) -> None:
        """Bet on the normal scores of p-values, ``[T, tests]``."""
        (count, tests), (means, stds) = scores.shape, np.array(BETS).T
        gains = 0.5 * (scores[..., None] ** 2 - ((scores[..., None] - means) / stds) ** 2) - np.log(stds)
        gained = np.cumsum(gains.reshape(count, -1), axis=0)
        gained = np.concatenate([np.zeros((1, gained.shape[1])), gained])  # [T + 1, bets]
        after = self.outcomes + np.arange(1.0, count + 1.0)
        # Worth of what begins after an outcome, had it begun at first.
        begun = _log_share(after, len(self.bets))[:, None] - gained[1:]
        capital = np.logaddexp.accumulate(np.concatenate([[self.bets], begun])) + gained
        values = np.logaddexp.reduce(capital[1:].reshape(count, tests, -1), axis=2)
        values = np.logaddexp(values, (_log_kept(after + 1.0) - math.log(tests))[:, None]).max(axis=1)
        best = np.maximum.accumulate(np.concatenate([[self.best], begun]))
        since = np.where(best[1:] > best[:-1], after[:, None].astype(int), self.starts)
        starts = np.maximum.accumulate(np.concatenate([[self.starts], since]))
        if self.alarm is None and (raised := np.flatnonzero(values >= -math.log(FALSE_ALARMS))).size:
            first = int(raised[0]) + 1
            self.alarm = Alarm(self.outcomes + first, int(starts[first, capital[first].argmax()]))
        self.outcomes += count
        self.bets, self.best, self.starts = capital[-1].tolist(), (best + gained)[-1].tolist(), starts[-1].tolist()


def _log_kept(outcomes: Doubles) -> Doubles:
    """Log of the share of the capital in bets that begin after so many outcomes."""
    return np.log(math.log(LEAST_START) / np.log(LEAST_START + outcomes))


def _log_share(outcomes: Doubles, bets: int) -> Doubles:
    """Log of the share of one of so many bets that begins after so many outcomes."""
    shares: Doubles = np.log(np.exp(_log_kept(outcomes)) - np.exp(_log_kept(outcomes + 1.0))) - math.log(bets)
    return shares
