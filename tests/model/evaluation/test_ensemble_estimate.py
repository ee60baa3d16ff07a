"""Narrowing of bands for what members add that have seen the rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from murho.model.evaluation.held_out import NumbersByJudges
from murho.model.evaluation.numbers import JudgedNumbers
from murho.model.evaluation.rows import RowWeights


def _judged(alone: np.ndarray, together: np.ndarray, judges: int, members: int) -> NumbersByJudges:
    """Rows of which only the sizes of normal scores are known: under single judges ``[n]``, and under all of them."""
    rows = len(together)
    nothing = np.zeros(rows)
    of_rows = JudgedNumbers(
        rows=np.arange(rows), targets=nothing, doubt=nothing, mean=nothing, values={"reach": together}, bands={}
    )
    return NumbersByJudges(
        together=of_rows,
        alone={"reach": alone},
        scores=together,
        percentiles=np.zeros((rows, 1)),
        outside=np.zeros(rows, dtype=np.bool_),
        judges=np.full(rows, judges),
        members=members,
    )


def _mixture_scores(targets: np.ndarray, means: np.ndarray) -> np.ndarray:
    heights = torch.special.ndtr(torch.from_numpy(targets - means)).mean(dim=0)
    scores: np.ndarray = torch.special.ndtri(heights.clamp(1e-9, 1.0 - 1e-9)).numpy()
    sizes: np.ndarray = np.abs(scores)
    return sizes


@pytest.mark.parametrize(("rows", "least", "most"), [(20_000, 0.0, 0.1), (900, -0.1, 0.2)])
def test_narrowed_bands_cover_nearly_as_promised(rows: int, least: float, most: float) -> None:
    """Limits of the share of over-coverage that remains when bands fitted to two members serve ten."""
    generator = np.random.default_rng(1)
    targets, means = generator.normal(0.0, 1.0, 20_000), generator.normal(0.0, 0.7, (10, 20_000))
    alone = np.mean([np.minimum(_mixture_scores(targets, means[[number]]), 3.0) for number in range(2)], axis=0)
    pair, everybody = _mixture_scores(targets, means[:2]), _mixture_scores(targets, means)
    judged = _judged(alone[:rows], np.minimum(pair[:rows], 3.0), 2, 10)
    factor = judged.narrowing(RowWeights.of(rows))
    assert factor is not None
    reach = float(np.quantile(pair, 0.9))
    covered_by_pairs = np.mean(everybody <= reach)
    covered = np.mean(everybody <= factor * reach)
    assert least <= (covered - 0.9) / (covered_by_pairs - 0.9) < most


def test_members_that_agree_leave_no_room_to_narrow() -> None:
    sizes = np.abs(np.random.default_rng(0).standard_normal(100))
    assert _judged(sizes, sizes, 2, 10).narrowing(RowWeights.of(100)) == 1.0


@pytest.mark.parametrize("judges", [1, 2])
def test_where_the_judges_alone_are_described_nothing_is_extrapolated(judges: int) -> None:
    sizes = np.abs(np.random.default_rng(0).standard_normal(100))
    judged = _judged(2.0 * sizes, sizes, judges, judges)
    assert judged.narrowing(RowWeights.of(100)) is None
    np.testing.assert_array_equal(judged.extrapolated()["reach"], sizes)
