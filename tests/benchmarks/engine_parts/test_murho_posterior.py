"""Murho's posterior with the parameters of a task."""

from __future__ import annotations

import numpy as np
import torch

from benchmarks.engine_parts.murho_posterior import posterior_of
from benchmarks.peers.engine_task import COLUMNS, EngineTask
from benchmarks.peers.network_task import NOISE
from murho.model.predictive.prediction import PredictOptions

TASK = EngineTask((6, 5))


def test_murho_is_given_the_parameters_of_the_task_and_a_table_of_plain_columns() -> None:
    posterior = posterior_of(TASK)
    rows = TASK.rows(7)
    columns = {f"x{number}": rows[:, number].astype(np.float64) for number in range(COLUMNS)}
    encoded = posterior.encoder.encode(columns)
    np.testing.assert_array_equal(encoded.inputs, rows)
    assert not encoded.beyond.any()
    for number, layer in enumerate(TASK.posterior()):
        rho = posterior.tensors[f"layers.{number}.weight.rho"]
        np.testing.assert_allclose(torch.nn.functional.softplus(rho)[0].numpy(), layer.weight_sigma, rtol=1e-5)
    answer = posterior.predict_encoded(encoded, PredictOptions(samples=8))
    assert answer.aleatoric_std is not None
    np.testing.assert_allclose(answer.aleatoric_std, NOISE, rtol=1e-6)
