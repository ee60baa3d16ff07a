"""Pruning removes the weights of the lowest |mu| / sigma of all layers and members, except held ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from murho.model.bbb.network import Architecture, BayesianNetwork
from murho.model.errors import OptionError
from murho.model.predictive.draws import Draws, make_draws
from murho.model.predictive.torch_engine import forward
from murho.model.training.pruning import PRUNED_RHO, cut, extrapolation_inputs, is_removed, signal_to_noise

if TYPE_CHECKING:
    from murho.model.checkpoint.posterior import Posterior

ARCHITECTURE = Architecture(5, (6, 4), 2, "silu", members=2, skip=True)
HELD = [1, 4]


def _tensors(seed: int = 0, architecture: Architecture = ARCHITECTURE) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    network = BayesianNetwork(architecture, generator)
    tensors = {name: tensor.detach().clone() for name, tensor in network.named_tensors().items()}
    return {
        name: tensor + torch.randn(tensor.shape, generator=generator) if name.endswith("rho") else tensor
        for name, tensor in tensors.items()
    }


def _split_by_hand(tensors: dict[str, Tensor], pruned: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Ratios of the weights removed, kept and held, with `HELD` spelled out layer by layer."""
    held_rows = {0: HELD, 1: [], 2: [4 + number for number in HELD]}
    parts: tuple[list[Tensor], ...] = ([], [], [])
    for index, rows in held_rows.items():
        name = f"layers.{index}.weight"
        ratios = tensors[f"{name}.mu"].double().abs() / functional.softplus(tensors[f"{name}.rho"].double())
        gone = pruned[f"{name}.rho"] == PRUNED_RHO
        held = torch.zeros_like(gone)
        held[:, rows] = True
        for part, where in zip(parts, (gone, ~gone & ~held, held), strict=True):
            part.append(ratios[where])
    removed, kept, held = (torch.cat(part) for part in parts)
    return removed, kept, held


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1000), fraction=st.floats(0.01, 0.99))
def test_exactly_the_lowest_ratios_go_whatever_the_layer_and_the_member(seed: int, fraction: float) -> None:
    tensors = _tensors(seed)
    pruned, done = cut(tensors, ARCHITECTURE, fraction, HELD)
    removed, kept, held = _split_by_hand(tensors, pruned)
    free = 2 * (3 * 6 + 6 * 4 + (4 + 3) * 2)
    assert len(removed) == done.removed == round(fraction * free)
    assert len(removed) + len(kept) == free
    assert len(held) == done.held == 2 * (2 * 6 + 2 * 2)
    assert float(removed.max()) == pytest.approx(done.threshold, rel=1e-12)
    assert not len(kept) or float(removed.max()) <= float(kept.min())
    assert sum(done.histogram.removed) == len(removed)
    assert sum(done.histogram.kept) == len(kept)
    assert done.weights - done.removed == done.kept


def test_nothing_else_is_touched() -> None:
    tensors = _tensors() | {"noise.rho": torch.ones(2, 1)}
    before = {name: tensor.clone() for name, tensor in tensors.items()}
    pruned, _ = cut(tensors, ARCHITECTURE, 0.9, HELD)
    assert all(torch.equal(tensor, before[name]) for name, tensor in tensors.items())
    assert set(pruned) == set(tensors)
    for name, tensor in pruned.items():
        assert tensor.dtype == torch.float32
        assert bool(torch.isfinite(tensor).all())
        if "weight" not in name:
            assert torch.equal(tensor, tensors[name])
        else:
            other = name.replace(".mu", ".rho") if name.endswith("mu") else name
            gone = pruned[other] == PRUNED_RHO
            assert torch.equal(tensor[~gone], tensors[name][~gone])


def test_a_removed_weight_is_no_weight_in_any_draw_whatever_the_input() -> None:
    pruned, _ = cut(_tensors(), ARCHITECTURE, 0.8, HELD)
    draws = make_draws(pruned, ARCHITECTURE, seed=3, samples=40)
    exact = Draws.of(
        [
            weight.masked_fill(pruned[f"layers.{index}.weight.rho"][draws.members] == PRUNED_RHO, 0.0)
            for index, weight in enumerate(draws.weights)
        ],
        draws.biases,
        draws.members,
        activation=draws.activation,
        skip=draws.skip,
    )
    rows = torch.randn(20, 5, generator=torch.Generator().manual_seed(1))
    for size in (1.0, 1e6):
        torch.testing.assert_close(forward(draws, size * rows), forward(exact, size * rows), rtol=0, atol=1e-6)
    sigma = functional.softplus(torch.tensor(PRUNED_RHO))
    assert float(sigma) > 0.0
    assert float(sigma.square()) >= torch.finfo(torch.float32).tiny


def test_known_ratios_are_cut_at_a_known_threshold() -> None:
    architecture = Architecture(4, (), 1)
    rho = torch.zeros(1, 4, 1)  # sigma is log 2
    tensors = {
        "layers.0.weight.mu": torch.tensor([0.1, -3.0, 0.2, -0.05]).reshape(1, 4, 1),
        "layers.0.weight.rho": rho,
        "layers.0.bias.mu": torch.zeros(1, 1, 1),
        "layers.0.bias.rho": torch.zeros(1, 1, 1),
    }
    pruned, done = cut(tensors, architecture, 0.5, [])
    assert pruned["layers.0.weight.mu"].flatten().tolist() == pytest.approx([0.0, -3.0, 0.2, 0.0])
    assert done.threshold == pytest.approx(0.1 / np.log(2.0))
    assert float(signal_to_noise(torch.tensor(-3.0), torch.tensor(0.0))) == pytest.approx(3.0 / np.log(2.0))
    assert [layer.name for layer in done.layers] == ["layers.0.weight"]
    held, _ = cut(tensors, architecture, 0.5, [0, 3])
    assert held["layers.0.weight.mu"].flatten().tolist() == pytest.approx([0.1, -3.0, 0.0, -0.05])


def test_a_second_cut_counts_what_the_first_removed() -> None:
    once, _ = cut(_tensors(), ARCHITECTURE, 0.5, HELD)
    twice, done = cut(once, ARCHITECTURE, 0.8, HELD)
    at_once, _ = cut(_tensors(), ARCHITECTURE, 0.8, HELD)
    assert all(torch.equal(tensor, at_once[name]) for name, tensor in twice.items())
    assert done.fraction == 0.8
    gone = is_removed(once["layers.1.weight.mu"], once["layers.1.weight.rho"])
    assert bool(gone.any())
    assert bool(is_removed(twice["layers.1.weight.mu"], twice["layers.1.weight.rho"])[gone].all())


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.5, 1.5, float("nan")])
def test_a_fraction_out_of_range_is_refused(fraction: float) -> None:
    with pytest.raises(OptionError, match="strictly between 0 and 1"):
        cut(_tensors(), ARCHITECTURE, fraction, HELD)


def test_a_fraction_that_removes_nothing_new_is_refused() -> None:
    with pytest.raises(OptionError, match="less than one"):
        cut(_tensors(), ARCHITECTURE, 0.001, HELD)
    once, _ = cut(_tensors(), ARCHITECTURE, 0.5, HELD)
    with pytest.raises(OptionError, match=r"0\.5 of the weights that this version has lost"):
        cut(once, ARCHITECTURE, 0.5, HELD)


def test_inputs_that_tell_doubt_are_those_beyond_the_range_and_of_unseen_categories(rent: Posterior) -> None:
    names = [rent.encoder.names[number] for number in extrapolation_inputs(rent.encoder)]
    assert names == [
        "district is unseen",
        "size beyond the training rows",
        "day beyond the training rows",
        "combination beyond the training rows",
    ]


def test_the_histogram_holds_ratios_beyond_its_ends() -> None:
    architecture = Architecture(3, (), 1)
    tensors = {
        "layers.0.weight.mu": torch.tensor([0.0, 1.0, 1e6]).reshape(1, 3, 1),
        "layers.0.weight.rho": torch.full((1, 3, 1), 0.5413),  # sigma is 1
        "layers.0.bias.mu": torch.zeros(1, 1, 1),
        "layers.0.bias.rho": torch.zeros(1, 1, 1),
    }
    _, done = cut(tensors, architecture, 0.34, [])
    histogram = done.histogram
    assert histogram.removed[0] == 1
    assert histogram.kept[-1] == 1
    assert sum(histogram.kept) == 2
    assert len(histogram.edges) == len(histogram.kept) + 1
    assert histogram.edges[0] == pytest.approx(1e-3)
    assert histogram.edges[-1] == pytest.approx(100.0)
