"""The network: layout, what its draws are distributed like, members that read only a part of the inputs."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from murho.model.bbb.network import Architecture, BayesianNetwork, absent_weights, learned_tensors, removed_weights
from murho.model.errors import CheckpointError
from murho.model.predictive.draws import DrawMaker
from murho.model.predictive.forward import forward
from murho.model.training.context import unread_bins
from tests.model.conftest import present
from tests.model.gradient_checks import INPUTS
from tests.model.oracles import weights_of


def network_with(**changes: object) -> BayesianNetwork:
    described: dict[str, Any] = {"inputs": 3, "hidden": (8, 6), "outputs": 1, "activation": "silu", "members": 2}
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


def test_each_feature_has_a_group_of_weights_in_the_first_hidden_layer() -> None:
    architecture = Architecture(inputs=5, hidden=(4, 3), outputs=2, skip=True)
    network = BayesianNetwork(architecture, torch.Generator(), feature_of_input=(0, 0, 0, 1, 2))
    first = network.parts(network.groups.unsqueeze(0))[0][0]
    assert (first == first[:, :1]).all()
    assert first[:, 0].diff().ne(0).tolist() == [False, False, True, True]
    assert len(network.groups.unique()) == 3 + 6
    assert (network.groups.diff() != 0).sum() == 3 + 6 - 1  # entries of a group lie side by side


BINS = (1, 2)


def network_of(members: int, *, skip: bool = True, seed: int = 0) -> BayesianNetwork:
    unread = tuple(map(tuple, unread_bins(members, BINS)))
    architecture = Architecture(INPUTS, (6, 5), 1, "silu", members, skip, unread)
    return BayesianNetwork(architecture, torch.Generator().manual_seed(seed))


def test_the_two_judges_of_a_row_are_of_both_kinds() -> None:
    # Members m and m + 5 judge rows of the folds m of two partitions.
    assert unread_bins(10, BINS) == [set()] * 5 + [set(BINS)] * 5
    assert unread_bins(4, BINS) == [set(), set(BINS)] * 2


def _with_any_values(network: BayesianNetwork) -> dict[str, Tensor]:
    """Tensors of a checkpoint of which mu and rho of the absent weights are far from those of any weight."""
    architecture, tensors = network.architecture, dict(network.named_tensors())
    for layer, absent in enumerate(absent_weights(architecture)):
        for part in ("mu", "rho"):
            name = f"layers.{layer}.weight.{part}"
            tensors[name] = tensors[name].masked_fill(absent, 50.0)
    return tensors


@pytest.mark.parametrize("skip", [False, True])
def test_no_draw_has_a_weight_from_an_input_that_its_member_does_not_read(skip: bool) -> None:
    network, rows = network_of(4, skip=skip), torch.randn(9, INPUTS, generator=torch.Generator().manual_seed(1))
    architecture = network.architecture
    absent = absent_weights(architecture)
    assert [int(absent[layer].sum()) for layer in range(3)] == [2 * 2 * 6, 0, 2 * 2 * 1 * skip]
    kept = learned_tensors(network, torch.nn.Module())
    assert not any(kept[f"layers.0.weight.{part}"][absent[0]].any() for part in ("mu", "rho"))
    draws = [DrawMaker(each, architecture).make(seed=3, samples=8) for each in (kept, _with_any_values(network))]
    for weights, others in zip(*(weights_of(each) for each in draws), strict=True):
        assert torch.equal(weights, others)
    for layer, weights in enumerate(weights_of(draws[0])):
        assert not weights[absent[layer][draws[0].members]].any()
    # The network of the fit gives the outputs of such draws.
    moved = rows.clone()
    moved[:, list(BINS)] += 7.0
    outputs = [network(each, torch.Generator().manual_seed(2)).detach() for each in (rows, moved)]
    same = [torch.equal(*(each[member] for each in outputs)) for member in range(4)]
    assert same == [False, True, False, True]


def test_a_removed_weight_is_nothing_in_a_fit_and_in_its_gradient() -> None:
    bits = np.random.default_rng(0).integers(0, 2, 2 * (3 * 8 + 8 * 6 + 6), dtype=np.uint8)
    network = network_with(removed=np.packbits(bits).tobytes())
    masks = removed_weights(network.architecture)
    assert np.array_equal(torch.cat([mask.flatten() for mask in masks]), bits.astype(bool))
    rows = torch.randn(9, 3, generator=torch.Generator().manual_seed(1))
    outputs = network(rows, torch.Generator().manual_seed(2))
    outputs.sum().backward()
    for gradients in map(network.parts, (present(network.mu.grad), present(network.rho.grad))):
        for mask, gradient in zip(masks, gradients[::2], strict=True):
            assert not gradient[mask].any()
            assert gradient[~mask].any()
    with torch.no_grad():
        for name, tensor in network.named_tensors().items():
            tensor.copy_(_with_any_values(network)[name])
        assert torch.equal(network(rows, torch.Generator().manual_seed(2)), outputs)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"unread": [[0]]}, "unread: expected none or 2 lists, one a member, found 1"),
        ({"unread": [[0], [3]]}, "unread: expected numbers of inputs below 3"),
        ({"unread": [[0], [-1]]}, "unread"),
        ({"removed": "AAAA"}, "removed: expected nothing or 20 bytes, a bit for each weight"),
        ({"removed": "no base64!"}, "removed"),
    ],
)
def test_an_architecture_whose_absent_weights_do_not_fit_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        Architecture.from_json(network_with().architecture.to_json() | changes)


def test_an_architecture_is_read_as_it_was_written() -> None:
    architecture = network_with(unread=((), (0, 2)), removed=bytes(range(20))).architecture
    assert Architecture.from_json(architecture.to_json()) == architecture
