"""What an answer costs, known before it is computed, in units of a row and draw of a plain answer.

A plain answer has mean, std and three percentiles of rows like the training rows. The constants are nanoseconds of
processor time on one machine. Only their ratios count: the caller learns how long a unit takes. Costs are within a
factor of three of the time, for options as far apart as a hundred levels, a hundred thresholds and new draws (a test
holds them to it).
"""

from __future__ import annotations

from dataclasses import dataclass

from murho.model.predictive.prediction import PredictOptions

PASS, ROW, COPY = 600_000.0, 4_000.0, 2_000.0
"""Nanoseconds of a pass whatever it has, of a row besides its draws, and of each copy of a row with imputed cells."""
WEIGHT, NEW_WEIGHT = 0.04, 10.0
"""A weight of the network under one draw for one row; a weight of a new draw."""
COMPONENT, FURTHER, LISTED = 45.0, 2.0, 10.0
"""A component of the noise of one draw of a row: of a plain answer, and of each further level or threshold. A draw of a
row, to sort or to list it."""
PLAIN_LEVELS = 3


@dataclass(frozen=True, slots=True)
class AnswerCost:
    """The cost of one model's answers.

    Attributes:
        members: M of the network.
        weights: Number of weights of a draw.
        components: Components of the noise of a draw, times what they take longer on a slow engine.
        copies: Copies of a row with imputed cells.
    """

    members: int
    weights: int
    components: float
    copies: int

    def of(self, rows: int, options: PredictOptions, incomplete: int = 0, new_draws: int = 0) -> float:
        """Return what an answer takes to compute.

        Args:
            rows: B.
            options: Options of the request.
            incomplete: How many of them have cells to impute.
            new_draws: How many draws have to be made for it.
        """
        draws, answer = options.samples or self.members, 0.0
        copies = self.copies * COPY  # draws go round the copies, but each copy goes through the mu-only networks
        unit = WEIGHT * self.weights + COMPONENT * self.components
        if options.samples:
            levels = len(options.percentiles) + len(options.grid)
            further = FURTHER * (max(0, levels - PLAIN_LEVELS) + len(options.thresholds))
            answer = (1 + options.mc_error) * self.components * (COMPONENT + further)
            answer += LISTED * (options.draws or not options.noise)
            copies += options.noise_moments * self.copies * draws * unit
        else:
            copies += (self.copies - 1) * draws * WEIGHT * self.weights
        time = PASS + new_draws * self.weights * NEW_WEIGHT + incomplete * copies
        return (time + rows * (ROW + draws * (WEIGHT * self.weights + answer))) / unit

    def rows_without_draws(self, rows: int, incomplete: int, seconds: float) -> int:
        """Rows of an answer without draws that take about so long on the machine of the constants, at least one.

        The number is the same at every call. So the mean of rows in such parts is the same to the bit, although a
        matrix product may round a row differently among others.

        Args:
            rows: Of the request.
            incomplete: How many of them have cells to impute.
            seconds: For the returned number of rows.
        """
        share = incomplete / max(1, rows)
        copies = 1.0 + (self.copies - 1) * share
        time = ROW + self.copies * COPY * share + copies * self.members * WEIGHT * self.weights
        return max(1, int(1e9 * seconds / time))
