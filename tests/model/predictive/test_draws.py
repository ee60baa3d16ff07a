"""Draws are a function of (posterior, seed, k) alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch.nn import functional

from murho.model.bbb.network import ACTIVATIONS, Architecture, BayesianNetwork
from murho.model.predictive.draws import ONE, make_draws, mean_network

if TYPE_CHECKING:
    from torch import Tensor


def _network(
    members: int = 2, hidden: tuple[int, ...] = (8, 5), *, skip: bool = False
) -> tuple[dict[str, Tensor], Architecture]:
    architecture = Architecture(inputs=3, hidden=hidden, outputs=2, activation="sigmoid", members=members, skip=skip)
    network = BayesianNetwork(architecture, torch.Generator().manual_seed(0))
    with torch.no_grad():
        network.rho.add_(2.0)
    return {name: tensor.detach() for name, tensor in network.named_tensors().items()}, architecture


def test_the_first_draws_do_not_depend_on_how_many_follow() -> None:
    tensors, architecture = _network()
    few = make_draws(tensors, architecture, seed=5, samples=6)
    many = make_draws(tensors, architecture, seed=5, samples=20)
    for a, b in zip(few.weights + few.biases, many.first(6).weights + many.first(6).biases, strict=True):
        assert torch.equal(a, b)


def test_draws_have_the_posteriors_mean_and_sigma() -> None:
    tensors, architecture = _network(members=1)
    drawn = make_draws(tensors, architecture, seed=0, samples=4000)
    mu, sigma = tensors["layers.0.weight.mu"][0], functional.softplus(tensors["layers.0.weight.rho"][0])
    error = (drawn.weights[0].mean(dim=0) - mu) / (sigma / 4000**0.5)
    assert float(error.abs().max()) < 5.0
    torch.testing.assert_close(drawn.weights[0].std(dim=0), sigma, rtol=0.06, atol=0.0)


def test_draws_go_round_the_members() -> None:
    tensors, architecture = _network(members=2)
    quiet = {name: tensor.fill_(-40.0) if name.endswith("rho") else tensor for name, tensor in tensors.items()}
    drawn = make_draws(quiet, architecture, seed=0, samples=5)
    assert drawn.members.tolist() == [0, 1, 0, 1, 0]
    for draw, member in enumerate(drawn.members.tolist()):
        torch.testing.assert_close(drawn.weights[0][draw], tensors["layers.0.weight.mu"][member])


@pytest.mark.parametrize("skip", [False, True])
def test_the_mean_network_is_mu_bit_for_bit(skip: bool) -> None:
    tensors, architecture = _network(members=2, skip=skip)
    means = mean_network(tensors, architecture)
    for index in range(3):
        assert torch.equal(means.weights[index], tensors[f"layers.{index}.weight.mu"])
        assert torch.equal(means.biases[index], tensors[f"layers.{index}.bias.mu"])


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_the_unit_that_is_always_1_is(activation: str) -> None:
    one = ACTIVATIONS[activation](torch.full((50,), ONE[activation]))  # long enough for vector instructions
    torch.testing.assert_close(one, torch.ones(50), rtol=0.0, atol=1.2e-7)


@pytest.mark.parametrize("hidden", [(), (4,), (8, 5)])
@pytest.mark.parametrize("skip", [False, True])
def test_draws_of_some_members_are_those_draws(hidden: tuple[int, ...], skip: bool) -> None:
    tensors, architecture = _network(members=3, hidden=hidden, skip=skip)
    drawn = make_draws(tensors, architecture, seed=1, samples=10)
    of_two = drawn.some(torch.isin(drawn.members, torch.tensor([0, 2])))
    chosen = [0, 2, 3, 5, 6, 8, 9]
    assert len(of_two) == len(chosen)
    for some, every in zip(of_two.weights + of_two.biases, drawn.weights + drawn.biases, strict=True):
        assert torch.equal(some, every[chosen])
