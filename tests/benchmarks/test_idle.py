"""The made-up tables with idle features."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks import idle
from benchmarks.idle import FRESH, TABLES, gaussian_process_crps, main, make, render
from tests.benchmarks.pools import PoolHere

if TYPE_CHECKING:
    from pathlib import Path

RESULT = {"printed": 0.9, "crps": 1.0, "coverage": 0.91, "fewest_unread": 3, "most_unread": 5}


@pytest.mark.parametrize("name", list(TABLES))
def test_fresh_rows_are_others_of_the_same_table(name: str) -> None:
    rows, fresh = make(name, 0)
    assert (rows.rows.num_rows, fresh.rows.num_rows) == (TABLES[name][1], FRESH)
    assert rows.rows.column_names == fresh.rows.column_names
    assert not set(rows.target.tolist()) & set(fresh.target.tolist())
    again, _ = make(name, 0)
    np.testing.assert_array_equal(rows.target, again.target)


def test_the_target_is_the_function_and_noise_of_the_told_size() -> None:
    for name, noise in (("Friedman", 1.0), ("categories", 0.3), ("hundred", 0.5), ("nothing", 1.0), ("all", 1.0)):
        _, fresh = make(name, 1)
        assert (fresh.target - fresh.function).std() == pytest.approx(noise, rel=0.05)


def test_the_gaussian_process_comes_near_the_noise_where_few_inputs_matter() -> None:
    # Of N(0, 1) the CRPS of the true distribution is 1 / sqrt(pi).
    assert 1.0 / np.sqrt(np.pi) < gaussian_process_crps("Friedman", 0) < 0.75


def test_a_line_has_geometric_means_of_the_ratios() -> None:
    runs = [{"keep": RESULT | {"crps": 2.0}, "auto": RESULT, "gaussian process": 0.5}] * 2
    assert render({"all": runs}).splitlines()[-1].split()[5:7] == ["0.50", "2.00"]


def test_a_run_writes_its_numbers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(idle, "ProcessPoolExecutor", PoolHere)
    monkeypatch.setattr(idle, "measure", lambda *_: RESULT)
    monkeypatch.setattr(idle, "gaussian_process_crps", lambda *_: 0.8)
    assert main(["--tables", "all,nothing", "--seeds", "2", "--output", str(tmp_path)]) == 0
    assert "3 to 5" in capsys.readouterr().out
    assert (tmp_path / "idle.json").exists()
