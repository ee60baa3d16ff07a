"""`NumberDistribution`: the predictive distributions of a number, in the manner of SciPy's frozen distributions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.python_interface.asked_rows import probability_levels
from murho.model.python_interface.distribution import SHOWN, Distribution, require_sample_size

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


__all__ = ["NumberDistribution"]


class NumberDistribution(Distribution):
    """The predictive distribution of the target for each of B rows, in the target's unit.

    It is the exact mixture over the draws of the posterior. If the model has a calibration, `interval`, `ppf`, `cdf`,
    `sf` and `sample` are of the calibrated distribution. The mean is that of the mixture, and `std` and its two parts
    count the outer 1 % of the calibrated distribution in the proportion of the raw one
    (`model.distributions.calibrated_spread`), so that of many samples may differ by some per cent.

    Arguments follow NumPy's rules of broadcasting, as in SciPy: a number is for every row, ``[B]`` numbers are one a
    row, and ``[K, 1]`` numbers are K for every row, with the result ``[K, B]``.
    """

    def __getitem__(self, rows: Any) -> NumberDistribution:
        """The distributions of some rows, by a number, a slice, a mask or numbers."""
        return NumberDistribution(self._rows.of_rows(rows))

    def __repr__(self) -> str:
        answer, target = self._rows.plain, self._rows.posterior.schema.target
        spreads = [""] * len(self) if answer.std is None else [f" ± {std:.3g}" for std in answer.std[:SHOWN]]
        shown = [f"{mean:.4g}{std}" for mean, std in zip(answer.mean[:SHOWN], spreads, strict=False)]
        more = ", …" if len(self) > SHOWN else ""
        unit = f" {target.unit}" if target.unit else ""
        return f"<{target.name} of {len(self)} rows: {', '.join(shown)}{more}{unit}>"

    def mean(self) -> NDArray[np.float64]:
        """``[B]``."""
        mean: NDArray[np.float64] = self._rows.plain.mean
        return mean

    def median(self) -> NDArray[np.float64]:
        """``[B]``."""
        return self.ppf(0.5)

    def std(self) -> NDArray[np.float64]:
        """Standard deviation ``[B]``: the root of ``epistemic()**2 + aleatoric()**2``."""
        return self._drawn("std")

    def var(self) -> NDArray[np.float64]:
        """Variance ``[B]``."""
        return self.std() ** 2

    def epistemic(self) -> NDArray[np.float64]:
        """Standard deviation of the doubt about the function, which more training rows reduce, ``[B]``."""
        return self._drawn("epistemic_std")

    def aleatoric(self) -> NDArray[np.float64]:
        """Standard deviation of the observation noise, which no training row reduces, ``[B]``."""
        return self._drawn("aleatoric_std")

    def ppf(self, q: ArrayLike) -> NDArray[np.float64]:
        """Quantiles, the inverse of `cdf`.

        Args:
            q: Levels, strictly between 0 and 1, broadcastable to ``[..., B]``.

        Returns:
            ``[..., B]``.

        Raises:
            ParameterError: A level lies elsewhere, the shape does not fit, or there are no draws.
        """
        self._rows.require_draws("quantiles")
        levels = probability_levels(self._rows.for_every_row(q, "q"), "q")
        return self._rows.at_values(100.0 * levels, "percentiles")

    def interval(self, confidence: ArrayLike = 0.9) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Lower and upper end of the central interval that holds the target with a probability.

        Args:
            confidence: The probability, strictly between 0 and 1, broadcastable to ``[..., B]``.

        Returns:
            Both ends, ``[..., B]`` each.

        Raises:
            ParameterError: As for `ppf`.
        """
        share = probability_levels(self._rows.for_every_row(confidence, "confidence"), "confidence")
        lower, upper = self.ppf(np.stack((0.5 * (1.0 - share), 0.5 * (1.0 + share))))
        return lower, upper

    def sf(self, x: ArrayLike) -> NDArray[np.float64]:
        """Probability that the target exceeds a value.

        Args:
            x: Values in the target's unit, broadcastable to ``[..., B]``.

        Returns:
            ``[..., B]``; NaN at NaN.

        Raises:
            ParameterError: The shape does not fit, or there are no draws.
        """
        self._rows.require_draws("probabilities")
        values = self._rows.for_every_row(x, "x")
        finite = np.isfinite(values)
        result = self._rows.at_values(np.where(finite, values, 0.0), "thresholds")
        ends = np.where(np.isnan(values), np.nan, (values < 0.0).astype(np.float64))
        return np.where(finite, result, ends)

    def cdf(self, x: ArrayLike) -> NDArray[np.float64]:
        """Probability that the target is at most a value: one minus `sf`."""
        return 1.0 - self.sf(x)

    def sample(self, n: int = 1, *, seed: int | np.random.Generator | None = None) -> NDArray[np.float64]:
        """Observations drawn from the distribution of each row, independent between rows.

        The n observations of a row are stratified: one in each n-th of its probability, in random order (Latin
        hypercube sampling; McKay, Beckman & Conover 1979, doi:10.2307/1268522). Each has the row's distribution, and
        their mean is more exact than that of independent ones.

        Args:
            n: Observations of each row.
            seed: A number gives the same observations each time; None: others each time.

        Returns:
            ``[n, B]``.

        Raises:
            ParameterError: n is no whole number from 1, or there are no draws.
        """
        self._rows.require_draws("sample")
        require_sample_size(n)
        generator = np.random.default_rng(seed)
        # 1 - random() lies in (0, 1]; half a rounding error keeps the level below 1, too.
        levels = (np.arange(n) + (1.0 - generator.random(n)) * (1.0 - np.finfo(np.float64).eps)) / n
        orders = generator.permuted(np.tile(np.arange(n), (len(self), 1)), axis=1).T
        return self._rows.at_values(100.0 * levels[orders], "percentiles")

    def functions(self) -> NDArray[np.float64]:
        """Function values of the posterior's draws, without observation noise and not calibrated.

        Returns:
            ``[B, S]``. Column k is the same function for all rows and calls, so that differences between rows mean
            something.

        Raises:
            ParameterError: There are no draws.
        """
        self._rows.require_draws("functions")
        draws: NDArray[np.float64] = self._rows.answer(noise=False, draws=True).draws
        return draws
