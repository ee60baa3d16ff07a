"""Which rows lie beyond the training rows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from murho.model.distributions.transforms import Identity, Logarithm, Standardisation
from murho.model.encoding.training_range import BEYOND, FURTHEST_TARGET, BeyondRule, Outside, TrainingRange
from murho.model.errors import CheckpointError

if TYPE_CHECKING:
    from murho.model.checkpoint.posterior import Posterior

RANGE = TrainingRange(torch.tensor([-1.0, 0.0, -torch.inf]), torch.tensor([2.0, 0.0, torch.inf]))
ROWS = torch.tensor([[-1.0, 0.0, 9.0], [2.0, 0.0, -9.0], [2.1, 0.0, 0.0], [0.0, 1.0, 0.0], [-5.0, -1.0, 0.0]])


def test_the_ends_are_inside_and_one_column_is_enough_to_be_outside() -> None:
    assert RANGE.outside(ROWS).tolist() == [False, False, True, True, True]


def test_the_nearest_point_is_inside_and_that_of_a_row_inside_is_the_row() -> None:
    nearest = RANGE.nearest(ROWS)
    assert nearest[2:].tolist() == [[2.0, 0.0, 0.0], [0.0, 0.0, 0.0], [-1.0, 0.0, 0.0]]
    assert torch.equal(nearest[:2], ROWS[:2])
    assert not RANGE.outside(nearest).any()


@pytest.mark.parametrize("mask", [[True, False, True], [False, False, False], [True, True, True], []])
def test_rows_are_told_apart_by_their_numbers(mask: list[bool]) -> None:
    outside = Outside.of(torch.tensor(mask, dtype=torch.bool))
    assert outside.rows.tolist() == [row for row, beyond in enumerate(mask) if beyond]
    assert outside.others().tolist() == [row for row, beyond in enumerate(mask) if not beyond]
    assert len(outside) == sum(mask)
    assert outside.everywhere == all(mask)


def test_the_reach_of_a_checkpoint_is_its_encoders(rent: Posterior) -> None:
    bounds = TrainingRange.of(rent.encoder, rent.device)
    np.testing.assert_array_equal(torch.stack((bounds.least, bounds.most)).numpy(), rent.encoder.training_range)


@pytest.mark.parametrize("rule", [BeyondRule(), BeyondRule((-1.0, 3.0))])
def test_the_rule_survives_its_json(rule: BeyondRule) -> None:
    assert BeyondRule.from_json(rule.to_json()) == rule


def test_function_values_outside_are_limited_to_some_widths_of_the_targets_beyond_them() -> None:
    plain = Standardisation(Identity(), 10.0, 2.0)
    further = FURTHEST_TARGET * 6.0
    assert BeyondRule(targets=(8.0, 14.0)).limits(plain.forward) == ((-2.0 - further) / 2.0, (4.0 + further) / 2.0)
    assert BeyondRule().limits(plain.forward) is None
    log = Logarithm(0.0, math.log(40.0))
    least, most = BeyondRule(targets=(10.0, 40.0)).limits(Standardisation(log, 0.0, 1.0).forward) or (0.0, 0.0)
    assert least < -100.0  # a positive target has no value so low
    assert float(log.inverse(torch.tensor(most))) == pytest.approx(40.0 + FURTHEST_TARGET * 30.0)


@pytest.mark.parametrize(
    ("beyond", "where"),
    [
        ({"rule": "flat", "targets": None}, r"beyond\.rule"),
        ({}, "beyond"),
        (BEYOND, "beyond"),
        ({"rule": BEYOND}, "beyond"),
        ({"rule": BEYOND, "targets": None, "side": "left"}, "beyond"),
        ({"rule": BEYOND, "targets": [1.0]}, r"beyond\.targets"),
        ({"rule": BEYOND, "targets": [2.0, 1.0]}, r"beyond\.targets"),
    ],
)
def test_a_rule_that_is_not_known_is_refused(beyond: object, where: str) -> None:
    with pytest.raises(CheckpointError, match=f"^{where}"):
        BeyondRule.from_json(beyond, "beyond")
