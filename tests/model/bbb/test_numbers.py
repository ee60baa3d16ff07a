"""The contract of observation models, for those of numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from murho.model.checkpoint.spec import LikelihoodSpec
from tests.model.bbb.likelihood_contract import LikelihoodContract

if TYPE_CHECKING:
    from torch import Tensor

    from murho.model.bbb.likelihood import Likelihood


class OfNumbers(LikelihoodContract):
    """Targets are standardised numbers."""

    def targets(self, generator: torch.Generator, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    def total(self, likelihood: Likelihood, outputs: Tensor) -> Tensor:
        grid = torch.linspace(-40.0, 40.0, 16_001, dtype=torch.float64)
        density = torch.stack([likelihood.log_density(outputs, value.expand(outputs.shape[1])).exp() for value in grid])
        return torch.trapezoid(density, grid, dim=0)


class TestFixed(OfNumbers):
    def spec(self) -> LikelihoodSpec:
        return LikelihoodSpec("fixed", sigma=0.4)


class TestHomoscedastic(OfNumbers):
    def spec(self) -> LikelihoodSpec:
        return LikelihoodSpec("homoscedastic")


class TestHeteroscedastic(OfNumbers):
    def spec(self) -> LikelihoodSpec:
        return LikelihoodSpec("heteroscedastic")


class TestMixture(OfNumbers):
    def spec(self) -> LikelihoodSpec:
        return LikelihoodSpec("mixture", components=3)
