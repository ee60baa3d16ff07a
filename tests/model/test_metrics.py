"""Scores with known values."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from model.metrics import COVERAGES, band_levels, coverage_and_width, scores, summary


def test_band_levels_are_the_ends_of_central_bands() -> None:
    assert band_levels() == [25.0, 75.0, 10.0, 90.0, 5.0, 95.0, 2.5, 97.5]


def test_coverage_counts_both_ends_and_width_is_a_mean() -> None:
    bands = np.array([[0.0, 1.0] * len(COVERAGES), [0.0, 3.0] * len(COVERAGES)])
    report = coverage_and_width(bands, np.array([1.0, 3.1]))
    assert report == {
        "coverage": {"50": 0.5, "80": 0.5, "90": 0.5, "95": 0.5},
        "width": {"50": 2.0, "80": 2.0, "90": 2.0, "95": 2.0},
    }


def test_scores_of_a_standard_normal_predictive() -> None:
    means, noise = torch.zeros(4, 2).double(), torch.ones(4, 1).double()
    report = scores(means, noise, torch.tensor([1.0, -3.0]).double())
    assert report["rmse"] == pytest.approx(math.sqrt(5.0))
    assert report["mae"] == pytest.approx(2.0)
    assert report["nll"] == pytest.approx(0.5 * math.log(2.0 * math.pi) + 2.5)


def test_summary_shows_units_and_both_kinds_of_bands() -> None:
    bands = {"coverage": {"90": 0.875}, "width": {"90": 4.0}}
    facts = {"rmse": 1.0, "mae": 1.0, "nll": 1.0, "crps": 1.0, "raw": bands, "calibrated": None}
    lines = summary(facts, "mpg")
    assert "RMSE 1 mpg" in lines[0]
    assert lines[1:] == ["coverage of raw bands   90 %: 87.5 %"]
