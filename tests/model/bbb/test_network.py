"""The network: layout, what its draws are distributed like, members that read only a part of the inputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from murho.model.bbb.network import (
    UNREAD_RHO,
    Architecture,
    BayesianNetwork,
    inputs_read,
    learned_tensors,
    mixed_reading,
    weights_from_inputs,
)
from murho.model.predictive.draws import DrawMaker
from murho.model.predictive.forward import forward
from tests.model.conftest import present
from tests.model.gradient_checks import INPUTS


def network_with(**changes: object) -> BayesianNetwork:
    described: dict[str, Any] = {
        "inputs": 3,
        "hidden": (8, 6),
        "outputs": 1,
        "activation": "silu",
        "members": 2,
    }
    return BayesianNetwork(Architecture(**(described | changes)), torch.Generator().manual_seed(0))


def test_a_row_under_local_reparameterisation_is_distributed_as_under_draws_of_weights() -> None:
    network = network_with(members=1)
    with torch.no_grad():
        network.rho.add_(2.0)
    row = torch.tensor([[0.4, -1.0, 2.0]])
    tensors = {name: tensor.detach() for name, tensor in network.named_tensors().items()}
    by_weights = forward(DrawMaker(tensors, network.architecture).make(seed=1, samples=20_000), row)[:, 0, 0]
    by_rows = network(row, torch.Generator().manual_seed(2), 20_000)[0, :, 0].detach()
    levels = torch.linspace(0.05, 0.95, 19)
    gap = (torch.quantile(by_weights, levels) - torch.quantile(by_rows, levels)).abs().max()
    assert float(gap) < 0.06 * float(by_weights.std())


@pytest.mark.parametrize(("skip", "groups"), [(False, 6), (True, 7)])
def test_every_weight_and_bias_tensor_is_a_group_and_so_is_the_skip(skip: bool, groups: int) -> None:
    network = network_with(skip=skip)  # weights and biases of three layers
    assert network.groups.unique().tolist() == list(range(groups))


BINS = (1, 2)


def network_of(members: int, *, skip: bool = True, seed: int = 0) -> BayesianNetwork:
    architecture = Architecture(INPUTS, (6, 5), 1, "silu", members, skip)
    reads = mixed_reading(members, INPUTS, BINS)
    return BayesianNetwork(architecture, torch.Generator().manual_seed(seed), None, reads)


def test_the_two_judges_of_a_row_are_of_both_kinds() -> None:
    reads = mixed_reading(10, 4, BINS)
    assert reads[:, [0, 3]].all()
    without_bins = ~reads[:, 1]
    assert torch.equal(without_bins, ~reads[:, 2])
    # Members m and m + 5 judge rows of the folds m of two partitions.
    assert without_bins.tolist() == [False] * 5 + [True] * 5
    assert (~mixed_reading(4, 4, BINS)[:, 1]).tolist() == [False, True, False, True]


@pytest.mark.parametrize("skip", [False, True])
def test_a_checkpoint_has_no_weights_from_what_is_not_read(skip: bool) -> None:
    network, rows = network_of(4, skip=skip), torch.randn(9, INPUTS, generator=torch.Generator().manual_seed(1))
    architecture, reads = network.architecture, mixed_reading(4, INPUTS, BINS)
    tensors = learned_tensors(network, torch.nn.Module())
    unread = [tensors[f"layers.{number}.weight.rho"] == UNREAD_RHO for number in range(3)]
    assert [int(part.sum()) for part in unread] == [2 * 2 * 6, 0, 2 * 2 * 1 * skip]
    for index, part in enumerate(unread):
        assert torch.equal(part, weights_from_inputs(architecture, index, ~reads))
    assert torch.equal(present(inputs_read(tensors)), reads)
    # A network that reads all inputs, but has these weights, gives the same outputs.
    plain = BayesianNetwork(architecture, torch.Generator())
    with torch.no_grad():
        for name, tensor in plain.named_tensors().items():
            tensor.copy_(tensors[name])
        outputs = [each(rows, torch.Generator().manual_seed(2)) for each in (network, plain)]
    torch.testing.assert_close(*outputs)


def test_members_do_not_interact() -> None:
    network = network_with()
    network(torch.randn(5, 3), torch.Generator().manual_seed(0))[0].sum().backward()
    assert present(network.mu.grad).any(dim=1).tolist() == [True, False]
