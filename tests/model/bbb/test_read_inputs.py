"""Members of a mixed encoding: half of them do without the bins."""

from __future__ import annotations

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
from murho.model.bbb.priors import EmpiricalBayesPrior
from murho.model.bbb.registry import make_likelihood
from tests.model.gradient_checks import INPUTS, assert_gradient_is_of_the_free_energy

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


def test_a_single_member_reads_everything() -> None:
    assert mixed_reading(1, 4, BINS).all()


def test_the_gradient_is_that_of_automatic_differentiation() -> None:
    likelihood = make_likelihood("homoscedastic", members=3).double()
    network = BayesianNetwork(
        Architecture(INPUTS, (6, 5), likelihood.outputs, "silu", 3, skip=True),
        torch.Generator().manual_seed(3),
        None,
        mixed_reading(3, INPUTS, BINS),
    ).double()
    assert_gradient_is_of_the_free_energy(network, likelihood, EmpiricalBayesPrior(), 2)


@pytest.mark.parametrize("skip", [False, True])
def test_an_input_that_is_not_read_changes_nothing(skip: bool) -> None:
    network, rows = network_of(4, skip=skip), torch.randn(9, INPUTS, generator=torch.Generator().manual_seed(1))
    others = rows.clone()
    others[:, BINS] += 5.0
    with torch.no_grad():
        first, second = (network(given, torch.Generator().manual_seed(2)) for given in (rows, others))
    assert torch.equal(first[1::2], second[1::2])
    assert not torch.isclose(first[::2], second[::2]).any()


@pytest.mark.parametrize("skip", [False, True])
def test_a_checkpoint_has_no_weights_from_what_is_not_read(skip: bool) -> None:
    network, rows = network_of(4, skip=skip), torch.randn(9, INPUTS, generator=torch.Generator().manual_seed(1))
    architecture, reads = network.architecture, mixed_reading(4, INPUTS, BINS)
    tensors = learned_tensors(network, torch.nn.Module())
    unread = [tensors[f"layers.{number}.weight.rho"] == UNREAD_RHO for number in range(3)]
    assert [int(part.sum()) for part in unread] == [2 * 2 * 6, 0, 2 * 2 * 1 * skip]
    for index, part in enumerate(unread):
        assert torch.equal(part, weights_from_inputs(architecture, index, ~reads))
    found = inputs_read(tensors)
    assert found is not None
    assert torch.equal(found, reads)
    # A network that reads all inputs, but has these weights, gives the same outputs.
    plain = BayesianNetwork(architecture, torch.Generator())
    with torch.no_grad():
        for name, tensor in plain.named_tensors().items():
            tensor.copy_(tensors[name])
        outputs = [each(rows, torch.Generator().manual_seed(2)) for each in (network, plain)]
    torch.testing.assert_close(*outputs)


def test_where_all_is_read_tensors_stay() -> None:
    network = BayesianNetwork(Architecture(3, (4,), 1, members=2), torch.Generator())
    tensors = learned_tensors(network, torch.nn.Module())
    assert inputs_read(tensors) is None
    for name, tensor in network.named_tensors().items():
        assert torch.equal(tensors[name], tensor)
