"""Scores of rows: known values for Gaussians, independent of chunks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from murho.model.calibration.conformal import fit_conformal_map
from murho.model.errors import OptionError
from murho.model.evaluation import row_scores as row_scores_module
from murho.model.evaluation.metrics import PERCENTILES, RowWeights, kolmogorov_smirnov, pit_of
from murho.model.evaluation.row_scores import RowScores, score_rows
from tests.model.maps import odd_map
from tests.model.scored_rows import gaussian_posterior, score_gaussians

if TYPE_CHECKING:
    from murho.model.checkpoint.posterior import Posterior


def test_of_a_standard_normal_everything_is_known() -> None:
    row_scores = score_gaussians(np.zeros(2), np.ones(2), np.array([1.0, -3.0]))
    np.testing.assert_allclose(row_scores.errors, [-1.0, 3.0])
    np.testing.assert_allclose(row_scores.nll, 0.5 * np.log(2.0 * np.pi) + np.array([0.5, 4.5]))
    np.testing.assert_allclose(row_scores.scores, [1.0, -3.0], rtol=1e-9)
    np.testing.assert_allclose(row_scores.std, 1.0)
    np.testing.assert_allclose(row_scores.epistemic, 0.0, atol=1e-12)
    report = row_scores.report()
    assert report["raw"]["coverage"] == {"50": 0.0, "80": 0.5, "90": 0.5, "95": 0.5}
    assert report["raw"]["width"]["90"] == pytest.approx(2.0 * 1.6448536, rel=1e-5)
    # The row at -3 lies 1.355 below a band of width 3.29.
    assert report["raw"]["interval_score"]["90"] == pytest.approx(3.2897 + 0.5 * 20.0 * 1.35515, rel=1e-4)
    assert report["calibrated"] is None


def test_calibrated_bands_go_through_the_map() -> None:
    """A map made from normal scores that are twice too wide doubles every band."""
    levels = (np.arange(1, 400) / 400.0)[:, None]
    scores = 2.0 * torch.special.ndtri(torch.from_numpy(0.5 + 0.5 * levels)).numpy()[:, 0]
    calibration = fit_conformal_map(scores)
    assert calibration is not None
    report = score_gaussians(np.zeros(1), np.ones(1), np.zeros(1), calibration).report()
    for coverage, width in report["raw"]["width"].items():
        assert report["calibrated"]["width"][coverage] == pytest.approx(2.0 * width, rel=0.01)


def test_std_and_its_ratio_to_the_errors_are_those_of_answers() -> None:
    calibration = odd_map((1.0, 3.0), (2.0, 6.0), 60)
    arrays = np.zeros(2), np.ones(2), np.array([1.0, -1.0])
    row_scores = score_gaussians(*arrays, calibration)
    np.testing.assert_allclose(row_scores.std, 2.0, rtol=1e-6)
    report = row_scores.report()
    assert report["raw"]["rms_std_ratio"] == pytest.approx(1.0, rel=1e-6)
    assert report["calibrated"]["rms_std_ratio"] == pytest.approx(0.5, rel=1e-6)
    np.testing.assert_allclose(score_gaussians(*arrays).std, 1.0, rtol=1e-6)


@given(st.integers(0, 2**32), st.floats(0.1, 50.0))
@settings(max_examples=25, deadline=None)
def test_twice_the_pinball_loss_over_all_levels_is_the_crps(seed: int, scale: float) -> None:
    generator = np.random.default_rng(seed)
    means, stds = generator.normal(0.0, scale, 40), scale * generator.uniform(0.5, 2.0, 40)
    row_scores = score_gaussians(means, stds, generator.normal(means, stds))
    # 99 levels are a trapezoidal rule in steps of 1 % without its ends, which are zero or small.
    crps = 2.0 * row_scores.raw.pinball_report()["mean"] * len(PERCENTILES) / 100.0
    assert crps == pytest.approx(row_scores.crps.mean(), rel=0.02)


@given(st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_targets_drawn_from_the_predictive_have_a_uniform_transform(seed: int) -> None:
    generator = np.random.default_rng(seed)
    means = generator.normal(0.0, 3.0, 2000).astype(np.float32)
    stds = generator.uniform(0.1, 2.0, 2000).astype(np.float32)
    rows = np.stack([means, stds], axis=1)
    scores = score_rows(gaussian_posterior(), rows, generator.normal(means, stds), samples=1).scores
    # Chance alone goes beyond 2.7 / sqrt(n) once in a million.
    assert kolmogorov_smirnov(pit_of(scores)) * 2000.0**0.5 < 2.7
    assert kolmogorov_smirnov(pit_of(0.5 * scores)) * 2000.0**0.5 > 2.7


def test_chunks_and_parts_change_nothing(rent: Posterior, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(3)
    rows = generator.normal(size=(50, rent.architecture.inputs)).astype(np.float32)
    targets = generator.normal(700.0, 100.0, 50)

    def row_scores(some: slice) -> RowScores:
        return score_rows(rent, rows[some], targets[some], samples=32, calibration=rent.calibration)

    whole = row_scores(slice(None)).report()
    assert RowScores.joined([row_scores(slice(13)), row_scores(slice(13, None))]).report() == _close(whole)
    monkeypatch.setattr(row_scores_module, "MOST_ROWS_PER_PASS", 7)
    assert row_scores(slice(None)).report() == _close(whole)


def test_weighted_scores_are_those_of_repeated_rows() -> None:
    generator = np.random.default_rng(3)
    counts = generator.integers(1, 4, 300)
    means, stds = generator.normal(size=300), generator.uniform(0.5, 2.0, 300)
    targets = means + stds * generator.normal(size=300)
    weights = counts.astype(float)
    weighted = score_gaussians(means, stds, targets, weights=weights).report(RowWeights.of(300, weights))
    repeated = score_gaussians(np.repeat(means, counts), np.repeat(stds, counts), np.repeat(targets, counts)).report()
    assert weighted.pop("n") == 300
    del repeated["n"]
    assert weighted == _close(repeated)


def _close(report: dict[str, object]) -> dict[str, object]:
    return {
        key: _close(value)
        if isinstance(value, dict)
        else pytest.approx(value, rel=1e-5)
        if isinstance(value, float)
        else value
        for key, value in report.items()
    }


def test_without_draws_there_is_nothing_to_judge(rent: Posterior) -> None:
    rows = np.zeros((1, rent.architecture.inputs), dtype=np.float32)
    with pytest.raises(OptionError, match="draw"):
        score_rows(rent, rows, np.zeros(1), samples=0)
