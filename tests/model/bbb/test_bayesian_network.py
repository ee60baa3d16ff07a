"""The network: shapes, layout, and what its draws are distributed like."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from murho.model.bbb.network import Architecture, BayesianNetwork
from murho.model.errors import CheckpointError
from murho.model.predictive.draws import make_draws
from murho.model.predictive.torch_engine import forward


def _network(**changes: object) -> BayesianNetwork:
    described: dict[str, Any] = {
        "inputs": 3,
        "hidden": (8, 6),
        "outputs": 1,
        "activation": "silu",
        "members": 2,
    }
    return BayesianNetwork(Architecture(**(described | changes)), torch.Generator().manual_seed(0))


def test_named_tensors_have_the_announced_names_and_shapes_and_share_memory() -> None:
    network = _network()
    tensors = network.named_tensors()
    assert {name: tuple(tensor.shape) for name, tensor in tensors.items()} == network.architecture.shapes()
    assert sum(tensor.numel() for name, tensor in tensors.items() if name.endswith(".mu")) == network.mu.numel()
    with torch.no_grad():
        network.mu.zero_()
    assert all(not bool(tensor.any()) for name, tensor in tensors.items() if name.endswith(".mu"))


def test_a_row_under_local_reparameterisation_is_distributed_as_under_draws_of_weights() -> None:
    network = _network(members=1)
    with torch.no_grad():
        network.rho.add_(2.0)
    row = torch.tensor([[0.4, -1.0, 2.0]])
    tensors = {name: tensor.detach() for name, tensor in network.named_tensors().items()}
    by_weights = forward(make_draws(tensors, network.architecture, seed=1, samples=20_000), row)[:, 0, 0]
    by_rows = network(row, torch.Generator().manual_seed(2), 20_000)[0, :, 0].detach()
    levels = torch.linspace(0.05, 0.95, 19)
    gap = (torch.quantile(by_weights, levels) - torch.quantile(by_rows, levels)).abs().max()
    assert float(gap) < 0.06 * float(by_weights.std())


@pytest.mark.parametrize(("skip", "groups"), [(False, 6), (True, 7)])
def test_every_weight_and_bias_tensor_is_a_group_and_so_is_the_skip(skip: bool, groups: int) -> None:
    network = _network(skip=skip)  # weights and biases of three layers
    assert network.groups.unique().tolist() == list(range(groups))


def test_members_do_not_interact() -> None:
    network = _network()
    network(torch.randn(5, 3), torch.Generator().manual_seed(0))[0].sum().backward()
    assert network.mu.grad is not None
    assert bool(network.mu.grad[0].any())
    assert not bool(network.mu.grad[1].any())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inputs": 0}, r"^inputs: expected greater than or equal to 1"),
        ({"hidden": [0]}, r"^hidden\[0\]: expected greater than or equal to 1"),
        ({"hidden": [5] * 17}, r"^hidden: .*at most 16"),
        ({"activation": "step"}, r"^activation: expected 'relu', 'silu' or 'sigmoid'"),
        ({"members": 0}, r"^members: expected greater than or equal to 1"),
    ],
)
def test_impossible_architectures_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        Architecture.from_json(_network().architecture.to_json() | change)
