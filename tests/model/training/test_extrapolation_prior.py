"""Weights from inputs that are zero in training are set to their prior, with a known effect on answers."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from murho.model.bbb.network import Architecture, BayesianNetwork
from murho.model.predictive.draws import make_draws
from murho.model.predictive.torch_engine import forward
from murho.model.training.extrapolation import NEGLIGIBLE_SIGMA, with_extrapolation_prior


def _tensors(architecture: Architecture) -> dict[str, torch.Tensor]:
    network = BayesianNetwork(architecture, torch.Generator().manual_seed(0))
    return {name: tensor.detach() for name, tensor in network.named_tensors().items()}


@pytest.mark.parametrize("hidden", [(), (9,), (9, 7)])
def test_every_draw_leaves_the_range_on_a_line_of_its_own(hidden: tuple[int, ...]) -> None:
    """The standard deviation over draws is the slope times the distance, for every row."""
    architecture = Architecture(4, hidden, 2, "silu", members=3, skip=bool(hidden))
    tensors = with_extrapolation_prior(_tensors(architecture), architecture, {2: 0.5, 3: 0.1})
    draws = make_draws(tensors, architecture, seed=1, samples=3000)
    rows = torch.randn(5, 4, generator=torch.Generator().manual_seed(2))
    rows[:, 2:] = 0.0
    moved = {}
    for distance in (1.0, 4.0):
        beyond = rows.clone()
        beyond[:, 2] = distance
        moved[distance] = forward(draws, beyond)[..., 0] - forward(draws, rows)[..., 0]  # [S, B]
    torch.testing.assert_close(moved[4.0], 4.0 * moved[1.0], atol=0.02, rtol=0.0)
    torch.testing.assert_close(moved[1.0], moved[1.0][:, :1].expand(-1, 5), atol=0.02, rtol=0.0)
    # 3,000 draws: the standard deviation is known to 1.3 %, the mean to 0.009.
    torch.testing.assert_close(moved[1.0].std(dim=0), torch.full((5,), 0.5), atol=0.0, rtol=0.06)
    assert float(moved[1.0].mean(dim=0).abs().max()) < 0.05


def test_each_input_has_a_slope_of_its_own_and_none_is_exactly_zero() -> None:
    architecture = Architecture(4, (9,), 1, "silu", skip=True)
    tensors = with_extrapolation_prior(_tensors(architecture), architecture, {1: 0.5, 2: 0.0})
    sigma = functional.softplus(tensors["layers.1.weight.rho"][0, [10, 11], 0])
    torch.testing.assert_close(sigma, torch.tensor([0.5, NEGLIGIBLE_SIGMA]))


def test_without_a_skip_the_first_layer_doubts() -> None:
    architecture = Architecture(3, (16,), 1, "silu", skip=False)
    tensors = with_extrapolation_prior(_tensors(architecture), architecture, {2: 0.5})
    assert not tensors["layers.0.weight.mu"][:, 2].any()
    sigma = functional.softplus(tensors["layers.0.weight.rho"][:, 2])
    torch.testing.assert_close(sigma, torch.full_like(sigma, 0.125))


def test_everything_else_stays_as_it_was_and_the_given_tensors_are_not_touched() -> None:
    architecture = Architecture(3, (6,), 2, "silu", members=2, skip=True)
    given = _tensors(architecture)
    before = {name: tensor.clone() for name, tensor in given.items()}
    noise = {"noise.rho": torch.zeros(2, 1)}
    changed = with_extrapolation_prior(given | noise, architecture, {1: 0.7})
    for name, tensor in before.items():
        assert torch.equal(given[name], tensor)
    assert torch.equal(changed.pop("noise.rho"), noise["noise.rho"])
    assert changed.keys() == before.keys()
    for name, tensor in changed.items():
        differs = (tensor != before[name]).any(dim=0).any(dim=-1).nonzero().flatten().tolist()
        expected = {"layers.0.weight": [1], "layers.1.weight": [7]}.get(name.rpartition(".")[0], [])
        assert differs == expected, name
    silent = functional.softplus(changed["layers.0.weight.rho"][:, 1])
    torch.testing.assert_close(silent, torch.full_like(silent, NEGLIGIBLE_SIGMA))
    outputs = functional.softplus(changed["layers.1.weight.rho"][:, 7])
    torch.testing.assert_close(outputs, torch.tensor([[0.7, NEGLIGIBLE_SIGMA]]).expand(2, 2))
