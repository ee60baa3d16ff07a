"""Fits side by side as one."""

from __future__ import annotations

import pytest
import torch

from model.fitting import fit
from model.stacking import stacked
from tests.model.conftest import small_options, small_rows


@pytest.mark.parametrize("noise", ["homoscedastic", "heteroscedastic"])
def test_the_stack_answers_with_the_members_of_both_in_their_order(noise: str) -> None:
    rows = small_rows(20)
    parts = [fit(rows, rows, small_options(members=2, noise=noise, seed=seed)) for seed in (0, 10)]
    for part in parts:
        part.network.rho.detach().fill_(-30.0)  # no draw differs from the next
    both = stacked(parts)
    assert both.network.architecture.members == 4
    with torch.no_grad():
        outputs = both.network(rows.features, torch.Generator())
        apart = [part.network(rows.features, torch.Generator()) for part in parts]
        torch.testing.assert_close(outputs, torch.cat(apart))
        densities = both.likelihood.log_density(outputs, rows.targets)
        torch.testing.assert_close(
            densities,
            torch.cat(
                [
                    part.likelihood.log_density(out, rows.targets)
                    for part, out in zip(parts, apart, strict=True)
                ]
            ),
        )
    assert not torch.equal(outputs[0], outputs[2])


def test_the_parts_stay_as_they_are() -> None:
    rows = small_rows(20)
    parts = [fit(rows, rows, small_options(members=2, seed=seed)) for seed in (0, 10)]
    both = stacked(parts)
    with torch.no_grad():
        for parameter in (*both.network.parameters(), *both.likelihood.parameters()):
            parameter.zero_()
    assert float(parts[0].network.mu.detach().abs().sum()) > 0.0
    assert float(dict(parts[0].likelihood.named_parameters())["rho"].detach().abs().sum()) > 0.0
