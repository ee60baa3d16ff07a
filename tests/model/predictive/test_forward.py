"""The forward pass is its definition in double precision, whatever the tiles and the threads."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from murho.model.bbb.network import ACTIVATIONS
from murho.model.predictive import compiled_engine as compiled_engine_module
from murho.model.predictive import forward as forward_module
from murho.model.predictive.compiled_engine import CompiledEngine, load
from murho.model.predictive.draws import Draws
from tests.model.conftest import present
from tests.model.oracles import biases_of, weights_of
from tests.model.predictive.engine_contract import target_model

Forward = Callable[[Draws, Tensor], Tensor]


@pytest.fixture(params=["torch", "compiled"])
def forward(request: pytest.FixtureRequest) -> Forward:
    """Return the forward pass of every engine."""
    if request.param == "torch":
        return forward_module.forward
    return _compiled().forward


def _compiled(**changes: Any) -> CompiledEngine:
    return CompiledEngine(target_model("fixed"), replace(present(load()), **changes))


def _draws(
    samples: int, hidden: tuple[int, ...], outputs: int, *, activation: str = "silu", skip: bool = False
) -> Draws:
    """Draws of a network of three inputs."""
    generator = torch.Generator().manual_seed(samples)
    widths = (3, *hidden, outputs)
    weights, biases = [], []
    for index, units in enumerate(widths[1:]):
        inputs = widths[index] + (3 if skip and hidden and index == len(hidden) else 0)
        weights.append(torch.randn(samples, inputs, units, generator=generator) / inputs**0.5)
        biases.append(torch.randn(samples, 1, units, generator=generator))
    return Draws.of(weights, biases, torch.zeros(samples).long(), activation=activation, skip=skip)


def _rows(count: int) -> Tensor:
    return torch.randn(count, 3, generator=torch.Generator().manual_seed(1))


def _defined(draws: Draws, rows: Tensor) -> Tensor:
    """Return a loop over draws and layers, float64."""
    outputs = []
    for draw in range(len(draws)):
        values = inputs = rows.double()
        last = len(weights_of(draws)) - 1
        for index, (weight, bias) in enumerate(zip(weights_of(draws), biases_of(draws), strict=True)):
            if index:
                values = ACTIVATIONS[draws.activation](values)
            if draws.skip and index == last > 0:
                values = torch.cat((values, inputs), dim=1)
            values = values @ weight[draw].double() + bias[draw].double()
        outputs.append(values)
    return torch.stack(outputs)


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("hidden", [(), (1,), (4, 9, 4)])
def test_forward_is_its_definition(forward: Forward, hidden: tuple[int, ...], skip: bool, activation: str) -> None:
    for samples, outputs, batch in ((6, 2, 0), (1, 1, 1), (6, 2, 3), (6, 1, 40)):
        draws, rows = _draws(samples, hidden, outputs, activation=activation, skip=skip), _rows(batch)
        torch.testing.assert_close(forward(draws, rows).double(), _defined(draws, rows), rtol=1e-5, atol=1e-5)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    samples=st.integers(1, 20),
    batch=st.integers(1, 200),
    tile_floats=st.integers(1, 3000),
    tile_rows=st.integers(1, 250),
    threads=st.integers(1, 3),
    skip=st.booleans(),
)
def test_tiles_and_threads_change_nothing(
    forward: Forward, samples: int, batch: int, tile_floats: int, tile_rows: int, threads: int, skip: bool
) -> None:
    draws, rows = _draws(samples, (8, 5), 2, skip=skip), _rows(batch)
    expected = _defined(draws, rows)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with (
            mock.patch.object(forward_module, "TILE_FLOATS", tile_floats),
            mock.patch.object(forward_module, "TILE_ROWS", tile_rows),
            mock.patch.object(compiled_engine_module, "TILE_FLOATS", tile_floats),
            mock.patch.object(compiled_engine_module, "LEAST_ROWS", min(tile_rows, 8)),
            mock.patch.object(compiled_engine_module, "MOST_ROWS", tile_rows),
        ):
            outputs = forward(draws, rows)
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(outputs.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("batch", [1, 20])
@pytest.mark.parametrize("skip", [False, True])
def test_in_double_precision_large_outputs_are_rounded_once(
    skip: bool, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws, rows = _draws(7, (8, 5), 2, skip=skip), 1e4 * _rows(batch)
    expected = _defined(draws, rows).float()
    assert not torch.equal(forward_module.forward(draws, rows), expected)
    for at_a_time in (3, 7):
        monkeypatch.setattr(forward_module, "DOUBLE_BYTES", at_a_time * 2 * draws.nbytes // 7)
        torch.testing.assert_close(forward_module.forward_in_double(draws, rows), expected, rtol=1.2e-7, atol=1e-6)


@pytest.mark.parametrize(("zeros", "samples"), [(0, 12), (2, 7), (3, 12)])
def test_a_row_with_zeros_reads_fewer_weights_and_has_the_same_outputs(
    forward: Forward, zeros: int, samples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws, rows = _draws(12, (8, 5), 2), _rows(1)
    rows[0, :zeros] = 0.0
    expected = _defined(draws, rows)[:samples]
    monkeypatch.setattr(forward_module, "SPARSE_FLOATS", 1)
    torch.testing.assert_close(forward(draws.some(slice(samples)), rows).double(), expected, rtol=1e-5, atol=1e-5)


def test_with_another_library_behind_pytorch_outputs_are_pytorch_s() -> None:
    draws, rows = _draws(6, (8, 5), 2), _rows(40)
    outputs = _compiled(forward_draws=None).forward(draws, rows)
    assert torch.equal(outputs, forward_module.forward(draws, rows))
