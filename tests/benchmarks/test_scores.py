"""Scores from quantiles, against closed forms and counts."""

import numpy as np
import pytest
import torch

from benchmarks.datasets import SETS, UCI, splits
from benchmarks.scores import COVERAGES, LEVELS, normal_quantiles, quantile_scores


def test_crps_by_pinball_is_near_the_closed_form_of_normals() -> None:
    generator = np.random.default_rng(0)
    mean, std = generator.normal(size=4000), generator.uniform(0.5, 3.0, size=4000)
    target = mean + std * generator.normal(size=4000)
    # Gneiting & Raftery 2007, equation 5.
    z = torch.from_numpy((target - mean) / std)
    densities = torch.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
    of_rows = z * (2.0 * torch.special.ndtr(z) - 1.0) + 2.0 * densities - 1.0 / np.sqrt(np.pi)
    closed = float((std * of_rows.numpy()).mean())
    assert quantile_scores(normal_quantiles(mean, std), target)["crps"] == pytest.approx(closed, rel=0.01)


def test_coverage_and_width_of_uniform_quantiles() -> None:
    quantiles = np.tile(np.array(LEVELS), (1000, 1))  # the uniform distribution on 0 to 100
    target = np.arange(1000) / 10.0 + 0.05
    scores = quantile_scores(quantiles, target)
    for nominal in COVERAGES:
        assert scores["coverage"][str(nominal)] == pytest.approx(nominal / 100.0)
        assert scores["width"][str(nominal)] == pytest.approx(float(nominal))


def test_standard_splits_begin_with_the_known_rows() -> None:
    # np.random.seed(1), then np.random.choice(range(n), n, replace=False) for each split.
    first, second, *_ = splits(UCI["yacht"], 20)
    assert first.training[:6].tolist() == [73, 304, 228, 238, 259, 164]
    assert first.test[-3:].tolist() == [72, 235, 37]
    assert second.training[:6].tolist() == [162, 101, 114, 20, 23, 182]
    assert splits(UCI["energy"], 1)[0].training[:6].tolist() == [285, 101, 581, 352, 726, 472]


@pytest.mark.parametrize("name", SETS)
def test_each_row_is_in_one_part_of_every_split(name: str) -> None:
    dataset = SETS[name]
    made = splits(dataset, 3)
    assert len(made) == 3
    share = 0.9 if dataset.standard else 0.8
    for split in made:
        assert np.array_equal(np.sort(np.concatenate([split.training, split.test])), np.arange(dataset.rows))
        assert abs(len(split.training) - share * dataset.rows) < 1.0
