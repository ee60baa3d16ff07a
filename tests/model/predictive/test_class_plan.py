"""The probabilities of an answer: raw, calibrated, and beyond the training rows."""

from __future__ import annotations

import torch
from torch import Tensor

from murho.model.calibration.classes import ClassMap
from murho.model.predictive.plans import served_probabilities

RAW = torch.tensor([[0.9995, 0.0005], [0.3, 0.7]], dtype=torch.float64)
SHARES = torch.tensor([0.8, 0.2], dtype=torch.float64)
SHARP = ClassMap((3.0, 3.0), (0.0, 0.0), 0.0025)


def _served(mapped: ClassMap | None, outside: Tensor | None = None, doubt: float = 0.0) -> Tensor:
    doubts = torch.full((len(RAW),), doubt, dtype=torch.float64)
    return served_probabilities(RAW, mapped, SHARES, outside, lambda: doubts)


def test_with_a_map_that_changes_nothing_the_calibrated_answer_is_the_raw_one() -> None:
    torch.testing.assert_close(_served(ClassMap.none(2)), RAW)
    torch.testing.assert_close(_served(None), RAW)


def test_a_sharp_map_makes_no_probability_surer_than_its_rows_can_tell() -> None:
    served = _served(SHARP)
    assert float(served[0, 1]) >= 0.25 / 100 / 2
    assert float(served[1, 1]) > 0.9


def test_beyond_the_training_rows_a_map_makes_no_answer_surer_and_doubt_draws_it_to_the_shares() -> None:
    outside = torch.tensor([False, True])
    torch.testing.assert_close(_served(SHARP, outside)[1], RAW[1])
    torch.testing.assert_close(_served(SHARP, outside, doubt=0.5)[1], 0.75 * RAW[1] + 0.25 * SHARES)
    torch.testing.assert_close(_served(SHARP, outside, doubt=1.0)[1], SHARES)
    torch.testing.assert_close(_served(SHARP, outside)[0], _served(SHARP)[0])
