"""The calibration of totals finds what is shared, and stays near 1 without evidence."""

from statistics import NormalDist

import numpy as np
import pytest

from murho.model.calibration.totals_calibration import HeldOutTotals, TotalsCalibration, fit_totals


def held_out(blocks: int, truth: TotalsCalibration, *, rows: int = 50, seed: int = 0) -> HeldOutTotals:
    """Totals of rows with a noise variance of 1, of which draws say that rows share a variance of 0.05."""
    own, pairs, drawn, count, one = np.outer(
        (0.05 * rows, rows * (rows - 1), 0.05 * rows**2, rows, 1.0), np.ones(blocks)
    )
    variance = np.add(*truth.variances(count, own, count, count, pairs, drawn))
    error = np.square(np.random.default_rng(seed).normal(0.0, np.sqrt(variance)))
    return HeldOutTotals(count, error, own, count, count, pairs, drawn, one)


@pytest.mark.parametrize("shared", [0.25, 1.0, 4.0])
def test_the_shared_part_is_found(shared: float) -> None:
    small = held_out(400, TotalsCalibration(shared=shared), rows=2)
    fitted = fit_totals(
        HeldOutTotals.join([held_out(400, TotalsCalibration(shared=shared)), small]), units=False, in_time=False
    )
    assert fitted.shared == pytest.approx(shared, rel=0.3)
    assert fitted.independent == pytest.approx(1.0, rel=0.25)


def test_little_evidence_leaves_the_factors_near_one() -> None:
    fitted = fit_totals(held_out(2, TotalsCalibration(shared=4.0), rows=5), units=False, in_time=False)
    assert 0.5 < fitted.shared < 2.0
    assert 0.7 < fitted.independent < 1.5


def test_correlation_within_units_is_found() -> None:
    truth = TotalsCalibration(within=0.5)
    fitted = fit_totals(
        HeldOutTotals.join([held_out(400, truth), held_out(400, truth, rows=2)]), units=True, in_time=False
    )
    total = sum(fitted.variances(*(np.array(each) for each in (50.0, 2.5, 50.0, 50.0, 2450.0, 125.0))))
    expected = sum(truth.variances(*(np.array(each) for each in (50.0, 2.5, 50.0, 50.0, 2450.0, 125.0))))
    assert total == pytest.approx(expected, rel=0.2)


def days(rng: np.random.Generator, correlation: float) -> HeldOutTotals:
    """Totals of five hundred days in a row of noise of variance 1, in blocks of 5 and 20 days and in hundreds."""
    noise = np.empty(500)
    for day, shock in enumerate(rng.standard_normal(500) * np.sqrt(1.0 - correlation**2)):
        noise[day] = correlation * noise[day - 1] + shock if day else rng.standard_normal()
    parts = []
    for size in (5, 20, 100):
        error, none = noise.reshape(-1, size).sum(axis=1) ** 2, np.zeros(500 // size)
        parts.append(
            HeldOutTotals(none + size, error, none, none + size, none + size, none, none, none + size**0.5 / 10)
        )
    return HeldOutTotals.join(parts)


@pytest.mark.parametrize("correlation", [0.0, 0.6, 0.98])
def test_bands_of_days_to_come_hold_the_truth_though_few_independent_ones_are_known(correlation: float) -> None:
    rng, shares = np.random.default_rng(0), []
    hundred = [np.array(each) for each in (100.0, 0.0, 100.0, 100.0, 0.0, 0.0)]
    for _ in range(8):
        fitted = fit_totals(days(rng, correlation), units=False, in_time=True)
        told, true = (sum(each.variances(*hundred)) for each in (fitted, TotalsCalibration(neighbours=correlation)))
        shares.append(2.0 * NormalDist().cdf(1.6449 * float(told / true) ** 0.5) - 1.0)
    assert 0.86 <= np.mean(shares) <= 0.96


def test_one_row_keeps_its_own_variance() -> None:
    calibration = TotalsCalibration(shared=3.0, independent=2.0, within=0.5, neighbours=0.5)
    epistemic, aleatoric = calibration.variances(*(np.array(each) for each in (1.0, 0.3, 0.7, 0.7**0.5, 0.0, 0.3)))
    assert (float(epistemic), float(aleatoric)) == pytest.approx((0.3, 0.7))
