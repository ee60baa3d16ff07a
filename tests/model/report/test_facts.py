"""The facts of a report, plain JSON, small, the same numbers as everywhere else; and the rows that a page shows."""

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from murho.model.files import read_bounded
from murho.model.report.facts import FACTS_PATH, facts_of_rows, stored_facts
from murho.model.training.train import Trained
from tests.model.conftest import make_table


def test_the_facts_are_small_and_say_nothing_but_what_model_json_does_not(
    facts: dict[str, Any], trained: Trained
) -> None:
    assert set(facts) == {"format", "held_out", "importance", "curves"}
    assert len(json.dumps(facts)) < 50_000
    assert facts["held_out"]["crps"] == trained.spec.metrics["crps"]
    assert facts["held_out"]["members"] == trained.spec.metrics["members"]


def test_curves_are_those_of_the_kept_fit_and_of_the_full_fit_before_it(
    facts: dict[str, Any], trained: Trained
) -> None:
    full, settling = facts["curves"]
    assert (full["stage"], settling["stage"]) == ("full", "settling")
    assert settling["nll"][-1] == trained.evidence.chosen.history[-1].negative_log_likelihood


def test_of_many_features_the_strongest_are_judged_and_all_are_counted(
    facts: dict[str, Any], trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [feature["name"] for feature in facts["importance"]["features"]] == ["size", "district", "lift", "day"]
    assert facts["importance"]["of_features"] == 4
    monkeypatch.setattr("murho.model.report.facts.MOST_BARS", 2)
    importance = facts_of_rows(trained.posterior, trained.evidence.columns, None, {})["importance"]
    means = {feature["name"]: feature["mean"]["value"] for feature in facts["importance"]["features"]}
    assert [feature["name"] for feature in importance["features"]] == [
        name for name in means if means[name] in sorted(means.values())[-2:]
    ]
    assert importance["of_features"] == 4


def test_damaged_or_missing_facts_are_no_facts(tmp_path: Path) -> None:
    read = partial(_read, tmp_path)
    assert stored_facts(read) == {}
    path = tmp_path / FACTS_PATH
    path.parent.mkdir()
    for damage in ("{", '{"format": 99}', "[]"):
        path.write_text(damage)
        assert stored_facts(read) == {}
    path.unlink()
    os.mkfifo(path)
    assert stored_facts(read) == {}


def _read(directory: Path, file: str, most: int) -> bytes:
    return read_bounded(directory / file, most)


def test_surprising_rows_have_their_number_and_cells_in_the_table_and_the_rarest_comes_first(
    rows: list[dict[str, Any]],
) -> None:
    table = make_table()
    assert len(rows) == 10
    assert [row["one_in"] for row in rows] == sorted((row["one_in"] for row in rows), reverse=True)
    for row in rows:
        cells = {name: table[name][row["row"] - 1].as_py() for name in ("rent", "district", "lift")}
        assert row["observed"] == cells["rent"]
        _, district, lift, _ = row["cells"]
        assert (district, lift) == (cells["district"], cells["lift"])
