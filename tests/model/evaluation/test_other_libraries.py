"""Murho's metrics equal those of uncertainty-toolbox and MAPIE on the same predictions."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from mapie.metrics import regression as mapie

from murho.model.evaluation.judging import evaluate_table
from murho.model.evaluation.numbers import BAND_LEVELS, COVERAGES, reliability
from murho.model.predictive.prediction import PredictOptions
from murho.model.tables.schema_inference import columns_from_table
from tests.model.conftest import make_table
from tests.model.judged_rows import judge_gaussians

with warnings.catch_warnings():
    # Python's own complaint about its source, made once, when it is first compiled.
    warnings.simplefilter("ignore")
    import uncertainty_toolbox as toolbox

if TYPE_CHECKING:
    from murho.model.checkpoint.posterior import Posterior
    from murho.model.evaluation.numbers import JudgedNumbers


class Predictions(NamedTuple):
    """One Gaussian a row, as a judgement and as the arrays that other libraries take."""

    judged: JudgedNumbers
    arrays: tuple[np.ndarray, np.ndarray, np.ndarray]


@pytest.fixture(scope="module", params=[0.4, 1.0, 2.5], ids=["overconfident", "right", "underconfident"])
def predictions(request: pytest.FixtureRequest) -> Predictions:
    generator = np.random.default_rng(8)
    means = generator.normal(50.0, 20.0, 400).astype(np.float32).astype(np.float64)
    noise = generator.uniform(0.5, 6.0, 400)
    targets = generator.normal(means + 0.4, noise)  # a little off, so that errors have a sign
    stds = (request.param * noise).astype(np.float32).astype(np.float64)
    return Predictions(judge_gaussians(means, stds, targets), (means, stds, targets))


def test_point_scores(predictions: Predictions) -> None:
    means, _, targets = predictions.arrays
    theirs = toolbox.prediction_error_metrics(means, targets)
    report = predictions.judged.report()
    for ours, name in (("rmse", "rmse"), ("mae", "mae"), ("r2", "r2")):
        assert report[ours] == pytest.approx(theirs[name], rel=1e-9)


def test_nll_crps_and_sharpness(predictions: Predictions) -> None:
    report = predictions.judged.report()
    assert report["nll"] == pytest.approx(toolbox.nll_gaussian(*predictions.arrays), rel=1e-9)
    assert report["crps"] == pytest.approx(toolbox.crps_gaussian(*predictions.arrays), rel=1e-5)
    sharpness = np.sqrt(np.mean(predictions.judged.served.std**2))
    assert sharpness == pytest.approx(toolbox.sharpness(predictions.arrays[1]), rel=1e-9)


def test_interval_scores(predictions: Predictions) -> None:
    report = predictions.judged.report()["raw"]["interval_score"]
    for coverage in COVERAGES:
        one = {"start_p": coverage / 100.0, "end_p": coverage / 100.0, "resolution": 1}
        theirs = toolbox.interval_score(*predictions.arrays, **one)
        assert report[str(coverage)] == pytest.approx(theirs, rel=1e-5)


@pytest.mark.parametrize(("ours", "theirs"), [("quantiles", "quantile"), ("bands", "interval")])
def test_calibration_errors(predictions: Predictions, ours: str, theirs: str) -> None:
    """Their 101 levels include 0 and 1, which have no error; ours are the 99 levels between."""
    report = reliability(predictions.judged.served.pit)["calibration_error"][ours]
    options: dict[str, Any] = {"num_bins": 101, "vectorized": True, "prop_type": theirs}
    absolute = toolbox.mean_absolute_calibration_error(*predictions.arrays, **options)
    square = toolbox.root_mean_squared_calibration_error(*predictions.arrays, **options)
    assert report["mean_absolute"] == pytest.approx(absolute * 101.0 / 99.0, abs=1e-9)
    assert report["rms"] == pytest.approx(square * np.sqrt(101.0 / 99.0), abs=1e-9)


def test_coverage_width_and_winkler_score_of_a_checkpoints_bands(rent: Posterior) -> None:
    """MAPIE scores the bands of `murho predict`, Murho the table: raw and calibrated."""
    table = make_table(rows=250, seed=7)
    targets = table.column("rent").to_numpy()
    report = evaluate_table(rent, table)
    for kind in ("raw", "calibrated"):
        options = PredictOptions(percentiles=BAND_LEVELS, calibrated=kind == "calibrated")
        percentiles = rent.predict(columns_from_table(table, rent.schema), options).percentiles
        assert percentiles is not None
        intervals = np.stack([percentiles[:, 0::2], percentiles[:, 1::2]], axis=1)
        coverage = mapie.regression_coverage_score(targets, intervals)
        width = mapie.regression_mean_width_score(intervals)
        for index, nominal in enumerate(COVERAGES):
            key = str(nominal)
            winkler = mapie.regression_mwi_score(targets, intervals[:, :, [index]], nominal / 100.0)
            assert report[kind]["coverage"][key] == pytest.approx(coverage[index], abs=1e-12)
            assert report[kind]["width"][key] == pytest.approx(width[index], rel=1e-5)
            assert report[kind]["interval_score"][key] == pytest.approx(winkler, rel=1e-5)
