"""Gaussian noise with a standard deviation per row."""

from __future__ import annotations

import torch

from murho.model.bbb.numbers import HeteroscedasticNoise


def test_with_beta_of_one_rows_pull_their_means_as_if_all_had_the_same_noise() -> None:
    outputs = torch.zeros(1, 4, 2)
    outputs[0, :, 1] = torch.tensor([-3.0, 0.0, 1.0, 4.0])
    likelihood, targets = HeteroscedasticNoise(), torch.ones(4)
    exact = likelihood.gradient(outputs, targets, 1.0)[1]
    torch.testing.assert_close(exact[0, :, 0], likelihood.noise(outputs)[0].square().reciprocal())
    weighted = likelihood.gradient(outputs, targets, 1.0, beta=1.0)[1]
    torch.testing.assert_close(weighted[0, :, 0], weighted[0, :1, 0].expand(4))
    torch.testing.assert_close(weighted[..., 1], exact[..., 1])
