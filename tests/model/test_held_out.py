"""Judging by members that have not seen a row."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from model import held_out
from model.held_out import calibrate_and_judge
from model.kinds import columns_from_table
from model.posterior import Posterior
from model.splits import HeldOut, split_rows
from tests.model.conftest import make_table


def test_a_row_is_judged_by_its_member_alone(rent: Posterior, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int | None] = []
    real = Posterior.function_values

    def spy(
        self: Posterior, *arguments: object, member: int | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        asked.append(member)
        return real(self, *arguments, member=member)  # type: ignore[arg-type]

    monkeypatch.setattr(Posterior, "function_values", spy)
    table = make_table(rows=60, seed=4)
    encoded = rent.encoder.encode(columns_from_table(table, rent.schema))
    targets = table.column("rent").to_numpy().copy()
    groups = split_rows(60, 0, members=2).held_out()
    conformal, report = calibrate_and_judge(rent, encoded, targets, groups, calibrating=range(2))
    assert asked == [0, 1]
    assert conformal is not None
    assert conformal.rows == report["n"] == 60
    assert {"rmse", "mae", "nll", "crps", "raw", "calibrated"} <= set(report)


def test_without_calibrating_groups_there_is_no_map(rent: Posterior) -> None:
    table = make_table(rows=30, seed=4)
    encoded = rent.encoder.encode(columns_from_table(table, rent.schema))
    targets = table.column("rent").to_numpy().copy()
    conformal, report = calibrate_and_judge(
        rent, encoded, targets, [HeldOut(np.arange(30), None)], calibrating=[]
    )
    assert conformal is None
    assert "calibrated" not in report


def test_draws_of_one_member_come_from_it_alone(rent: Posterior) -> None:
    rows = torch.zeros(3, rent.architecture.inputs)
    first, _ = rent.function_values(rows, 64, 0, member=0)
    both, _ = rent.function_values(rows, 128, 0)
    torch.testing.assert_close(first, both[::2])


def test_chunks_change_nothing(rent: Posterior, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_table(rows=60, seed=4)
    encoded = rent.encoder.encode(columns_from_table(table, rent.schema))
    targets = table.column("rent").to_numpy().copy()
    groups = split_rows(60, 0, members=2).held_out()
    _, whole = calibrate_and_judge(rent, encoded, targets, groups, calibrating=range(2))
    monkeypatch.setattr(held_out, "ROWS_PER_CHUNK", 7)
    _, parts = calibrate_and_judge(rent, encoded, targets, groups, calibrating=range(2))
    assert parts["nll"] == pytest.approx(whole["nll"], rel=1e-6)
    assert parts["calibrated"]["coverage"] == whole["calibrated"]["coverage"]
