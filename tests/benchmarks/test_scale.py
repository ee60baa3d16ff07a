"""`python -m benchmarks.scale` from kept unit costs: its tables, and what it says of a wrong file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks import scale
from benchmarks.scale_parts.plans import request_size_rows
from benchmarks.scale_parts.unit_costs import UnitCosts, costs_of

if TYPE_CHECKING:
    from pathlib import Path

COSTS: dict[str, Any] = {
    "rates": {"1": 7.0, "8": 14.0, "32": 17.0},
    "row_rates": {"10": 8.5, "100": 1.7},
    "half_load": {"p50": 0.3, "p99": 0.6},
    "ready": 8.0,
    "memory": 6e8,
    "model_memory": 4e6,
    "rows": 50_000.0,
}


def test_the_costs_give_back_the_rates_that_they_were_made_of() -> None:
    costs = costs_of(UnitCosts.from_json(COSTS))
    assert 1.0 / costs.flight(1) == pytest.approx(7.0)
    assert 32.0 / costs.flight(32) == pytest.approx(17.0)
    assert costs.ready == 8.0


def test_it_prints_every_table_and_keeps_the_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "kept.json"
    kept.write_text(json.dumps({"costs": COSTS}))
    assert scale.main(["--costs", str(kept), "--output", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    for titles in scale.TITLES.values():
        assert titles[0] in said
    written = json.loads((tmp_path / "scale.json").read_text())
    assert written["costs"] == COSTS
    assert written["tables"]["rows"] == [["1e+12", "5,556", "232"]]  # 2e7 s; a day has 86,400
    assert [row[0] for row in written["tables"]["requests"]] == ["1,000", "100,000", "10,000,000"]


def test_rows_of_larger_requests_are_counted_beside_one_row() -> None:
    rows = request_size_rows(UnitCosts.from_json(COSTS))
    assert rows == [["1", "17", "17", "1.0"], ["10", "8", "85", "2.0"], ["100", "2", "170", "10.0"]]
    before = {name: value for name, value in COSTS.items() if name != "row_rates"}
    assert [row[0] for row in request_size_rows(UnitCosts.from_json(before))] == ["1"]


def test_a_file_without_costs_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "kept.json"
    kept.write_text("{}")
    assert scale.main(["--costs", str(kept)]) == 1
    assert "costs" in capsys.readouterr().err
