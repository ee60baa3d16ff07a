"""Mixtures whose quantiles are hard to find, and these quantiles by bisection in double precision."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from murho.model.distributions.mixtures import Mixture, WideRule

LEVELS = (0.001, 0.1, 1.0, 5.0, 25.0, 50.0, 75.0, 95.0, 99.0, 99.9, 99.999)
SCORES = torch.special.ndtri(torch.tensor(LEVELS, dtype=torch.float64) / 100.0)
ROWS = 6


@dataclass(frozen=True)
class Numbers:
    """Random numbers of one seed; float64."""

    generator: torch.Generator

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator, dtype=torch.float64)

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(*shape, generator=self.generator, dtype=torch.float64)

    def weights(self, *shape: int) -> Tensor:
        return torch.softmax(self.normal(*shape), dim=0)


def _smooth(some: Numbers, count: int = 40) -> Mixture:
    return Mixture(some.normal(count, ROWS), torch.exp(0.3 * some.normal(count, ROWS)))


def _weighted(some: Numbers) -> Mixture:
    return Mixture(some.normal(30, ROWS), 0.5 + some.uniform(30, ROWS), some.weights(30, ROWS))


def _zero_weights(some: Numbers) -> Mixture:
    weights = some.weights(30, ROWS)
    weights[::3] = 0.0
    means, noise = some.normal(30, ROWS), 0.5 + some.uniform(30, ROWS)
    means[::6], noise[3::6] = 1e3, 1e-6  # of what weighs nothing, nothing is to be seen
    return Mixture(means, noise, weights / weights.sum(dim=0))


def _spikes(some: Numbers) -> Mixture:
    sides = torch.where(some.uniform(24, ROWS) < some.uniform(1, ROWS), -1e3, 1e3)
    return Mixture(sides + some.normal(24, ROWS), 1e-3 * (0.5 + some.uniform(24, ROWS)))


def _gap(some: Numbers) -> Mixture:
    means = some.normal(20, ROWS)
    means[:10] += 1e5  # F is flat from 1 to 1e5, at 50 % to the last bit
    return Mixture(means, 0.3 + some.uniform(20, ROWS))


def _widths(some: Numbers) -> Mixture:
    return Mixture(some.normal(40, ROWS), 10.0 ** (-12.0 * some.uniform(40, ROWS)))


def _outlier(some: Numbers) -> Mixture:
    means, noise, weights = some.normal(40, ROWS), 0.1 + some.uniform(40, ROWS), some.weights(40, ROWS)
    means[0], noise[0], weights[0] = 1e6, 10.0 ** (4.0 * some.uniform(ROWS) - 3.0), 1e-4
    return Mixture(means, noise, weights / weights.sum(dim=0))


def _staircase(some: Numbers) -> Mixture:
    steps = torch.arange(25, dtype=torch.float64).remainder(5.0).unsqueeze(1)
    return Mixture(steps + 1e-3 * some.normal(25, ROWS), 10.0 ** (-2.0 - 2.0 * some.uniform(25, ROWS)))


def _one(some: Numbers) -> Mixture:
    return Mixture(100.0 * some.normal(1, ROWS), 10.0 ** (3.0 * some.normal(1, ROWS)))


def _identical(some: Numbers) -> Mixture:
    return Mixture(some.normal(1, ROWS).repeat(50, 1), torch.full((1, 1), 0.7, dtype=torch.float64))


def _scaled(factor: float) -> Callable[[Numbers], Mixture]:
    def scaled(some: Numbers) -> Mixture:
        mixture = _smooth(some)
        return Mixture(factor * mixture.means, factor * mixture.noise)

    return scaled


def _far_off(some: Numbers) -> Mixture:
    return Mixture(1e7 + some.normal(40, ROWS), 0.5 + some.uniform(40, 1))


RULE = WideRule.after(700)


def _beside_wide(make: Callable[[Numbers], Mixture]) -> Callable[[Numbers], Mixture]:
    """With a component more, of weight 1/701 and some six times as wide as the others together."""

    def beside_wide(some: Numbers) -> Mixture:
        mixture = make(some)
        mean, spread = mixture.moments()
        return mixture.with_component(mean, RULE.noise(spread, spread, torch.inf), RULE.weight)

    return beside_wide


SMOOTH: dict[str, Callable[[Numbers], Mixture]] = {
    "smooth": _smooth,
    "weighted": _weighted,
    "one component": _one,
    "identical components": _identical,
    "a tiny unit": _scaled(1e-30),
    "a huge unit": _scaled(1e30),
    "a mean of ten million": _far_off,
}
"""Of which every value within 7 standard deviations is found in a few steps."""

HARD: dict[str, Callable[[Numbers], Mixture]] = {
    "a thousand components": lambda some: _smooth(some, 1024).of_rows(slice(0, 2)),
    "weights of nothing": _zero_weights,
    "two far and narrow spikes": _spikes,
    "a gap where F is flat": _gap,
    "widths over twelve decades": _widths,
    "an outlier": _outlier,
    "a staircase": _staircase,
    "smooth, and wide": _beside_wide(_smooth),
    "weighted, and wide": _beside_wide(_weighted),
    "identical components, and wide": _beside_wide(_identical),
    "a staircase, and wide": _beside_wide(_staircase),
}


def make(kind: str, seed: int = 0) -> Mixture:
    """Return a mixture of two to six rows."""
    return (SMOOTH | HARD)[kind](Numbers(torch.Generator().manual_seed(seed)))


def without_wide(mixture: Mixture) -> tuple[Mixture, Tensor | None]:
    """Return the mixture without its wide component, and its standard deviations, ``[B]``; None: it has none."""
    weights = mixture.weights
    if weights is None or len(weights) < 2 or not bool((weights[-1] == RULE.weight).all()):
        return mixture, None
    rest = Mixture(mixture.means[:-1], mixture.noise[:-1], weights[:-1] / (1.0 - RULE.weight))
    return rest, mixture.noise[-1]


def tail(mixture: Mixture, values: Tensor, signs: Tensor) -> Tensor:
    """1 - F where the sign is 1, F where it is -1, at values ``[B, K]``."""
    noise = mixture.noise.expand_as(mixture.means).unsqueeze(-1)
    tails = torch.special.erfc(signs * (values - mixture.means.unsqueeze(-1)) / (noise * 2.0**0.5))
    below: Tensor = 0.5 * (tails * mixture.shares.unsqueeze(-1)).sum(dim=0)
    return below


def bisect(mixture: Mixture, scores: Tensor, rounding: float = 1e-12) -> tuple[Tensor, Tensor]:
    """Between which values the quantiles lie, if F is known to some rounding; ``[B, K]`` each.

    Args:
        mixture: Of B rows.
        scores: Normal scores, ``[K]`` or ``[B, K]``.
        rounding: What may be wrong of the smaller tail, of itself.
    """
    scores = scores.double().expand(mixture.means.shape[1], -1)
    signs = torch.where(scores > 0.0, 1.0, -1.0).double()
    goals = 0.5 * torch.special.erfc(scores.abs() * 0.5**0.5)
    own = mixture.means.unsqueeze(-1) + mixture.noise.expand_as(mixture.means).unsqueeze(-1) * scores
    ends = []
    for side in (-1.0, 1.0):
        goal = goals * (1.0 - side * signs * rounding)
        lower, upper = own.amin(dim=0), own.amax(dim=0)
        for _ in range(70):
            middle = 0.5 * (lower + upper)
            below = (tail(mixture, middle, signs) - goal) * signs > 0.0
            lower, upper = torch.where(below, middle, lower), torch.where(below, upper, middle)
        ends.append(0.5 * (lower + upper))
    return ends[0], ends[1]


def assert_exact(mixture: Mixture, scores: Tensor, values: Tensor, tolerance: float = 1e-5) -> None:
    """Values ``[B, K]`` are the quantiles to a tolerance in standard deviations of the mixture."""
    assert values.isfinite().all()
    lowest, highest = bisect(mixture, scores)
    spread = mixture.moments()[1].unsqueeze(-1)
    error = torch.maximum(lowest - values, values - highest) / spread
    # What double precision can tell of the values themselves.
    error -= 4.0 * torch.finfo(torch.float64).eps * mixture.means.abs().amax(dim=0).unsqueeze(-1) / spread
    assert (error <= tolerance).all(), error
