"""Adam: the steps of PyTorch's class, without loading its compiler."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn

from murho.model.bbb.optimisers import Adam

RATES = [0.1 / (step + 1) for step in range(12)]


def _parameters() -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((3, 40), (3, 1))]


def _gradients() -> list[list[Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [[torch.randn(shape, generator=generator) for shape in ((3, 40), (3, 1))] for _ in RATES]


def test_steps_are_those_of_the_class() -> None:
    parameters, expected = _parameters(), _parameters()
    optimiser, of_class = Adam(parameters, 1.0), torch.optim.Adam(expected, 1.0)
    for rate, gradients in zip(RATES, _gradients(), strict=True):
        for found, other, gradient in zip(parameters, expected, gradients, strict=True):
            found.grad = other.grad = gradient
        optimiser.learning_rate = of_class.param_groups[0]["lr"] = rate
        optimiser.step()
        of_class.step()
    for found, other in zip(parameters, expected, strict=True):
        torch.testing.assert_close(found, other, rtol=1e-5, atol=1e-6)


def test_a_parameter_without_a_gradient_is_no_parameter_to_move() -> None:
    parameters = _parameters()
    parameters[0].grad = torch.ones_like(parameters[0])
    with pytest.raises(ValueError, match="no gradient"):
        Adam(parameters, 0.1).step()


def test_a_fit_does_not_load_the_compiler_of_pytorch() -> None:
    code = (
        "import sys; from tests.model.conftest import make_table, train_quickly; "
        "trained = train_quickly(make_table(), epochs=3); "
        "sys.exit(not trained.posterior.tensors or 'torch._dynamo' in sys.modules or 'sympy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
