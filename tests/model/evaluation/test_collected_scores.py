"""Scores that are gathered part by part are those of all rows."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from murho.model.calibration.conformal import fit_conformal_map
from murho.model.evaluation.metrics import RowWeights
from murho.model.evaluation.row_scores import RowScores
from tests.model.scored_rows import score_gaussians


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("calibrated", [False, True])
def test_parts_are_the_whole_in_any_order(weighted: bool, calibrated: bool) -> None:
    generator = np.random.default_rng(0)
    means, stds, targets = generator.normal(size=30), generator.uniform(0.5, 2.0, 30), generator.normal(size=30)
    weights = generator.uniform(0.1, 3.0, 30) if weighted else None
    conformal = fit_conformal_map(generator.normal(size=100)) if calibrated else None
    whole = score_gaussians(means, stds, targets, conformal, weights)
    order = np.concatenate([np.arange(11, 30), np.arange(4), np.arange(4, 11)])
    parts = [
        score_gaussians(means[rows], stds[rows], targets[rows], conformal, None if weights is None else weights[rows])
        for rows in np.split(order, [19, 23])
    ]
    joined = RowScores.joined(parts).of_rows(np.argsort(order))
    for field in fields(RowScores):
        of_joined, of_whole = getattr(joined, field.name), getattr(whole, field.name)
        if field.name not in ("raw", "calibrated"):
            # Processors round the last values of an array, which do not fill a vector, in their own way.
            np.testing.assert_allclose(of_joined, of_whole, rtol=1e-13)
    assert (joined.calibrated is None) is not calibrated
    rows = RowWeights.of(30, weights)
    for bands in ("raw", "calibrated")[: 1 + calibrated]:
        of_joined, of_whole = getattr(joined, bands), getattr(whole, bands)
        np.testing.assert_array_equal(of_joined.inside, of_whole.inside)
        assert of_joined.pinball_report() == pytest.approx(of_whole.pinball_report())
        for key, values in of_whole.report(rows).items():
            assert of_joined.report(rows)[key] == pytest.approx(values)
