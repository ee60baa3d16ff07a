"""Murho's side of the engine benchmark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.engine_parts.reference import deviations, disagreement, exact_answers, independent_moments
from benchmarks.peers import murho_predictions
from benchmarks.peers.engine_task import EngineTask
from benchmarks.peers.murho_predictions import prepare
from murho.model.predictive.compiled_engine import CompiledEngine

if TYPE_CHECKING:
    import torch

    from murho.model.predictive.draws import Draws

TASK = EngineTask((6, 5))


@pytest.mark.parametrize("noise", ["fixed", "heteroscedastic", "mixture"])
def test_murhos_answers_are_those_of_double_precision(noise: str) -> None:
    task = EngineTask((32, 32), noise=noise)
    calls = prepare(task)
    rows = task.rows(20)
    found = deviations(calls["call"](rows, 64), exact_answers(task, rows, 64))
    assert set(found) == {"mean", "std", "percentiles"}
    assert max(found.values()) < 1e-5


@pytest.mark.parametrize("noise", ["heteroscedastic", "mixture"])
def test_mean_and_std_of_learned_noise_agree_with_another_monte_carlo(noise: str) -> None:
    task = EngineTask((16,), noise=noise)
    rows = task.rows(40)
    answer = prepare(task)["call"](rows, 1024)
    assert max(disagreement([answer], 1024, independent_moments(task, rows))) < 3.0


def test_the_other_calls_of_murho_draw_anew_and_stop_behind_the_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls, rows = prepare(TASK), TASK.rows(3)
    made: list[int] = []
    # Two rows at a time, so that two calls are needed.
    monkeypatch.setattr(murho_predictions, "VALUES_AT_A_TIME", 8)

    def counted(_: CompiledEngine, draws: Draws, rows: torch.Tensor) -> None:
        assert len(draws) == 4
        made.append(len(rows))

    before = calls["call"](rows, 4)["mean"]
    calls["fresh"](rows, 4)
    np.testing.assert_array_equal(calls["call"](rows, 4)["mean"], before)
    monkeypatch.setattr(CompiledEngine, "forward", counted)
    calls["network"](rows, 4)
    assert made == [2, 1]
