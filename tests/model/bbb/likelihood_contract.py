"""What holds for every observation model. The tests of a new one subclass `LikelihoodContract`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import pytest
import torch

from murho.model.bbb.likelihood import Likelihood
from murho.model.checkpoint.spec import LikelihoodSpec

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["LikelihoodContract"]

MEMBERS, ROWS = 2, 7


class LikelihoodContract(ABC):
    """Tests of an observation model. A subclass says which model, and how to draw and to sum over targets."""

    @abstractmethod
    def spec(self) -> LikelihoodSpec:
        """The model as a checkpoint describes it."""

    @abstractmethod
    def targets(self, generator: torch.Generator, *shape: int) -> Tensor:
        """Random targets, as networks learn them."""

    @abstractmethod
    def total(self, likelihood: Likelihood, outputs: Tensor) -> Tensor:
        """The sum, or the integral, of the density over all targets, ``[M, B]`` for outputs ``[M, B, P]``."""

    @pytest.fixture
    def likelihood(self) -> Likelihood:
        """The model of M members, with its parameters moved from their start."""
        likelihood = self.spec().make(MEMBERS)
        with torch.no_grad():
            for number, parameter in enumerate(likelihood.parameters()):
                parameter.add_(0.1 * torch.arange(parameter.numel()).reshape(parameter.shape) + 0.05 * number)
        return likelihood

    @pytest.fixture
    def outputs(self, likelihood: Likelihood) -> Tensor:
        """Outputs of a network, ``[M, B, P]``."""
        generator = torch.Generator().manual_seed(1)
        return torch.randn(MEMBERS, ROWS, likelihood.outputs, generator=generator)

    def test_the_density_sums_to_one(self, likelihood: Likelihood, outputs: Tensor) -> None:
        with torch.no_grad():
            total = self.total(likelihood, outputs.double())
        torch.testing.assert_close(total, torch.ones_like(total), atol=2e-4, rtol=0.0)

    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("of_members", [False, True])
    def test_the_gradient_is_that_of_automatic_differentiation(
        self, likelihood: Likelihood, outputs: Tensor, *, weighted: bool, of_members: bool
    ) -> None:
        generator = torch.Generator().manual_seed(2)
        shape = (MEMBERS, ROWS) if of_members else (ROWS,)
        targets = self.targets(generator, *shape)
        weights = torch.rand(shape, generator=generator) + 0.5 if weighted else None
        found: list[list[Tensor]] = []
        for compute in (likelihood.gradient, lambda *given: Likelihood.gradient(likelihood, *given)):
            for parameter in likelihood.parameters():
                parameter.grad = None
            with torch.no_grad():
                factor = -0.3 if weights is None else -0.3 * weights.unsqueeze(-1)
                log_density, by_output = compute(outputs, targets, factor, 0.0)
            grads = [parameter.grad for parameter in likelihood.parameters() if parameter.grad is not None]
            found.append([log_density, by_output, *grads])
            torch.testing.assert_close(log_density, likelihood.log_density(outputs, targets).detach())
        for written, automatic in zip(*found, strict=True):
            torch.testing.assert_close(written, automatic, rtol=2e-4, atol=2e-5)

    def test_model_json_makes_the_same_model_again(self) -> None:
        spec = self.spec()
        again = LikelihoodSpec.from_json(spec.to_json())
        assert again == spec
        made, remade = spec.make(MEMBERS), again.make(MEMBERS)
        assert type(made) is type(remade)
        assert (made.outputs, made.means) == (remade.outputs, remade.means)

    def test_function_values_stay_where_the_scatter_is_anothers(self, likelihood: Likelihood, outputs: Tensor) -> None:
        others = outputs.flip(1)
        mixed = likelihood.with_scatter_of(outputs, others)
        assert mixed.shape == outputs.shape
        if likelihood.outputs == likelihood.means:
            assert torch.equal(mixed, outputs)
        torch.testing.assert_close(likelihood.with_scatter_of(outputs, outputs), outputs)

    def test_start_values_are_of_outputs_that_there_are(self, likelihood: Likelihood) -> None:
        assert set(likelihood.initial_outputs) <= set(range(likelihood.outputs))
