"""Parameters by the names that files have them under, and the check of tensors from a file."""

from __future__ import annotations

import pytest
import torch

from murho.model.bbb.network import (
    Architecture,
    BayesianNetwork,
    learned_tensors,
    load_tensors,
    noise_tensors,
    tensor_problem,
)
from murho.model.bbb.registry import make_likelihood


def test_noise_with_a_parameter_of_its_own_is_named_and_loaded() -> None:
    noise = make_likelihood("homoscedastic", members=2)
    assert list(noise_tensors(noise)) == ["noise.rho"]
    tensors = {"noise.rho": torch.tensor([[1.0], [2.0]]), "layers.0.weight.mu": torch.zeros(1)}
    load_tensors(noise_tensors(noise), tensors)
    torch.testing.assert_close(noise_tensors(noise)["noise.rho"], torch.tensor([[1.0], [2.0]]))


@pytest.mark.parametrize("noise", ["fixed", "homoscedastic", "heteroscedastic", "mixture"])
def test_what_is_learned_is_the_network_and_the_noise(noise: str) -> None:
    likelihood = make_likelihood(noise, members=1, sigma=0.5, components=2)
    architecture = Architecture(3, (4,), likelihood.outputs)
    learned = learned_tensors(BayesianNetwork(architecture, torch.Generator()), likelihood)
    assert set(learned) == {*architecture.shapes(), *noise_tensors(likelihood)}
    assert not any(tensor.requires_grad for tensor in learned.values())


def test_the_first_problem_is_told_by_the_tensors_name() -> None:
    expected = {"mu": torch.empty((2, 3), device="meta")}
    assert tensor_problem({"mu": torch.zeros(2, 3)}, expected) is None
    for found, problem in (
        ({}, "tensor 'mu' is missing, expected shape [2, 3]"),
        ({"mu": torch.zeros(2, 3), "nu": torch.zeros(1)}, "tensor 'nu' is not expected"),
        ({"mu": torch.zeros(3)}, "tensor 'mu' has shape [3], expected [2, 3]"),
        ({"mu": torch.zeros(2, 3).double()}, "tensor 'mu' is torch.float64, expected torch.float32"),
        ({"mu": torch.full((2, 3), torch.inf)}, "tensor 'mu' holds NaN or infinity"),
    ):
        assert tensor_problem(found, expected) == problem
