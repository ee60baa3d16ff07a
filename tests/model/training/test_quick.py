"""A quick training: one candidate, few members, and the same seed the same tensors."""

from __future__ import annotations

import pytest
import torch

from murho.model.training.options import QUICK_MEMBERS, default_budget, make_options, quick_budget
from murho.model.training.train import train
from tests.model.conftest import Notes, make_table

SMALL = {"epochs": 12, "hidden": (6,)}


def test_one_candidate_is_fitted_with_few_members_and_calibrated() -> None:
    spec = train(make_table(), "rent", make_options(SMALL | {"quick": True}), reporter=Notes()).spec
    candidates = spec.training["candidates"]
    assert [one["stage"] for one in candidates] == ["full", "settling"]
    assert {(one["noise"], one["transform"], one["encoding"]) for one in candidates} == {
        ("heteroscedastic", "none", "standard")
    }
    assert spec.architecture.members == QUICK_MEMBERS
    assert spec.calibration is not None


def test_the_same_seed_gives_the_same_tensors() -> None:
    options = make_options(SMALL | {"quick": True, "members": 2, "seed": 3})
    first, second = (train(make_table(), "rent", options, reporter=Notes()).posterior.tensors for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(
    ("given", "members"),
    [({}, 10), ({"quick": True}, 5), ({"quick": True, "members": 10}, 10), ({"quick": True, "members": 3}, 3)],
)
def test_a_given_number_of_members_is_kept(given: dict[str, object], members: int) -> None:
    assert make_options(given).members == members


def test_its_work_is_a_small_share_of_the_searchs() -> None:
    assert quick_budget(1_000) <= 3.0


def test_the_default_budget_grows_with_the_table() -> None:
    assert default_budget(100) == default_budget(1_000) == 48.0
    assert 48.0 < default_budget(5_000) < default_budget(10_000) == default_budget(50_000) == 290.0
    assert default_budget(10**7) == 900.0
