"""What the scripts of PyTorch's libraries share."""

from __future__ import annotations

import numpy as np
import torch

from benchmarks.peers.engine_task import LEVELS, EngineTask
from benchmarks.peers.network_task import NOISE
from benchmarks.peers.step_task import StepTask
from benchmarks.peers.torch_parts import begin, calls_of, load, module_calls, module_steps, sequential

TASK = EngineTask((6, 5))


def test_a_library_of_pytorch_is_timed_with_and_without_percentiles() -> None:
    calls = calls_of(lambda rows, samples: rows[:, :1].expand(samples, -1, -1))  # every draw says the same
    rows = TASK.rows(3)
    for kind, answer in ((kind, call(rows, 20_000)) for kind, call in calls.items()):
        np.testing.assert_allclose(answer["mean"], rows[:, 0], rtol=1e-5)
        np.testing.assert_allclose(answer["epistemic_std"], 0.0, atol=1e-5)
        assert ("percentiles" in answer) == (kind == "percentiles")
    scores = torch.special.ndtri(torch.tensor(LEVELS) / 100.0).numpy()
    np.testing.assert_allclose(answer["percentiles"], rows[:, :1] + NOISE * scores, atol=0.02)


class _Sampling(torch.nn.Linear):
    """A layer whose weights are drawn in every forward pass; the log of sigma is kept."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.weight_log_sigma = torch.nn.Parameter(torch.full((outputs, inputs), -5.0))
        self.bias_log_sigma = torch.nn.Parameter(torch.full((outputs,), -5.0))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        weight, bias = (
            mu + log_sigma.exp() * torch.randn_like(mu)
            for mu, log_sigma in ((self.weight, self.weight_log_sigma), (self.bias, self.bias_log_sigma))
        )
        return torch.nn.functional.linear(rows, weight, bias)


def test_a_network_answers_from_the_posterior_that_it_was_given() -> None:
    task = EngineTask(())
    begin(task)
    model = sequential([_Sampling(*sizes) for sizes in task.sizes], torch.nn.SiLU)
    load(model, task, ("weight", "weight_log_sigma", "bias", "bias_log_sigma"), np.log)
    rows, (layer,) = task.rows(4), task.posterior()
    answer = module_calls(model)["call"](rows, 4000)
    std = np.sqrt(rows**2 @ layer.weight_sigma[:, 0] ** 2 + layer.bias_sigma[0] ** 2)
    expected = rows @ layer.weight_mu[:, 0] + layer.bias_mu[0]
    np.testing.assert_allclose(answer["mean"], expected, atol=0.1 * std.max())
    np.testing.assert_allclose(answer["epistemic_std"], std, rtol=0.05)


def test_steps_of_a_module_teach_it() -> None:
    task = StepTask((20,), 64, rows=640)
    begin(task)
    model = sequential([_Sampling(*sizes) for sizes in task.sizes], torch.nn.ReLU)
    steps = module_steps(model, task, lambda rows, targets: (model(rows) - targets).square().mean())
    rows, targets = task.data()
    steps.take(steps=400)
    assert np.sqrt(np.mean((steps.predict(rows) - targets) ** 2)) < 2.5 * NOISE
