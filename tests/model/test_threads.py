"""Threads for an answer: one for a little work, and afterwards as many as before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from model.prediction import PredictOptions
from model.threads import FEW_PRODUCTS, threads_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from model.posterior import Posterior


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_a_little_work_has_one_thread_and_more_has_all() -> None:
    with threads_for(FEW_PRODUCTS):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2
    with threads_for(FEW_PRODUCTS + 1):
        assert torch.get_num_threads() == 2


def test_a_failure_leaves_as_many_as_before() -> None:
    with pytest.raises(ZeroDivisionError), threads_for(1):
        raise ZeroDivisionError
    assert torch.get_num_threads() == 2


def test_an_answer_for_one_row_wakes_no_other_thread_and_one_for_many_does(
    rent: Posterior, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    real = rent.outside

    def outside(rows: torch.Tensor) -> torch.Tensor:
        seen.append(torch.get_num_threads())
        return real(rows)

    monkeypatch.setattr(rent, "outside", outside)
    encoded = torch.zeros((2000, rent.encoder.width)).numpy()
    for rows in (1, 2000):
        rent.predict_encoded(encoded[:rows], PredictOptions(samples=256))
    assert (seen[0], seen[-1]) == (1, 2)
    assert torch.get_num_threads() == 2
