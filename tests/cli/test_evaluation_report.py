"""The report of an evaluation as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from murho.cli.evaluation_report import MOST_GROUPS, report_lines
from murho.model.evaluation.judging import evaluate_table
from tests.model.conftest import make_table

if TYPE_CHECKING:
    from murho.model.checkpoint.posterior import Posterior


@pytest.fixture(scope="module")
def report(rent: Posterior) -> dict[str, Any]:
    return evaluate_table(rent, make_table(rows=200, seed=5), samples=32)


def line(lines: list[str], start: str) -> str:
    """The one line that starts so."""
    (found,) = (text for text in lines if text.startswith(start))
    return found


def test_it_says_units_and_every_part(report: dict[str, Any]) -> None:
    lines = report_lines(report, "EUR")
    text = "\n".join(lines)
    assert f"RMSE {report['rmse']:.4g} EUR" in lines[0]
    for part in ("CRPS", "R²", "central bands (EUR)", "interval score", "calibration error", "PIT", "Spearman"):
        assert part in text
    assert line(lines, "90 % band by std (EUR)").split()[-2:] == ["raw", "calibrated"]
    for feature in ("district", "lift"):
        assert line(lines, f"90 % band by {feature}")
    # The square root of 0.9 * 0.1 / 200.
    assert line(lines, "(2.1 points of a coverage of 90 % are chance")
    covered = f"{100.0 * report['raw']['coverage']['90']:.1f} %"
    assert covered in line(lines, "coverage")


def test_columns_are_aligned(report: dict[str, Any]) -> None:
    lines = report_lines(report, None)
    start = lines.index(line(lines, "90 % band by std"))
    numbers = lines[start + 1 : start + 11]
    assert len({len(text) for text in numbers}) == 1
    assert len({text.index(" %") for text in numbers}) == 1
    assert not any(text != text.rstrip() for text in lines)


def test_a_checkpoint_without_calibration_has_no_such_column(report: dict[str, Any]) -> None:
    lines = report_lines(report | {"calibrated": None}, "EUR")
    assert "calibrated" not in "\n".join(lines)


def test_what_is_unknown_is_not_shown(report: dict[str, Any]) -> None:
    text = "\n".join(report_lines(report | {"r2": None, "spearman": None}, None))
    assert "None" not in text
    assert "R²" not in text


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
