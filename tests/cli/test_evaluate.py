"""`murho evaluate`: its report as text, its JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from murho.cli.evaluation_report import MOST_GROUPS, report_lines
from murho.model.evaluation.judging import evaluate_table
from murho.model.evaluation.summary import plus_minus
from tests.model.conftest import make_table
from tests.model.rooms import CLASSES, rooms_table
from tests.support import ROOT, call_murho

if TYPE_CHECKING:
    from pathlib import Path

    from murho.model.checkpoint.posterior import Posterior


@pytest.fixture(scope="module")
def report(rent: Posterior) -> dict[str, Any]:
    return evaluate_table(rent, make_table(rows=200, seed=5), samples=32)


CARS = ROOT / "examples" / "cars.csv"


def line(lines: list[str], start: str) -> str:
    """The one line that starts so."""
    (found,) = (text for text in lines if text.startswith(start))
    return found


def test_it_says_units_and_every_part(report: dict[str, Any]) -> None:
    lines = report_lines(report, "EUR")
    text = "\n".join(lines)
    assert f"RMSE {plus_minus(report['rmse'], report['standard_errors']['rmse'])} EUR" in lines[0]
    for part in ("CRPS", "R²", "central bands (EUR)", "interval score", "calibration error", "PIT", "Spearman"):
        assert part in text
    assert line(lines, "90 % band by std (EUR)").split()[-2:] == ["raw", "calibrated"]
    for feature in ("district", "lift"):
        assert line(lines, f"90 % band by {feature}")
    # The square root of 0.9 * 0.1 / 200.
    assert line(lines, "(2.1 points of a coverage of 90 % are chance")
    covered = f"{100.0 * report['raw']['coverage']['90']:.1f} %"
    assert covered in line(lines, "coverage")


def test_a_checkpoint_without_calibration_has_no_such_column(report: dict[str, Any]) -> None:
    lines = report_lines(report | {"calibrated": None}, "EUR")
    assert "calibrated" not in "\n".join(lines)


def test_many_categories_are_cut_and_small_ones_flagged(report: dict[str, Any]) -> None:
    groups = [
        {"category": f"town {number}", "rows": 99 - number, "raw": 0.9, "calibrated": 0.9}
        for number in range(MOST_GROUPS)
    ]
    few = {"category": None, "rows": 3, "raw": 1.0, "calibrated": 1.0}
    merged = few | {"merged": 4}
    lines = report_lines(report | {"coverage_by_category": {"town": [*groups, few, merged]}}, None)
    assert lines[-1] == "and 2 more, see --json"
    lines = report_lines(report | {"coverage_by_category": {"town": [few, merged]}}, None)
    assert line(lines, "(missing)").endswith("few rows")
    assert line(lines, "(4 categories of under 20 rows)").endswith("few rows")


def test_evaluate_prints_a_report_and_its_json(rooms_file: Path, room_checkpoints: Path, quick_cars: Path) -> None:
    words = ("evaluate", rooms_file, "--model", "rooms", "--checkpoints", room_checkpoints)
    text = call_murho(*words).stdout
    assert text.startswith("rooms version 1 on 60 rows\nverdict: predicts well: log loss ")
    for part in ("prediction sets", "the surest rows", "by district", "by lift", "class / predicted class", *CLASSES):
        assert part in text
    cars = call_murho("evaluate", CARS, "--model", "cars", "--checkpoints", quick_cars, "--json")
    assert "left out 8 rows" in cars.stderr
    report = json.loads(cars.stdout)
    assert {"n", "rmse", "mae", "nll", "crps", "raw", "calibrated"} <= set(report)
    for kind in ("raw", "calibrated"):
        assert set(report[kind]["coverage"]) == set(report[kind]["width"]) == {"50", "80", "90", "95"}
    report = json.loads(call_murho(*words, "--json").stdout)
    assert {"n", "accuracy", "log_loss", "brier", "auc", "ece", "raw", "calibrated", "sets"} <= set(report)


def test_the_report_says_what_is_odd(rooms: Posterior) -> None:
    report = evaluate_table(rooms, rooms_table(rows=30, seed=3))
    unknown = {"rows": 2, "classes": {"attic": 2}, "accuracy": 0.8}
    lines = report_lines(report | {"unknown": unknown, "calibrated": None}, None)
    assert any("2 rows more are of classes that the model does not know ('attic' 2)" in line for line in lines)
    assert not any("calibrated" in line for line in lines)
    many = {f"class {number}": report["by_class"][CLASSES[0]] for number in range(30)}
    lines = report_lines(report | {"by_class": many, "confusion": None}, None)
    assert any(line.startswith("most frequent confusions") for line in lines)
    assert "and 18 more, see --json" in lines
