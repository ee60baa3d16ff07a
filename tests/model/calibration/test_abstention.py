"""Abstention: what the held-out rows must show, and how often the promise holds."""

import numpy as np
import pytest

from murho.model.calibration.abstention import HeldOutClasses, least_confidence


def test_the_risk_is_controlled_and_much_is_decided() -> None:
    random = np.random.default_rng(1)

    def rows(count: int) -> tuple[np.ndarray, np.ndarray]:
        confidence = 0.5 + 0.5 * random.beta(5.0, 1.0, count)
        return confidence, random.random(count) > confidence

    new, wrong = rows(200_000)
    order = np.argsort(-new)
    best = np.max(np.flatnonzero(np.cumsum(wrong[order]) / np.arange(1, len(new) + 1) <= 0.05)) / len(new)
    broken, decided = 0, []
    for _ in range(400):
        taken = new >= least_confidence(*rows(1500), 0.05)
        broken += bool(taken.any() and wrong[taken].mean() > 0.05)
        decided.append(taken.mean())
    assert broken <= 0.05 * 400
    assert np.mean(decided) > 0.65 * best


@pytest.mark.parametrize(
    ("count", "errors", "proven"), [(0, 0, False), (58, 0, False), (150, 0, True), (400, 30, False), (400, 5, True)]
)
def test_what_few_rows_prove(count: int, errors: int, proven: bool) -> None:
    wrong = np.arange(count) < errors
    assert bool(least_confidence(np.full(count, 0.9), wrong, 0.05) <= 0.9) is proven


def test_one_row_of_each_unit_is_kept_and_none_unlike() -> None:
    probabilities = np.full((6, 2), 0.5)
    units = np.array([0, 0, 1, 1, 2, 3])
    kept = HeldOutClasses.of(probabilities, np.array([0, 1, 1, 1, 0, 1]), np.arange(6) == 4, units)
    assert kept.labels.tolist() == [0, 1, 1]
    assert kept.left_out == 1
    again = HeldOutClasses.of(probabilities, kept.labels.repeat(2), np.zeros(6, dtype=bool), np.arange(6), kept)
    assert len(again.labels) == 9
    assert HeldOutClasses.from_json(again.to_json()).to_json() == again.to_json()
