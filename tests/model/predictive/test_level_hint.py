"""Percentile levels that look like shares."""

from __future__ import annotations

import pytest

from murho.model.predictive.prediction import level_hint


def test_shares_get_a_hint_with_the_levels_that_may_be_meant() -> None:
    hint = level_hint((0.05, 0.5, 0.95))
    assert hint is not None
    assert "0.05, 0.5, 0.95 are all below 1 %" in hint
    assert hint.endswith("ask for 5, 50, 95.")


@pytest.mark.parametrize("levels", [(), (5.0, 50.0, 95.0), (0.5, 99.5), (1.0,)])
def test_levels_in_per_cent_get_none(levels: tuple[float, ...]) -> None:
    assert level_hint(levels) is None
