"""The rows that a report shows: those of the user's table, the most surprising ones first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tests.model.conftest import make_table

if TYPE_CHECKING:
    from murho.model.training.train import Trained


def test_every_point_is_a_row(rows: dict[str, Any], trained: Trained) -> None:
    observed = sorted(point["observed"] for point in rows["points"])
    np.testing.assert_allclose(observed, np.sort(trained.evidence.targets))
    inside = np.mean([point["lower"] <= point["observed"] <= point["upper"] for point in rows["points"]])
    assert 0.85 <= inside <= 0.95


def test_surprising_rows_have_their_number_and_cells_in_the_table_and_the_rarest_comes_first(
    rows: dict[str, Any],
) -> None:
    table = make_table()
    found = rows["surprising"]
    assert len(found) == 10
    assert [row["one_in"] for row in found] == sorted((row["one_in"] for row in found), reverse=True)
    for row in found:
        cells = {name: table[name][row["row"] - 1].as_py() for name in ("rent", "district", "lift")}
        assert row["observed"] == cells["rent"]
        assert row["cells"]["district"] == cells["district"]
        assert row["cells"]["lift"] == ("yes" if cells["lift"] else "no")
