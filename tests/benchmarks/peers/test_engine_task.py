"""The task of the engine benchmark: its posterior and rows, and what a script says of its calls."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pytest
import torch

from benchmarks.peers.engine_task import (
    COLUMNS,
    EDGE,
    INPUTS,
    LEVELS,
    SHOWN,
    EngineTask,
    engine_session,
    inverse_softplus,
    percentiles_of,
    shown_rows,
)
from benchmarks.peers.exchange import drive

if TYPE_CHECKING:
    from numpy.typing import NDArray

TASK = EngineTask((6, 5))


def test_a_task_survives_the_command_line() -> None:
    task = EngineTask((64, 64), noise="heteroscedastic", variant="parallel", threads=2, seed=3)
    assert EngineTask.from_json(task.to_json()) == task
    assert task.sizes == [(INPUTS, 64), (64, 64), (64, 2)]


@pytest.mark.parametrize(
    ("hidden", "parameters", "products"),
    [
        ((50,), 901, 16 * 50 + 50),
        ((64, 64), 5313, 16 * 64 + 64 * 64 + 64),
        ((256, 256), 70401, 16 * 256 + 256 * 256 + 256),
    ],
)
def test_parameters_and_operations_are_counted(hidden: tuple[int, ...], parameters: int, products: int) -> None:
    task = EngineTask(hidden)
    assert task.parameters == parameters
    assert task.flops(256, 32) == 2 * 256 * 32 * products
    drawn = task.posterior()
    assert sum(layer.weight_mu.size + layer.bias_mu.size for layer in drawn) == parameters


def test_the_posterior_is_the_same_for_everybody_and_its_sigmas_are_of_the_means_scale() -> None:
    task, again = EngineTask((64, 64)), EngineTask((64, 64), variant="parallel", threads=2)
    for one, other in zip(task.posterior(), again.posterior(), strict=True):
        for mine, its in zip(one, other, strict=True):
            np.testing.assert_array_equal(mine, its)
            assert mine.dtype == np.float32
    middle = task.posterior()[1]
    scale = (2.0 / 64) ** 0.5
    assert middle.weight_mu.std() == pytest.approx(scale, rel=0.05)
    assert 0.15 * scale <= middle.weight_sigma.min() < middle.weight_sigma.max() <= 0.4501 * scale


def test_rows_lie_within_the_training_range_and_differ() -> None:
    rows = EngineTask((4,)).rows(1000)
    assert rows.shape == (1000, INPUTS)
    assert rows.dtype == np.float32
    assert len(np.unique(rows, axis=0)) == 1000
    assert 0.99 * EDGE < np.abs(rows[:, :COLUMNS]).max() <= EDGE
    assert not rows[:, COLUMNS:].any()  # the inputs for what lies beyond


def test_rho_is_the_inverse_of_softplus() -> None:
    sigma = np.array([1e-3, 0.1, 1.0, 30.0], dtype=np.float32)
    back = torch.nn.functional.softplus(torch.from_numpy(inverse_softplus(sigma)))
    np.testing.assert_allclose(back.numpy(), sigma, rtol=1e-5)


@pytest.mark.parametrize(("batch", "count"), [(1, 1), (5, 5), (SHOWN, SHOWN), (20_000, SHOWN)])
def test_compared_rows_are_spread_over_the_batch(batch: int, count: int) -> None:
    rows = shown_rows(batch)
    assert len(rows) == count
    assert rows[0] == 0
    assert rows[-1] == batch - 1


@pytest.mark.parametrize("samples", [1, 64, 256])
def test_percentiles_of_draws_are_those_of_numpy(samples: int) -> None:
    observations = np.random.default_rng(0).normal(size=(samples, 7)).astype(np.float32)
    expected = np.percentile(observations, LEVELS, axis=0).T
    np.testing.assert_allclose(percentiles_of(observations), expected, atol=1e-6)


def test_a_script_times_each_kind_of_call_and_answers_until_its_input_ends(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def calls(task: EngineTask) -> dict[str, Any]:
        def call(rows: NDArray[np.float32], samples: int) -> dict[str, NDArray[Any]]:
            made.append("call")
            return {"mean": rows[:, 0], "epistemic_std": np.full(len(rows), float(samples))}

        def other(rows: NDArray[np.float32], samples: int) -> dict[str, NDArray[Any]]:
            made.append("other")
            return {}

        return {"call": call, "other": other}

    line = '{"batch": 100, "samples": 3, "seconds": 0.0}\n'
    monkeypatch.setattr(sys, "stdin", io.StringIO(line + line))
    drive(["engine", TASK.to_json()], engine=engine_session(calls))
    ready, first, second = (orjson.loads(said) for said in capsys.readouterr().out.splitlines())
    assert ready == {"parameters": TASK.parameters}
    # Once for the first, untimed in the rounds; then once a round.
    assert made == ["call", "other"] * 3
    assert first["first"] == second["first"]
    assert first["times"].keys() == second["times"].keys() == {"call", "other"}
    expected = TASK.rows(100)[shown_rows(100), 0]
    np.testing.assert_array_equal(np.float32(first["answers"]["mean"]), expected)
    assert first["answers"]["epistemic_std"] == [3.0] * SHOWN
