"""`murho evaluate`: its report as text, its JSON."""

import json
from pathlib import Path

from murho.cli.evaluation_report import report_lines
from murho.model.checkpoint.posterior import Posterior
from murho.model.evaluation.judging import evaluate_table
from tests.model.rooms import rooms_table
from tests.support import ROOT, call_murho

CARS = ROOT / "examples" / "cars.csv"


def test_evaluate_prints_a_report_and_its_json(rooms_file: Path, room_checkpoints: Path, quick_cars: Path) -> None:
    words = ("evaluate", rooms_file, "--model", "rooms", "--checkpoints", room_checkpoints)
    text = call_murho(*words).stdout
    assert text.startswith("rooms version 1 on 60 rows\nverdict: predicts well: log loss ")
    for part in ("accuracy", "Brier score", "prediction sets", "classes in it"):
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
