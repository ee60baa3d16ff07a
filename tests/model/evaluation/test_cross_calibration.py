"""Calibration and scores of held-out rows by members that have not seen them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from murho.model.data.schema_inference import columns_from_table
from murho.model.data.splits import HeldOut, split_rows
from murho.model.evaluation import cross_calibration as held_out
from murho.model.evaluation import row_scores as judging
from murho.model.evaluation.cross_calibration import calibrate_and_score
from murho.model.posterior.posterior import Posterior
from tests.model.conftest import make_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from murho.model.posterior.drawn_rows import DrawnRows

Rows = tuple[np.ndarray, np.ndarray]


def labelled(rent: Posterior, rows: int) -> Rows:
    table = make_table(rows=rows, seed=4)
    return rent.encoder.encode(columns_from_table(table, rent.schema)), table.column("rent").to_numpy().copy()


def test_a_row_is_judged_by_its_members_alone(rent: Posterior, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[int, set[Sequence[int] | None]] = {}
    real = Posterior.drawn
    encoded, targets = labelled(rent, 60)

    def spy(
        self: Posterior, rows: torch.Tensor, samples: int, seed: int, *, members: Sequence[int] | None = None
    ) -> DrawnRows:
        for row in rows.numpy():
            (number,) = np.flatnonzero((encoded == row).all(axis=1))
            asked.setdefault(int(number), set()).add(members)
        return real(self, rows, samples, seed, members=members)

    monkeypatch.setattr(Posterior, "drawn", spy)
    groups = split_rows(60, 0, members=2).held_out(2)
    conformal, report = calibrate_and_score(rent, encoded, targets, groups, calibrating=range(2))
    assert asked == {int(row): {group.members} for group in groups for row in group.rows}
    assert {group.members for group in groups} == {(0,), (1,)}
    assert conformal is not None
    assert conformal.rows == report["n"] == 60
    assert {"rmse", "mae", "nll", "crps", "raw", "calibrated"} <= set(report)


def test_without_calibrating_groups_there_is_no_map(rent: Posterior) -> None:
    encoded, targets = labelled(rent, 30)
    conformal, report = calibrate_and_score(rent, encoded, targets, [HeldOut(np.arange(30), None)], calibrating=[])
    assert conformal is None
    assert "calibrated" not in report


def test_calibrated_bands_are_judged_by_the_other_groups(rent: Posterior) -> None:
    """One group lies far off: a map of the other groups covers none of its rows, a map of all rows would cover some."""
    encoded, targets = labelled(rent, 60)
    targets[40:] += 5000.0
    groups = [HeldOut(np.arange(40), None), HeldOut(np.arange(40, 60), None)]
    _, report = calibrate_and_score(rent, encoded, targets, groups, calibrating=range(2))
    assert report["calibrated"]["coverage"]["90"] == pytest.approx(40.0 / 60.0)


def test_draws_of_one_member_come_from_it_alone(rent: Posterior) -> None:
    rows = torch.zeros(3, rent.architecture.inputs)
    first = rent.predictive(rows, 64, 0, members=[0]).means
    both = rent.predictive(rows, 128, 0).means
    torch.testing.assert_close(first, both[::2])


def test_chunks_change_nothing(rent: Posterior, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded, targets = labelled(rent, 60)
    groups = split_rows(60, 0, members=2).held_out(2)
    _, whole = calibrate_and_score(rent, encoded, targets, groups, calibrating=range(2))
    monkeypatch.setattr(judging, "ROWS_PER_CHUNK", 7)
    _, parts = calibrate_and_score(rent, encoded, targets, groups, calibrating=range(2))
    assert parts["nll"] == pytest.approx(whole["nll"], rel=1e-6)
    assert parts["calibrated"]["coverage"] == whole["calibrated"]["coverage"]


def test_where_two_members_judge_a_row_the_map_is_sharpened(rent: Posterior, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded, targets = labelled(rent, 60)
    groups = [HeldOut(np.arange(30), (0, 1)), HeldOut(np.arange(30, 60), (0, 1))]
    plain, _ = calibrate_and_score(rent, encoded, targets, groups, calibrating=range(2))
    monkeypatch.setattr(held_out, "sharpening", lambda *_, **__: 0.5)
    sharp, report = calibrate_and_score(rent, encoded, targets, groups, calibrating=range(2))
    assert plain is not None
    assert sharp is not None
    np.testing.assert_allclose(sharp.observed, 0.5 * np.array(plain.observed), rtol=1e-6)
    # The judges themselves are judged by what holds for them.
    assert report["calibrated"]["coverage"]["90"] == pytest.approx(0.9, abs=0.05)
