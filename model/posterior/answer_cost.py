"""What an answer costs, before it is computed: the time of its parts, in units of a row and draw of a plain answer.

A plain answer has mean, std and three percentiles of rows like the training rows. The constants are nanoseconds of
processor time on one machine. Only their ratios count: the caller learns how long a unit takes. Costs are within a
factor of three of the time, for options as far apart as a hundred levels far out, a hundred thresholds and new draws
(``python -m benchmarks.answer_cost`` prints both side by side).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from murho.model.encoding.imputation import IMPUTATIONS

if TYPE_CHECKING:
    from murho.model.engines.prediction import PredictOptions

__all__ = ["COMPILED", "TORCH", "CostModel", "Rates"]

WEIGHT, UNIT = 0.03, 0.4
"""The network under one draw for one row: for each weight, and for each hidden unit's activation."""
MIRRORED_NUMBER = 10.0
"""A weight of a new draw's mirror image."""
QUESTION, PASS_ROW = 100_000.0, 4_000.0
"""What an answer takes besides its rows, and what a row takes besides its draws: encoding and its arrays."""
COPY = 2_000.0
"""What each imputed copy of a row takes besides its draws."""
SORTED, FUNCTION_THRESHOLD = 10.0, 2.5
"""A draw of a row, to sort or to list it, and to compare it with a threshold."""
ERROR, ERROR_LEVEL = 70.0, 36.0
"""Standard errors of a draw of a row, for each component: of mean and std, and of each level."""
PLAIN_LEVELS = 3
EXTREME_LEVEL = 1e-3
"""Percentile levels this near to 0 or 100 are searched in double precision."""


@dataclass(frozen=True, slots=True)
class Rates:
    """What an engine takes for one component of one draw of a row.

    Attributes:
        shared: What a pass takes whatever it has, once for all questions in it.
        moments: Mean and standard deviations.
        plain: The levels of a plain answer, with those behind the calibrated standard deviation.
        level: A further level.
        extreme: A level far out.
        threshold: A threshold.
        number: A weight of a new draw: 4 to 16 ns by compiled code, the more the newer the memory for it is.
        far: What a row beyond the training range adds.
    """

    shared: float
    moments: float
    plain: float
    level: float
    extreme: float
    threshold: float
    number: float
    far: float


COMPILED = Rates(
    shared=500_000.0, moments=25.0, plain=20.0, level=1.6, extreme=8.0, threshold=2.0, number=8.0, far=250.0
)
TORCH = Rates(
    shared=1_500_000.0, moments=60.0, plain=490.0, level=30.0, extreme=90.0, threshold=45.0, number=30.0, far=1500.0
)


@dataclass(frozen=True, slots=True)
class CostModel:
    """The sizes of a posterior that costs depend on.

    Attributes:
        weights: Weights of one draw.
        units: Its hidden units.
        components: K, the components of the noise of one draw.
        members: M.
        rates: Those of the engine.
    """

    weights: int
    units: int
    components: int
    members: int
    rates: Rates

    @property
    def unit(self) -> float:
        """Nanoseconds of one row and draw of a plain answer."""
        return self._network + self.components * (self.rates.moments + self.rates.plain)

    @property
    def shared(self) -> float:
        """The part of `cost` that questions in one pass share, in the same units."""
        return self.rates.shared / self.unit

    @property
    def _network(self) -> float:
        return WEIGHT * self.weights + UNIT * self.units

    def cost(self, rows: int, options: PredictOptions, *, new_draws: int, imputed: int, far: int) -> float:
        """The cost of an answer, in plain rows times draws of this posterior.

        Args:
            rows: B.
            options: Options of the request.
            new_draws: Draws to be made for it.
            imputed: Rows with cells to impute, of the B.
            far: Rows beyond the training range, of the B.
        """
        samples = options.samples or self.members
        nanoseconds = (
            self.rates.shared
            + QUESTION
            + far * samples * (self._network + self.components * self.rates.far)
            + new_draws * self.weights * self.rates.number
        )
        if options.samples == 0:
            return (nanoseconds + self._without_draws(rows, imputed)) / self.unit
        nanoseconds += PASS_ROW * rows + imputed * IMPUTATIONS * COPY
        nanoseconds += rows * samples * (self._network + self._answer(options))
        if options.mc_error:
            levels = len(options.percentiles)
            of_errors = (self.components if options.noise else 1) * (ERROR + ERROR_LEVEL * levels)
            nanoseconds += rows * samples * (self._network + of_errors)
            nanoseconds += new_draws * self.weights * MIRRORED_NUMBER
        return nanoseconds / self.unit

    def rows_without_draws(self, seconds: float, imputed: float) -> int:
        """Rows of an answer without draws that take so long by the constants of this module, at least one.

        Args:
            seconds: For these rows.
            imputed: Share of the rows with cells to impute.
        """
        return max(1, int(1e9 * seconds / self._without_draws(1.0, imputed)))

    def _without_draws(self, rows: float, imputed: float) -> float:
        """Time of the mu-only networks for rows: every imputed copy goes through all of them."""
        copies = rows + (IMPUTATIONS - 1) * imputed
        return PASS_ROW * rows + IMPUTATIONS * COPY * imputed + copies * self.members * self._network

    def _answer(self, options: PredictOptions) -> float:
        """Time of everything after the network, for one draw of a row."""
        rates, levels = self.rates, len(options.percentiles)
        time = SORTED if options.draws else 0.0
        if not options.noise:
            return time + self.components * rates.moments + SORTED + FUNCTION_THRESHOLD * len(options.thresholds)
        extreme = sum(min(level, 100.0 - level) < EXTREME_LEVEL for level in options.percentiles)
        of_component = rates.moments + rates.plain + rates.extreme * extreme
        of_component += rates.level * max(0, levels - extreme - PLAIN_LEVELS)
        return time + self.components * (of_component + rates.threshold * len(options.thresholds))
