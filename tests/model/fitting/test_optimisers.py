"""Gradient methods: those of PyTorch's optimiser classes to the bit, without loading its compiler."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

from murho.model.fitting.optimisers import OPTIMISERS

if TYPE_CHECKING:
    from collections.abc import Callable

CLASSES: dict[str, Callable[[list[Tensor], float], torch.optim.Optimizer]] = {
    "adam": lambda parameters, rate: torch.optim.Adam(parameters, lr=rate),
    "rmsprop": lambda parameters, rate: torch.optim.RMSprop(parameters, lr=rate),
    "sgd": lambda parameters, rate: torch.optim.SGD(parameters, lr=rate, momentum=0.9),
}
RATES = [0.1 / (step + 1) for step in range(12)]


def _parameters() -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((3, 40), (3, 1))]


def _gradients() -> list[list[Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [[torch.randn(shape, generator=generator) for shape in ((3, 40), (3, 1))] for _ in RATES]


def _descend(name: str) -> list[nn.Parameter]:
    parameters = _parameters()
    optimiser = OPTIMISERS[name](parameters, 1.0)
    for rate, gradients in zip(RATES, _gradients(), strict=True):
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        optimiser.learning_rate = rate
        optimiser.step()
    return parameters


@pytest.mark.parametrize("name", OPTIMISERS)
def test_steps_are_those_of_the_class(name: str) -> None:
    expected = _parameters()
    of_class = CLASSES[name](list(expected), 1.0)
    for rate, gradients in zip(RATES, _gradients(), strict=True):
        for parameter, gradient in zip(expected, gradients, strict=True):
            parameter.grad = gradient
        for group in of_class.param_groups:
            group["lr"] = rate
        of_class.step()
    for found, other in zip(_descend(name), expected, strict=True):
        torch.testing.assert_close(found, other, rtol=1e-5, atol=1e-6)


def test_a_parameter_without_a_gradient_is_no_parameter_to_move() -> None:
    parameters = _parameters()
    parameters[0].grad = torch.ones_like(parameters[0])
    with pytest.raises(ValueError, match="no gradient"):
        OPTIMISERS["adam"](parameters, 0.1).step()


def test_a_fit_does_not_load_the_compiler_of_pytorch() -> None:
    code = (
        "import sys; from tests.model.conftest import make_table, train_quickly; "
        "trained = train_quickly(make_table(), epochs=3); "
        "sys.exit(not trained.tensors or 'torch._dynamo' in sys.modules or 'sympy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
