"""Draws are a function of (posterior, seed, k) alone, and the forward pass of nothing but draws and rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch.nn import functional

from model import draws as draws_module
from model.draws import forward, make_draws, mean_network
from model.networks import Architecture, BayesianNetwork

if TYPE_CHECKING:
    from torch import Tensor


def _network(members: int = 2, hidden: tuple[int, ...] = (8, 5)) -> tuple[dict[str, Tensor], Architecture]:
    architecture = Architecture(inputs=3, hidden=hidden, outputs=2, activation="tanh", members=members)
    network = BayesianNetwork(architecture, torch.Generator().manual_seed(0))
    with torch.no_grad():
        network.rho.add_(2.0)
    return {name: tensor.detach() for name, tensor in network.named_tensors().items()}, architecture


def _rows(count: int) -> Tensor:
    return torch.randn(count, 3, generator=torch.Generator().manual_seed(1))


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
    quiet = {
        name: tensor.fill_(-40.0) if name.endswith("rho") else tensor for name, tensor in tensors.items()
    }
    drawn = make_draws(quiet, architecture, seed=0, samples=5)
    assert drawn.members.tolist() == [0, 1, 0, 1, 0]
    for draw, member in enumerate(drawn.members.tolist()):
        torch.testing.assert_close(drawn.weights[0][draw], tensors["layers.0.weight.mu"][member])


def test_forward_equals_a_loop_over_draws_in_double_precision() -> None:
    tensors, architecture = _network()
    drawn, rows = make_draws(tensors, architecture, seed=3, samples=9), _rows(17)
    outputs = forward(drawn, rows)
    for draw in range(9):
        hidden = rows.double()
        for index, (weight, bias) in enumerate(zip(drawn.weights, drawn.biases, strict=True)):
            hidden = (torch.tanh(hidden) if index else hidden) @ weight[draw].double() + bias[draw].double()
        torch.testing.assert_close(outputs[draw].double(), hidden, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("tile", [1, 100, 2**20])
def test_tiling_changes_nothing(tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors, architecture = _network()
    drawn, rows = make_draws(tensors, architecture, seed=3, samples=9), _rows(2100)
    expected = forward(drawn, rows)
    monkeypatch.setattr(draws_module, "TILE_FLOATS", tile)
    torch.testing.assert_close(forward(drawn, rows), expected, rtol=1e-5, atol=1e-6)


def test_the_mean_network_is_mu_bit_for_bit() -> None:
    tensors, architecture = _network(members=2)
    rows = _rows(4)
    outputs = forward(mean_network(tensors, architecture), rows)
    hidden = rows.expand(2, -1, -1)
    for index in range(3):
        hidden = torch.baddbmm(
            tensors[f"layers.{index}.bias.mu"],
            torch.tanh(hidden) if index else hidden,
            tensors[f"layers.{index}.weight.mu"],
        )
    assert torch.equal(outputs, hidden)


def test_a_linear_network_needs_no_hidden_layer() -> None:
    tensors, architecture = _network(hidden=())
    assert forward(make_draws(tensors, architecture, seed=0, samples=2), _rows(3)).shape == (2, 3, 2)
