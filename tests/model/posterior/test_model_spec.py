"""The network that model.json describes, and what is refused of it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from murho.model.errors import CheckpointError
from murho.model.networks.bayesian_network import Architecture
from murho.model.posterior.model_spec import Layout

FACTS: dict[str, Any] = {
    "architecture": {
        "inputs": 3,
        "hidden": [8],
        "outputs": 1,
        "activation": "relu",
        "members": 2,
        "skip": False,
    },
    "likelihood": {"kind": "homoscedastic", "sigma": None, "components": None},
}


def _with(**parts: dict[str, Any]) -> dict[str, Any]:
    facts = copy.deepcopy(FACTS)
    for part, changes in parts.items():
        facts[part] |= changes
    return facts


def test_it_has_the_sizes_and_the_shapes_of_all_tensors() -> None:
    layout = Layout.from_facts(FACTS)
    assert layout.architecture == Architecture(3, (8,), 1, "relu", 2, skip=False)
    assert layout.shapes() == {
        "layers.0.weight.mu": (2, 3, 8),
        "layers.0.weight.rho": (2, 3, 8),
        "layers.0.bias.mu": (2, 1, 8),
        "layers.0.bias.rho": (2, 1, 8),
        "layers.1.weight.mu": (2, 8, 1),
        "layers.1.weight.rho": (2, 8, 1),
        "layers.1.bias.mu": (2, 1, 1),
        "layers.1.bias.rho": (2, 1, 1),
        "noise.rho": (2, 1),
    }


@pytest.mark.parametrize(
    ("likelihood", "outputs"),
    [
        ({"kind": "fixed", "sigma": 0.5}, 1),
        ({"kind": "heteroscedastic"}, 2),
        ({"kind": "mixture", "components": 3}, 9),
    ],
)
def test_noise_that_the_network_sets_has_no_tensor_of_its_own(
    likelihood: dict[str, Any], outputs: int
) -> None:
    layout = Layout.from_facts(_with(likelihood=likelihood, architecture={"outputs": outputs}))
    assert layout.likelihood.kind == likelihood["kind"]
    assert not [name for name in layout.shapes() if name.startswith("noise")]


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({}, "architecture"),
        (_with(architecture={"inputs": True}), "expected a whole number, found True"),
        (_with(architecture={"inputs": 3.0}), r"expected a whole number, found 3\.0"),
        (_with(architecture={"inputs": 0}), "at least one input"),
        (_with(architecture={"hidden": ["8"]}), "expected a whole number, found '8'"),
        (_with(architecture={"hidden": None}), "architecture or likelihood is malformed"),
        (_with(architecture={"activation": "step"}), "activation must be one of"),
        (_with(likelihood={"kind": "poisson"}), "noise must be one of"),
        (_with(likelihood={"kind": "fixed"}), "fixed noise needs its standard deviation"),
        (_with(likelihood={"kind": "heteroscedastic"}), "outputs is 1, but heteroscedastic noise takes 2"),
    ],
)
def test_what_does_not_fit_is_refused_and_named(facts: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        Layout.from_facts(facts)


@pytest.mark.parametrize("part", ["inputs", "hidden", "outputs", "activation", "members", "skip"])
def test_nothing_may_be_absent(part: str) -> None:
    facts = _with()
    del facts["architecture"][part]
    with pytest.raises(CheckpointError, match=part):
        Layout.from_facts(facts)
