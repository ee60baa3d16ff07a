"""Predictions of held-out rows agree with the metrics that are made of the same rows."""

from __future__ import annotations

import numpy as np
import pytest

from murho.model.evaluation.numbers import JudgedNumbers
from tests.model.conftest import make_table, train_quickly


@pytest.mark.parametrize("members", [1, 4])
def test_bands_and_pits_say_what_the_metrics_say(members: int) -> None:
    trained = train_quickly(make_table(), members=members)
    rows, metrics = trained.evidence.held_out, trained.spec.metrics
    assert isinstance(rows, JudgedNumbers)
    assert sorted(rows.rows.tolist()) == list(range(160)) or members == 1
    np.testing.assert_array_equal(rows.targets, trained.evidence.targets[rows.rows])
    assert list(rows.bands) == ["raw", "calibrated"]
    for kind, bands in rows.bands.items():
        covered = metrics[kind]["coverage"]["90"]
        assert np.mean(np.abs(2.0 * bands.pit - 1.0) <= 0.9) == pytest.approx(covered, abs=0.013)
        lower, upper = rows.mean + bands.ends[:, 4:6].T
        assert np.mean(upper - lower) == pytest.approx(metrics[kind]["width"]["90"], rel=1e-6)
        inside = (rows.targets >= lower) & (rows.targets <= upper)
        assert inside.mean() == pytest.approx(covered, abs=0.03)
    assert np.sqrt(np.mean((rows.mean - rows.targets) ** 2)) == pytest.approx(metrics["rmse"], rel=0.05)


def test_without_calibration_there_are_raw_bands_alone() -> None:
    trained = train_quickly(make_table(30))
    assert trained.spec.calibration is None
    assert isinstance(trained.evidence.held_out, JudgedNumbers)
    assert list(trained.evidence.held_out.bands) == ["raw"]
