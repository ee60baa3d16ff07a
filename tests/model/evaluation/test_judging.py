"""Judged rows: known values for Gaussians, independent of chunks and of the order of parts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from murho.model.calibration.conformal import fit_conformal_map
from murho.model.encoding.encoder import Encoded
from murho.model.errors import OptionError
from murho.model.evaluation import judging
from murho.model.evaluation.judging import judge_encoded
from murho.model.evaluation.numbers import JudgedNumbers, reliability
from murho.model.evaluation.rows import RowWeights
from tests.model.judged_rows import judge_gaussians
from tests.model.maps import odd_map

if TYPE_CHECKING:
    from murho.model.checkpoint.posterior import Posterior


def test_of_a_standard_normal_everything_is_known() -> None:
    judged = judge_gaussians(np.zeros(2), np.ones(2), np.array([1.0, -3.0]))
    np.testing.assert_allclose(judged.mean, 0.0)
    np.testing.assert_allclose(judged.values["absolute"], [1.0, 3.0])
    np.testing.assert_allclose(judged.values["nll"], 0.5 * np.log(2.0 * np.pi) + np.array([0.5, 4.5]))
    np.testing.assert_allclose(judged.served.pit, torch.special.ndtr(torch.tensor([1.0, -3.0]).double()), rtol=1e-6)
    np.testing.assert_allclose(judged.served.std, 1.0)
    np.testing.assert_allclose(judged.doubt, 0.0, atol=1e-12)
    report = judged.report()
    assert report["raw"]["coverage"] == {"50": 0.0, "80": 0.5, "90": 0.5, "95": 0.5}
    assert report["raw"]["width"]["90"] == pytest.approx(2.0 * 1.6448536, rel=1e-5)
    # The row at -3 lies 1.355 below a band of width 3.29.
    assert report["raw"]["interval_score"]["90"] == pytest.approx(3.2897 + 0.5 * 20.0 * 1.35515, rel=1e-4)
    assert report["calibrated"] is None


def test_calibrated_bands_go_through_the_map() -> None:
    """A map made from normal scores that are twice too wide doubles every band."""
    scores = 2.0 * torch.special.ndtri(torch.from_numpy(np.arange(1, 400) / 400.0)).numpy()
    calibration = fit_conformal_map(scores)
    assert calibration is not None
    report = judge_gaussians(np.zeros(1), np.ones(1), np.zeros(1), calibration).report()
    for coverage, width in report["raw"]["width"].items():
        assert report["calibrated"]["width"][coverage] == pytest.approx(2.0 * width, rel=0.01)


def test_the_std_is_that_of_answers() -> None:
    calibration = odd_map((1.0, 3.0), (2.0, 6.0), 60)
    arrays = np.zeros(2), np.ones(2), np.array([1.0, -1.0])
    judged = judge_gaussians(*arrays, calibration)
    np.testing.assert_allclose(judged.served.std, 2.0, rtol=1e-6)
    np.testing.assert_allclose(judged.bands["raw"].std, 1.0, rtol=1e-6)
    np.testing.assert_allclose(judge_gaussians(*arrays).served.std, 1.0, rtol=1e-6)


@given(st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_targets_drawn_from_the_predictive_have_a_uniform_transform(seed: int) -> None:
    generator = np.random.default_rng(seed)
    means = generator.normal(0.0, 3.0, 2000).astype(np.float32).astype(np.float64)
    stds = generator.uniform(0.1, 2.0, 2000).astype(np.float32).astype(np.float64)
    targets = generator.normal(means, stds)
    # Chance alone goes beyond 2.7 / sqrt(n) once in a million.
    for wider, uniform in ((1.0, True), (2.0, False)):
        pit = judge_gaussians(means, wider * stds, targets).served.pit
        assert (reliability(pit)["calibration_error"]["quantiles"]["max"] * 2000.0**0.5 < 2.7) is uniform


def test_chunks_and_parts_change_nothing(rent: Posterior, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(3)
    rows = Encoded.like(generator.normal(size=(50, rent.architecture.inputs)).astype(np.float32))
    targets = generator.normal(700.0, 100.0, 50)

    def judged(some: slice) -> JudgedNumbers:
        return cast("JudgedNumbers", judge_encoded(rent, rows[some], targets[some], samples=32))

    whole = judged(slice(None)).report()
    assert JudgedNumbers.joined([judged(slice(13)), judged(slice(13, None))]).report() == _close(whole)
    monkeypatch.setattr(judging, "MOST_ROWS_PER_PASS", 7)
    assert judged(slice(None)).report() == _close(whole)


@pytest.mark.parametrize("calibrated", [False, True])
def test_parts_are_the_whole_in_any_order(calibrated: bool) -> None:
    generator = np.random.default_rng(0)
    means, stds, targets = generator.normal(size=30), generator.uniform(0.5, 2.0, 30), generator.normal(size=30)
    conformal = fit_conformal_map(generator.normal(size=100)) if calibrated else None
    whole = judge_gaussians(means, stds, targets, conformal)
    order = np.concatenate([np.arange(11, 30), np.arange(4), np.arange(4, 11)])
    parts = [
        replace(judge_gaussians(means[rows], stds[rows], targets[rows], conformal), weights=None)
        for rows in np.split(order, [19, 23])
    ]
    joined = JudgedNumbers.joined(parts).of_rows(np.argsort(order))
    assert list(joined.bands) == (["raw", "calibrated"] if calibrated else ["raw"])
    np.testing.assert_array_equal(joined.targets, targets)
    np.testing.assert_array_equal(joined.served.inside, whole.served.inside)
    assert joined.report() == _close(whole.report())


def test_weighted_scores_are_those_of_repeated_rows() -> None:
    generator = np.random.default_rng(3)
    counts = generator.integers(1, 4, 300)
    means, stds = generator.normal(size=300), generator.uniform(0.5, 2.0, 300)
    targets = means + stds * generator.normal(size=300)
    weighted = judge_gaussians(means, stds, targets, weights=counts.astype(float)).report()
    repeated = judge_gaussians(np.repeat(means, counts), np.repeat(stds, counts), np.repeat(targets, counts))
    units = RowWeights.of(int(counts.sum()), units=np.repeat(np.arange(300), counts))
    expected = replace(repeated, weights=units).report()
    assert weighted.pop("n") == 300
    del expected["n"]
    assert weighted == _close(expected)


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
    rows = Encoded.like(np.zeros((1, rent.architecture.inputs), dtype=np.float32))
    with pytest.raises(OptionError, match="draw"):
        judge_encoded(rent, rows, np.zeros(1), samples=0)
