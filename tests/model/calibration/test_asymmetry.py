"""The share of the signed quantiles in a blend with symmetric ones."""

from __future__ import annotations

import numpy as np

from murho.model.calibration.conformal import asymmetry_share, signed_quantiles


def _share(scores: np.ndarray, units: int | None = None) -> float:
    count = len(scores)
    return asymmetry_share(scores, np.full(count, 1.0 / count), count if units is None else units)


def test_symmetric_scores_have_none_as_a_rule_and_little_at_worst() -> None:
    shares = [_share(np.random.default_rng(seed).standard_normal(300)) for seed in range(200)]
    assert np.mean(np.array(shares) == 0.0) > 0.8
    assert np.mean(shares) < 0.1


def test_scores_that_all_lie_on_one_side_have_it_all() -> None:
    assert _share(np.abs(np.random.default_rng(0).standard_normal(1_000))) > 0.98


def test_few_units_are_little_evidence() -> None:
    scores = np.random.default_rng(0).exponential(size=400) - 1.0
    assert _share(scores) > 0.7
    assert _share(scores, units=20) < _share(scores, units=200) < _share(scores)


def test_signed_quantiles_are_order_statistics_and_go_on_beyond_the_last() -> None:
    scores = np.arange(1.0, 20.0)  # 19 scores: the k-th is at level k / 20
    nominal = np.array([0.6744897501960817, 1.6448536269514722, 5.0])  # levels 0.75 and 0.95
    centre, upper, lower = signed_quantiles(scores, np.full(19, 1.0 / 19.0), 19, nominal)
    assert centre == 10.0
    np.testing.assert_allclose(upper[:2], [15.0, 19.0], atol=1e-9)
    np.testing.assert_allclose(lower[:2], [5.0, 1.0], atol=1e-9)
    assert upper[2] > 19.0 + 3.0
    assert lower[2] < 1.0 - 3.0
