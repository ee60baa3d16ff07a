"""One fit is better than another only by more than chance, row by row."""

import math
from typing import cast

import pytest
import torch

from murho.model.bbb.fit import Fit
from murho.model.training.candidates import Attempt, Candidate
from murho.model.training.scoring import is_better, paired_difference
from murho.model.training.search import BestSoFar


def _rows(seed: int, shift: float = 0.0, scatter: float = 0.1, rows: int = 400) -> torch.Tensor:
    """Scores with the same hard rows for every seed, and differences of their own."""
    hard = torch.randn(rows, generator=torch.Generator().manual_seed(99)).double()
    own = scatter * torch.randn(rows, generator=torch.Generator().manual_seed(seed)).double()
    own -= own.mean() if rows > 1 else 0.0
    return torch.stack((2.0 + hard + own + shift, torch.exp(0.5 * hard)))


def test_the_difference_is_that_of_the_losses_to_first_order() -> None:
    first, second = _rows(1), _rows(2, shift=0.05)
    second[1] *= 1.02
    difference, _ = paired_difference(second, first)
    losses = [0.5 * (float(rows[0].mean()) + math.log(float(rows[1].mean()))) for rows in (first, second)]
    assert difference == pytest.approx(losses[1] - losses[0], abs=1e-5)


def test_rows_that_are_hard_for_both_add_nothing_to_the_standard_error() -> None:
    _, error = paired_difference(_rows(1), _rows(2))
    assert error == pytest.approx(0.5 * math.sqrt(2.0) * 0.1 / math.sqrt(400), rel=0.15)


@pytest.mark.parametrize(
    ("shift", "simpler", "taken"),
    [(-0.1, False, True), (-0.001, False, False), (0.001, True, True), (0.1, True, False), (-0.1, True, True)],
)
def test_the_simpler_choice_is_taken_unless_the_other_is_better_by_a_standard_error(
    shift: float, simpler: bool, taken: bool
) -> None:
    assert is_better(_rows(1, shift), _rows(2), simpler=simpler) == taken
    assert not is_better(_rows(1, -9.0, rows=1), _rows(2, rows=1), simpler=False)  # a single row decides nothing


def _attempt(temperature: float, rows: torch.Tensor | None) -> Attempt:
    candidate = Candidate("mixture", "none", "standard", False, (8,), temperature)
    if rows is None:
        return Attempt(candidate, "trial", math.inf, math.inf, 1.0)
    return Attempt(candidate, "trial", float(rows[0].mean()), float(rows[1].mean()), 1.0, rows)


@pytest.mark.parametrize(
    ("few", "choice", "kept"), [(False, "temperature", True), (True, None, True), (True, "temperature", False)]
)
def test_on_few_rows_one_choice_must_win_by_more_than_chance(few: bool, choice: str | None, kept: bool) -> None:
    best = BestSoFar(few=few)
    best.keep(_attempt(0.3, _rows(1)), cast("Fit", object()))
    assert best.keep(_attempt(0.1, _rows(2, -0.001)), cast("Fit", object()), choice) == kept


def test_a_unit_of_the_target_changes_nothing() -> None:
    first, second = _rows(1), _rows(2)
    in_cents = torch.tensor([[math.log(100.0)], [0.0]]).double()
    factor = torch.tensor([[1.0], [100.0]]).double()
    expected = paired_difference(first, second)
    assert paired_difference(first * factor + in_cents, second * factor + in_cents) == pytest.approx(expected)
