"""Gaussian noise with one learned standard deviation per member."""

from __future__ import annotations

import pytest
import torch

from murho.model.bbb.numbers import HomoscedasticNoise


def test_homoscedastic_noise_starts_where_told_and_follows_the_member_of_each_draw() -> None:
    likelihood = HomoscedasticNoise(members=2, initial=0.4)
    assert likelihood.noise(torch.zeros(2, 1, 1)).flatten().tolist() == pytest.approx([0.4, 0.4])
    with torch.no_grad():
        likelihood.rho[1] = 3.0
    members = torch.tensor([0, 1, 0])
    noise = likelihood.noise(torch.zeros(3, 1, 1), members).flatten()
    assert noise[0] == noise[2] != noise[1]
