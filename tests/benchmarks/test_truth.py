"""Tests of `benchmarks.truth`: how cells are judge, and a small part of the matrix with quick fits."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.truth import OVERVIEW, judge, judge_cells, matching, measure_table
from benchmarks.truth_answers import ANSWERS, Measure
from benchmarks.truth_service import SERVICE_CELLS
from benchmarks.truth_tables import TABLES, known_table

RIGHT = Measure(0.9, 0.9, count=1_000)


def test_a_share_is_red_if_it_is_off_by_three_standard_errors_and_by_four_points() -> None:
    close = [replace(RIGHT, found=each) for each in (0.93, 0.935, 0.94)]
    off = [replace(RIGHT, found=each) for each in (0.80, 0.82, 0.84)]
    scattered = [replace(RIGHT, found=each) for each in (0.60, 0.80, 0.95)]
    assert [judge("a*b", "90 %", each, warnings=0.0).verdict for each in (close, off, scattered)] == ["", "!", ""]


def test_a_spread_is_red_if_it_is_off_by_a_quarter() -> None:
    ratio = [Measure(4.0, promised, 0.223, ratio=True, count=1_000) for promised in (4.0, 4.2, 3.9)]
    assert judge("a*b", "std / RMSE", ratio, warnings=0.0).verdict == ""
    wide = [replace(each, promised=4.0 * each.promised) for each in ratio]
    found = judge("a*b", "std / RMSE", wide, warnings=0.0)
    assert found.verdict == "!"
    assert found.number == pytest.approx(2.0, rel=0.05)


def test_what_the_answers_warn_of_is_told_and_not_red() -> None:
    off = [replace(RIGHT, found=0.5)] * 3
    assert judge("a*b", "90 %", off, warnings=0.95).verdict == "~"
    assert judge("a*b", "90 %", off, warnings=0.5).verdict == "!"


def test_a_promise_of_at_least_is_not_broken_by_more() -> None:
    assert judge("a*b", "90 %", [replace(RIGHT, found=1.0, side="least")] * 3, warnings=0.0).verdict == ""
    assert judge("a*b", "risk", [replace(RIGHT, found=1.0, side="most")] * 3, warnings=0.0).verdict == "!"


def test_few_totals_are_not_red_because_all_of_them_agree() -> None:
    few = [replace(RIGHT, found=1.0, count=5)] * 3
    assert judge("a*b", "90 %", few, warnings=0.0).verdict == ""
    assert judge("a*b", "90 %", [replace(each, count=500) for each in few], warnings=0.0).verdict == "!"


def test_one_repeat_has_no_verdict_unless_all_is_promised() -> None:
    assert judge("a*b", "90 %", [replace(RIGHT, found=0.1)], warnings=0.0).verdict == ""
    assert judge("a*b", "equal", [Measure(0.99, 1.0, within=0.0, count=100)], warnings=0.0).verdict == "!"


def test_names_of_cells_match_with_their_star() -> None:
    assert matching("totals, sum*one column missing", "totals*missing")
    assert not matching("totals, sum*complete", "totals*missing")


@pytest.mark.parametrize("name", [name for name in TABLES if "classes" not in name and name != "rare"])
def test_outcomes_have_the_moments_that_are_called_true(name: str) -> None:
    world = known_table(name, 0).world
    numbers, category = np.zeros((20_000, 4)), np.zeros(20_000, dtype=np.int64)
    mean, std = (each[0] for each in world.moments(numbers[:1], category[:1]))
    outcomes = world.outcomes(np.random.default_rng(0), numbers, category)
    assert outcomes.mean() == pytest.approx(mean, abs=5.0 * outcomes.std() / len(outcomes) ** 0.5)
    assert outcomes.std() == pytest.approx(std, rel=0.25 if name == "heavy" else 0.05)


def test_classes_come_as_often_as_their_probabilities_say() -> None:
    known = known_table("rare", 0)
    rows = known.queries["a class of 3 %"]
    said = known.world.probabilities(rows.numbers, rows.category)[:, 1].mean()
    assert said == pytest.approx(0.03, abs=0.01)
    assert rows.outcomes.mean() == pytest.approx(said, abs=0.015)


def test_the_overview_has_every_kind_of_answer_once() -> None:
    kinds = [kind for of in OVERVIEW.values() for kind in of]
    of_service = {cell.partition("*")[0] for cells in SERVICE_CELLS.values() for cell in cells}
    assert sorted(kinds) == sorted({*ANSWERS, *of_service})


SLOW = ("update", "prune", "raw", "worth asking", "totals, ")
"""Beginnings of kinds of answers that take long, or of which a few tables say little."""


@pytest.mark.parametrize("name", ["complete", "3 classes"])
def test_answers_of_quick_fits_are_about_as_true_as_promised(name: str) -> None:
    kinds = [kind for kind in ANSWERS if not kind.startswith(SLOW)]
    reports = [measure_table(name, repeat, quick=True, kinds=kinds) for repeat in (1, 2)]
    conditions = known_table(name, 1).queries
    found = list(judge_cells(reports, "*"))
    assert {each.cell.partition("*")[2] for each in found} == set(conditions)
    left_out = {cell for cell in reports[0]["left_out"] if cell.startswith("prediction*")}
    assert left_out == ({f"prediction*{condition}" for condition in conditions} if "classes" in name else set())
    for each in found:
        if reports[0]["warnings"][each.cell] > 0.5:
            continue  # beyond the range, where the answers warn
        if each.aim == 1.0 and "/" not in each.promise:
            assert each.number == 1.0, each
        elif "/" in each.promise:
            assert 0.6 < each.number < 1.7, each
        else:
            assert each.number == pytest.approx(each.aim, abs=0.13), each


def test_extrapolations_are_told_and_their_bands_open() -> None:
    report = measure_table("complete", 2, quick=True, kinds=["prediction", "totals, sum"])
    far = ("1.1 x the range", "1.5 x the range", "10 x the range", "two features at 1.25 x")
    assert report["warnings"]["prediction*complete"] < 0.05
    assert [report["warnings"][f"prediction*{condition}"] for condition in far] == [1.0] * 4
    for condition in far:
        assert report["cells"][f"prediction*{condition}"]["90 %"]["found"] > 0.7, condition
    # Errors below and above the range don't cancel in a total.
    total = Measure(**report["cells"]["totals, sum*2 x the range"]["100 rows, std / RMSE"])
    assert judge("a*b", "std / RMSE", [total], warnings=0.0).number > 0.6
