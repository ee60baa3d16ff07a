"""The running average of parameters."""

from __future__ import annotations

import torch

from murho.model.bbb.optimisers import ParameterAverage


def test_the_average_of_constant_parameters_is_those_parameters() -> None:
    parameter = torch.tensor([1.0, -2.0])
    averaged = ParameterAverage([parameter])
    for _ in range(10):
        averaged.step()
    torch.testing.assert_close(averaged.average[0], parameter)


def test_noise_around_a_value_is_averaged_out() -> None:
    generator = torch.Generator().manual_seed(0)
    parameter = torch.zeros(1000)
    averaged = ParameterAverage([parameter])
    for _ in range(600):
        parameter.copy_(torch.randn(1000, generator=generator))
        averaged.step()
    assert float(averaged.average[0].std()) < 0.15


def test_the_best_average_stays_when_parameters_move_on() -> None:
    parameter = torch.ones(3)
    averaged = ParameterAverage([parameter])
    averaged.keep()
    parameter.fill_(5.0)
    averaged.step()
    before = averaged.load(averaged.best)
    assert parameter.tolist() == [1.0, 1.0, 1.0]
    assert before[0].tolist() == [5.0, 5.0, 5.0]
