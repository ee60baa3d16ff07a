"""The stages of a search: when the prior comes in, and their numbers and shares in the progress."""

from __future__ import annotations

import pytest

from murho.model.training.candidates import (
    FEW_ROWS,
    FULL,
    SETTLING,
    SHARE_OF_SEARCH,
    TRIAL,
    SearchPlan,
    epochs_of,
    warm_up_share,
)
from murho.model.training.options import make_options
from tests.model.conftest import Notes, make_table, train_quickly


def test_the_prior_comes_in_sooner_where_rows_are_many() -> None:
    assert warm_up_share(FEW_ROWS - 1) == 0.7
    assert warm_up_share(FEW_ROWS) == warm_up_share(10**6) == 0.2


def test_stages_of_a_search_count_up_and_their_shares_add_up() -> None:
    notes = Notes()
    train_quickly(make_table(), notes, noise="auto", temperature=None, members=2)
    fits, last = notes.stages[:-1], notes.stages[-1]
    assert [stage.number for stage in fits] == list(range(1, len(fits) + 1))
    assert all(stage.number <= stage.fits for stage in fits)
    assert fits[0].done == 0.0
    assert [stage.done for stage in notes.stages] == sorted(stage.done for stage in notes.stages)
    assert all(stage.done + stage.share <= 1.0 for stage in notes.stages)
    assert last.title == "calibrating and scoring on held-out rows"


def test_a_plan_knows_what_is_left_and_how_far_the_training_is() -> None:
    plan = SearchPlan([TRIAL, FULL, SETTLING], make_options({}), FEW_ROWS - 1, began=0.0)
    assert plan.time == plan.time_left == 1.5
    trial, _ = plan.begin(TRIAL, 1, "trial", 0.0)
    assert (trial.number, trial.fits, trial.done) == (1, 3, 0.0)
    assert trial.share == pytest.approx(SHARE_OF_SEARCH / 6.0)
    plan.add(SETTLING)
    assert (plan.fits, plan.time, plan.time_left) == (4, 1.75, 1.5)
    full, _ = plan.begin(FULL, 2, "full", 0.0)
    assert full.done == pytest.approx(SHARE_OF_SEARCH / 7.0)


@pytest.mark.parametrize(
    ("stage", "minibatches", "epochs", "of_stage"),
    [(FULL, 10, None, 500), (TRIAL, 10, None, 125), (FULL, 1_000, None, 40), (SETTLING, 10, 2, 1), (TRIAL, 1, 40, 10)],
)
def test_a_stage_has_its_share_of_the_steps(stage: str, minibatches: int, epochs: int | None, of_stage: int) -> None:
    assert epochs_of(stage, minibatches, epochs) == of_stage
