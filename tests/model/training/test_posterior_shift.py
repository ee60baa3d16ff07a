"""The shift of a posterior: none from itself, and known distances."""

from __future__ import annotations

import pytest
import torch
from torch.distributions import Normal, kl_divergence
from torch.nn import functional

from murho.model.bbb.network import Architecture, BayesianNetwork
from murho.model.training.updating import PosteriorShift

ARCHITECTURE = Architecture(3, (4,), 2, members=2)


def _tensors(seed: int = 0) -> dict[str, torch.Tensor]:
    network = BayesianNetwork(ARCHITECTURE, torch.Generator().manual_seed(seed))
    return {name: tensor.detach().clone() for name, tensor in network.named_tensors().items()}


def test_from_itself_it_has_not_moved() -> None:
    shift = PosteriorShift.between(_tensors(), _tensors())
    assert shift.kl == pytest.approx(0.0, abs=1e-9)
    assert shift.moved == 0.0
    assert {layer.shift for layer in shift.layers} == {0.0}


def test_a_shift_by_known_sigmas_is_told_by_layer() -> None:
    old, new = _tensors(), _tensors()
    for name, sigmas in (("layers.0.weight", 2.0), ("layers.1.bias", 0.5)):
        new[f"{name}.mu"] = old[f"{name}.mu"] + sigmas * functional.softplus(old[f"{name}.rho"])
    shift = PosteriorShift.between(old, new)
    shifts = {layer.name: (layer.shift, layer.moved) for layer in shift.layers}
    assert list(shifts) == ["layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias"]
    assert shifts["layers.0.weight"][0] == pytest.approx(2.0, rel=1e-4)
    assert shifts["layers.0.weight"][1] == 1.0
    assert shifts["layers.0.bias"] == shifts["layers.1.weight"] == (0.0, 0.0)
    assert shifts["layers.1.bias"][0] == pytest.approx(0.5, rel=1e-4)
    assert shifts["layers.1.bias"][1] == 0.0
    # Equal sigmas: half the square of each shift. A member has 12 + 4 + 8 + 2 weights and biases.
    assert shift.kl == pytest.approx(12 * 0.5 * 2.0**2 + 2 * 0.5 * 0.5**2, rel=1e-3)
    assert shift.moved == pytest.approx(12 / 26)


def test_its_divergence_is_that_of_torch_distributions() -> None:
    old, new = _tensors(), _tensors(5)
    for name in new:
        if name.endswith("rho"):
            new[name] = new[name] + 0.3
    parts = [
        kl_divergence(
            Normal(new[f"{name}.mu"].double(), functional.softplus(new[f"{name}.rho"].double())),
            Normal(old[f"{name}.mu"].double(), functional.softplus(old[f"{name}.rho"].double())),
        ).sum()
        for name in ("layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias")
    ]
    expected = float(torch.stack(parts).sum()) / ARCHITECTURE.members
    assert PosteriorShift.between(old, new).kl == pytest.approx(expected, rel=1e-4)
