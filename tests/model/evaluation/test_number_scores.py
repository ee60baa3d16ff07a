"""Scores of numbers with known values, and the lines of the summary."""

import warnings
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from mapie.metrics import regression as mapie
from scipy import stats

from murho.model.calibration.conformal import ConformalMap
from murho.model.checkpoint.posterior import Posterior
from murho.model.evaluation.judged_rows import RowWeights, scores_by_category
from murho.model.evaluation.judging import evaluate_table
from murho.model.evaluation.number_scores import (
    BAND_LEVELS,
    COVERAGES,
    JudgedNumbers,
    crps_of_constant,
    reliability,
    spearman,
)
from murho.model.evaluation.summary import summary
from murho.model.predictive.prediction import PredictOptions
from murho.model.tables.schema import FeatureKind
from murho.model.tables.schema_inference import columns_from_table
from tests.model.conftest import make_table, schema_of_kinds
from tests.model.judged_rows import judge_gaussians, judged_rows


def test_the_constant_answer_is_the_distribution_of_the_other_rows() -> None:
    targets = np.random.default_rng(0).gamma(2.0, 1.0, 20)
    others = [np.delete(targets, row) for row in range(20)]
    losses = [
        np.abs(rest - target).mean() - 0.5 * np.abs(rest - rest[:, None]).mean()
        for rest, target in zip(others, targets, strict=True)
    ]
    assert crps_of_constant(targets, RowWeights.of(20)) == pytest.approx(np.mean(losses))


SHARES: dict[str, Any] = {"crps": 1.25, "coverage": {"90": 0.875}, "width": {"90": 4.0}}
NO_ERRORS: dict[str, Any] = {
    **dict.fromkeys(("rmse", "nll", "crps")),
    **{kind: {"coverage": {"90": None}} for kind in ("raw", "calibrated")},
}
SCORES: dict[str, Any] = {
    "rmse": 1.0,
    "mae": 1.0,
    "nll": 1.0,
    "crps": 1.0,
    "raw": SHARES,
    "r2": 0.75,
    "calibrated": SHARES,
    "constant": {"crps": 2.0},
    "standard_errors": NO_ERRORS,
    "members": 10,
    "all_members": 10,
}


@pytest.mark.parametrize(
    ("basis", "says"),
    [
        ({"members": 2, "all_members": 10}, "the 2 members that have not seen the row; all 10 together do better"),
        ({"members": 1, "all_members": 5}, "one network that has not seen the row; all 5 together do better"),
        ({"members": 1, "all_members": 1}, "cover 87.5 %"),
    ],
)
def test_summary_says_what_it_rests_on(basis: dict[str, object], says: str) -> None:
    lines = summary(SCORES | basis, None)
    assert says in lines[-2]
    assert "by design" in lines[-1]
    assert len(summary(SCORES | basis | {"calibrated": None}, None)) == len(lines) - 1


def test_a_nearly_exact_target_is_said_to_be_at_the_floor_of_the_noise() -> None:
    said = "(nearly exact: learned noise is at least 0.1 % of the std that a line leaves)"
    assert said not in summary(SCORES, None)
    assert summary(SCORES | {"constant": {"crps": 1000.0}}, None)[-1] == said


VALUES = np.random.default_rng(0).standard_normal((60, 3))


def test_weights_are_relative_and_count_like_repeated_rows_in_a_unit() -> None:
    weights = np.tile([1.0, 2.0], 30)
    repeated = np.repeat(np.arange(60), weights.astype(int))
    weighted = RowWeights.of(60, weights=10.0 * weights)
    units = RowWeights.of(len(repeated), units=repeated)
    np.testing.assert_allclose(weighted.mean(VALUES), units.mean(VALUES[repeated]))
    np.testing.assert_allclose(weighted.standard_error(VALUES), units.standard_error(VALUES[repeated]))


small_whole = arrays(np.int64, 30, elements=st.integers(0, 8))


@given(small_whole, small_whole)
def test_rank_correlation_is_scipys_with_ties(first: np.ndarray, second: np.ndarray) -> None:
    ours = spearman(first.astype(float), second.astype(float))
    if len(set(first)) == 1 or len(set(second)) == 1:
        assert ours is None
    else:
        assert ours == pytest.approx(stats.spearmanr(first, second).statistic, abs=1e-12)


def coverage_by_std(errors: np.ndarray, stds: np.ndarray, inside: np.ndarray) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = judged_rows(errors, stds, inside).in_full(schema_of_kinds(), {})["coverage_by_std"]
    return found


def test_the_surest_rows_come_first_and_show_where_bands_fail() -> None:
    """Forty rows: the ten of smallest std are never inside, the others always."""
    stds = np.linspace(4.0, 0.1, 40)
    groups = coverage_by_std(2.0 * stds, stds, stds > 1.05)
    assert [group["rows"] for group in groups] == [4] * 10
    assert [group["raw"] for group in groups] == [0.0, 0.0, 0.5, *[1.0] * 7]
    assert groups[0]["std"] == [pytest.approx(0.1), pytest.approx(0.4)]
    assert groups[-1]["rmse"] == pytest.approx(2.0 * np.sqrt(np.mean(np.sort(stds)[-4:] ** 2)))
    assert "calibrated" not in groups[0]


def test_small_categories_are_put_together_and_missing_cells_stand_alone() -> None:
    cells = np.array(["a"] * 25 + ["b"] * 30 + ["c"] * 19 + ["never seen"] + [None] * 5, dtype=object)
    inside = np.array([cell in ("b", "c") for cell in cells])
    groups = scores_by_category(
        {"raw": inside}, RowWeights.of(80), schema_of_kinds(kind=FeatureKind.CATEGORICAL), {"kind": cells}
    )["kind"]
    assert groups == [
        {"category": "b", "rows": 30, "raw": 1.0},
        {"category": "a", "rows": 25, "raw": 0.0},
        {"category": None, "rows": 5, "raw": 0.0},
        {"category": None, "merged": 2, "rows": 20, "raw": 0.95},
    ]


with warnings.catch_warnings():
    # Python's own complaint about its source, made once, when it is first compiled.
    warnings.simplefilter("ignore")
    import uncertainty_toolbox as toolbox


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


def test_scores_are_those_of_uncertainty_toolbox(predictions: Predictions) -> None:
    means, _, targets = predictions.arrays
    theirs = toolbox.prediction_error_metrics(means, targets)
    report = predictions.judged.report()
    for ours, name in (("rmse", "rmse"), ("mae", "mae"), ("r2", "r2")):
        assert report[ours] == pytest.approx(theirs[name], rel=1e-9)
    assert report["nll"] == pytest.approx(toolbox.nll_gaussian(*predictions.arrays), rel=1e-9)
    assert report["crps"] == pytest.approx(toolbox.crps_gaussian(*predictions.arrays), rel=1e-5)
    sharpness = np.sqrt(np.mean(predictions.judged.served.std**2))
    assert sharpness == pytest.approx(toolbox.sharpness(predictions.arrays[1]), rel=1e-9)


@pytest.mark.parametrize("factor", [0.05, 0.5, 2.0])
def test_the_crps_is_that_of_the_calibrated_answer(factor: float) -> None:
    generator = np.random.default_rng(8)
    means, stds = generator.normal(50.0, 20.0, 400), generator.uniform(0.5, 6.0, 400)
    means, stds = (values.astype(np.float32).astype(np.float64) for values in (means, stds))
    targets = generator.normal(means, factor * stds)
    scores = np.linspace(-8.0, 8.0, 9)
    conformal = ConformalMap(tuple(scores.tolist()), tuple((factor * scores).tolist()), 100)
    report = judge_gaussians(means, stds, targets, conformal).report()
    expected = toolbox.crps_gaussian(means, factor * stds, targets)
    assert report["crps"] == report["calibrated"]["crps"] == pytest.approx(expected, rel=0.01)
    assert report["raw"]["crps"] == pytest.approx(toolbox.crps_gaussian(means, stds, targets), rel=1e-5)


@pytest.mark.parametrize(("ours", "theirs"), [("quantiles", "quantile"), ("bands", "interval")])
def test_reliability_is_that_of_uncertainty_toolbox(predictions: Predictions, ours: str, theirs: str) -> None:
    _, shares = toolbox.get_proportion_lists_vectorized(*predictions.arrays, num_bins=21, prop_type=theirs)
    if ours == "quantiles":  # theirs are of the prediction less the target
        shares = 1.0 - shares[::-1]
    np.testing.assert_allclose(reliability(predictions.judged.served.pit)[ours], shares[1:-1], atol=1e-9)


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


def test_rows_that_come_several_times_tell_no_more_than_once() -> None:
    units = np.array(["a", "b", "c", "d"] * 15)
    four, all_rows = VALUES[:4], np.tile(VALUES[:4], (15, 1))
    np.testing.assert_allclose(
        RowWeights.of(60, units=units).standard_error(all_rows), RowWeights.of(4).standard_error(four)
    )
