"""Candidates of a search and their losses."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from murho.model.training.candidates import Attempt, Candidate


def test_the_loss_weighs_nll_and_crps_alike_and_does_not_depend_on_the_unit() -> None:
    candidate = Candidate("mixture", "none", "standard", False, (8,), 1.0)
    loss = Attempt(candidate, "full", nll=2.0, crps=0.5, seconds=1.0).loss
    in_cents = Attempt(candidate, "full", nll=2.0 + math.log(100.0), crps=50.0, seconds=1.0).loss
    assert in_cents - loss == pytest.approx(math.log(100.0))
    assert str(candidate) == "mixture noise, transform none, standard encoding, hidden 8, temperature 1"
    whitened = replace(candidate, whitened=True, temperature=None)
    assert str(whitened) == "mixture noise, transform none, standard encoding, whitened, hidden 8"
