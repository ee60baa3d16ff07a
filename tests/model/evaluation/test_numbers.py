"""Scores of numbers with known values, and the lines of the summary."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from murho.model.evaluation.numbers import BAND_LEVELS, COVERAGES, Bands, JudgedNumbers
from murho.model.evaluation.summary import summary

numbers = st.floats(-100.0, 100.0)


def report(ends: np.ndarray, targets: np.ndarray, mean: np.ndarray) -> dict[str, Any]:
    """The report of rows with these bands, ``[n, 8]``."""
    nothing, truth = np.zeros(len(targets)), targets[:, None]
    inside = (truth >= ends[:, 0::2]) & (truth <= ends[:, 1::2])
    errors = mean - targets
    values = {"square": errors**2, "absolute": np.abs(errors), "nll": nothing, "crps": nothing}
    bands = Bands(nothing + 1.0, nothing, inside, (ends - mean[:, None]).astype(np.float32))
    return JudgedNumbers(
        rows=np.arange(len(targets)), targets=targets, doubt=nothing, mean=mean, values=values, bands={"raw": bands}
    ).report()


def test_band_levels_are_the_ends_of_central_bands() -> None:
    assert BAND_LEVELS == (25.0, 75.0, 10.0, 90.0, 5.0, 95.0, 2.5, 97.5)


def point_scores(errors: np.ndarray, targets: np.ndarray) -> dict[str, float | None]:
    scores = report(np.zeros((len(errors), 8)), targets, targets + errors)
    return {name: scores[name] for name in ("rmse", "mae", "r2")}


def test_point_scores_of_known_errors() -> None:
    scores = point_scores(np.array([1.0, -3.0]), np.array([0.0, 4.0]))
    assert scores == {"rmse": pytest.approx(math.sqrt(5.0)), "mae": 2.0, "r2": pytest.approx(1.0 - 5.0 / 4.0)}


def test_predicting_the_mean_explains_nothing_and_the_truth_everything() -> None:
    targets = np.array([1.0, 2.0, 6.0])
    assert point_scores(targets.mean() - targets, targets)["r2"] == pytest.approx(0.0)
    assert point_scores(np.zeros(3), targets)["r2"] == 1.0


def test_of_targets_that_are_all_the_same_nothing_is_explained() -> None:
    assert point_scores(np.array([0.5, -0.5]), np.array([2.0, 2.0]))["r2"] is None


def bands(lower: float, upper: float) -> list[float]:
    """The same band at every coverage."""
    return [lower, upper] * len(COVERAGES)


def test_coverage_counts_both_ends_and_width_is_a_mean() -> None:
    ends = np.array([bands(0.0, 1.0), bands(0.0, 3.0), bands(0.0, 2.0)])
    scores = report(ends, np.array([1.0, 0.0, 2.1]), np.zeros(3))["raw"]
    assert scores["coverage"] == pytest.approx({"50": 2 / 3, "80": 2 / 3, "90": 2 / 3, "95": 2 / 3})
    assert scores["width"] == {"50": 2.0, "80": 2.0, "90": 2.0, "95": 2.0}


def test_the_interval_score_is_the_width_and_a_price_for_what_lies_outside() -> None:
    inside, below, above = (
        report(np.array([bands(2.0, 5.0)]), np.array([target]), np.array([3.0]))["raw"] for target in (3.0, 1.0, 5.5)
    )
    assert inside["interval_score"] == {"50": 3.0, "80": 3.0, "90": 3.0, "95": 3.0}
    # One below the band costs 2 / (1 - coverage).
    assert below["interval_score"] == pytest.approx({"50": 7.0, "80": 13.0, "90": 23.0, "95": 43.0})
    assert above["interval_score"] == pytest.approx({"50": 5.0, "80": 8.0, "90": 13.0, "95": 23.0})


@given(arrays(float, (5, 8), elements=numbers), arrays(float, 5, elements=numbers))
def test_an_interval_score_is_made_of_its_ends_pinball_losses(ends: np.ndarray, targets: np.ndarray) -> None:
    ends[:, 1::2] = np.maximum(ends[:, 0::2], ends[:, 1::2])
    scores = report(ends, targets, np.zeros(5))["raw"]["interval_score"]
    above, share = targets[:, None] - ends, np.array(BAND_LEVELS) / 100.0
    pinball = np.maximum(share * above, (share - 1.0) * above).mean(axis=0)
    for index, coverage in enumerate(COVERAGES):
        expected = 2.0 * (pinball[2 * index] + pinball[2 * index + 1]) / (1.0 - coverage / 100.0)
        assert scores[str(coverage)] == pytest.approx(expected, rel=1e-5, abs=1e-3)


SHARES: dict[str, Any] = {"coverage": {"90": 0.875}, "width": {"90": 4.0}}
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
    "calibrated": SHARES,
    "standard_errors": NO_ERRORS,
    "members": 10,
    "all_members": 10,
}


def test_summary_shows_units_and_says_that_bands_are_raw() -> None:
    assert summary(SCORES | {"calibrated": None}, "mpg") == [
        "RMSE 1 mpg   CRPS 1 mpg   NLL 1 nats",
        "90 % bands (raw: too few rows to calibrate) cover 87.5 % of them, 4 mpg wide on average",
    ]


@pytest.mark.parametrize(
    ("basis", "says"),
    [
        ({"members": 10, "all_members": 10, "judges": {"members": 2}}, "all 10 members by the 2 that have not seen"),
        ({"members": 1, "all_members": 5}, "a single member, that has not seen the row: all 5 do better"),
        ({"members": 1, "all_members": 1}, "cover 87.5 %"),
    ],
)
def test_summary_says_what_it_rests_on(basis: dict[str, object], says: str) -> None:
    lines = summary(SCORES | basis, None)
    assert says in lines[-2]
    assert "by construction" in lines[-1]
    assert len(summary(SCORES | basis | {"calibrated": None}, None)) == len(lines) - 1


def test_summary_shows_standard_errors_as_many_digits_as_they_leave_and_fits_80_columns() -> None:
    scores = SCORES | {"rmse": 2.6912, "mae": 1234.5, "nll": -0.5}
    errors = NO_ERRORS | {"rmse": 0.1134, "nll": 0.1, "crps": None, "calibrated": {"coverage": {"90": 0.0123}}}
    lines = summary(scores | {"standard_errors": errors}, "mpg")
    assert lines[:2] == [
        "RMSE 2.69 ± 0.11 mpg   CRPS 1 mpg   NLL -0.50 ± 0.10 nats",
        "90 % bands cover 87.5 ± 1.2 % of them, 4 mpg wide on average",
    ]
    assert max(map(len, lines)) <= 80
