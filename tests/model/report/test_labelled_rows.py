"""A report for labelled rows says what `murho evaluate` says."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest import mock

import pytest

from murho.model.errors import TableError
from murho.model.evaluation.judging import evaluate_table
from murho.model.report import files
from murho.model.report.facts import facts_of_spec
from murho.model.report.files import report_of_rows
from tests.model.conftest import make_table

if TYPE_CHECKING:
    from murho.model.checkpoint.posterior import Posterior


def test_scores_and_coverage_are_those_of_an_evaluation(rent: Posterior) -> None:
    table = make_table(90, seed=5)
    made, rows, _ = report_of_rows(rent, facts_of_spec(rent.spec), table, "flats.csv")
    evaluated = evaluate_table(rent, table)
    assert made["source"] == "flats.csv"
    assert made["scores"]["crps"] == pytest.approx(evaluated["crps"], rel=1e-5)
    for kind in ("raw", "calibrated"):
        assert made["held_out"][kind]["coverage"] == pytest.approx(evaluated[kind]["coverage"])
        bands = made["held_out"][kind]["reliability"]["bands"]
        assert bands[17] == pytest.approx(evaluated[kind]["coverage"]["90"], abs=0.012)
    inside = [point["lower"] <= point["observed"] <= point["upper"] for point in rows["points"]]
    assert sum(inside) / 90 == pytest.approx(evaluated["calibrated"]["coverage"]["90"], abs=0.012)


def test_of_many_rows_some_are_taken(rent: Posterior) -> None:
    with mock.patch.object(files, "MOST_ROWS", 30):
        made, _, left_out = report_of_rows(rent, facts_of_spec(rent.spec), make_table(60, seed=5), "flats.csv")
    assert (left_out, made["held_out"]["n"]) == (0, 30)


def test_a_table_without_the_target_is_refused(rent: Posterior) -> None:
    with pytest.raises(TableError, match="rent"):
        report_of_rows(rent, facts_of_spec(rent.spec), make_table(9).drop_columns(["rent"]), "flats.csv")
