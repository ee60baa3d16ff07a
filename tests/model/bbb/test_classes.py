"""The contract of observation models, for those of classes, and what they are besides."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from murho.model.bbb.classes import Bernoulli, Categorical
from murho.model.bbb.registry import CLASS_KINDS, NOISE_KINDS, make_likelihood
from murho.model.checkpoint.spec import ClassShares, LikelihoodSpec
from murho.model.errors import CheckpointError, OptionError
from tests.model.bbb.likelihood_contract import LikelihoodContract

if TYPE_CHECKING:
    from torch import Tensor

    from murho.model.bbb.likelihood import Likelihood


class OfClasses(LikelihoodContract):
    """Targets are class indices."""

    classes: int

    def targets(self, generator: torch.Generator, *shape: int) -> Tensor:
        return torch.randint(self.classes, shape, generator=generator).float()

    def total(self, likelihood: Likelihood, outputs: Tensor) -> Tensor:
        rows = outputs.shape[1]
        return sum(
            (likelihood.log_density(outputs, torch.full((rows,), float(code))).exp() for code in range(self.classes)),
            start=torch.zeros(1),
        )


class TestBernoulli(OfClasses):
    classes = 2

    def spec(self) -> LikelihoodSpec:
        return LikelihoodSpec("bernoulli", shares=ClassShares((0.25, 0.75), 0.01))


class TestCategorical(OfClasses):
    classes = 4

    def spec(self) -> LikelihoodSpec:
        return LikelihoodSpec("categorical", shares=ClassShares((0.4, 0.3, 0.2, 0.1), 0.01))


def test_two_logits_and_one_say_the_same() -> None:
    logit = torch.linspace(-30.0, 30.0, 13)[None, :, None]
    one = Bernoulli().log_probabilities(logit)
    two = Categorical(2).log_probabilities(torch.cat((torch.zeros_like(logit), logit), dim=-1))
    torch.testing.assert_close(one, two)
    assert torch.isfinite(one).all()


def test_kinds_are_of_numbers_or_of_classes() -> None:
    assert CLASS_KINDS == ("bernoulli", "categorical")
    assert not set(CLASS_KINDS) & set(NOISE_KINDS)


def test_numbers_of_classes_that_fit_no_model_are_refused() -> None:
    with pytest.raises(OptionError, match="two or more classes, not None"):
        make_likelihood("categorical", members=1)
    with pytest.raises(OptionError, match="two or more classes"):
        make_likelihood("categorical", members=1, classes=1)
    with pytest.raises(OptionError, match="two classes, not 3"):
        make_likelihood("bernoulli", members=1, classes=3)


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ({"values": [0.5, 0.6], "weight": 0.1}, "sum 1"),
        ({"values": [1.0, 0.0], "weight": 0.1}, "greater than 0"),
        ({"values": [0.5, 0.5], "weight": 2.0}, "weight: expected less than or equal to 1"),
        ({"values": [0.5, 0.5]}, "weight"),
    ],
)
def test_damaged_shares_are_named(shares: dict[str, object], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        ClassShares.from_json(shares)


def test_shares_count_one_more_row_of_each_class() -> None:
    shares = ClassShares.of(torch.tensor([0.0, 0.0, 1.0]).numpy(), 3)
    assert shares.values == pytest.approx((3 / 6, 2 / 6, 1 / 6))
    assert shares.weight == pytest.approx(1 / 4)
    weighted = ClassShares.of(torch.tensor([0.0, 0.0, 1.0]).numpy(), 3, torch.tensor([0.5, 0.5, 2.0]).numpy())
    assert weighted.values == pytest.approx((2 / 6, 3 / 6, 1 / 6))
