"""Totals of rows: brute force, exact counts, partial totals in any order, groups of one row."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pytest

from murho.model.calibration.totals_calibration import TotalsCalibration
from murho.model.errors import OptionError
from murho.model.predictive import totals as module
from murho.model.predictive.prediction import Prediction, PredictOptions
from murho.model.predictive.row_moments import RowMoments
from murho.model.predictive.totals import MOST_GROUPS, Totals, TotalsOptions
from tests.model.conftest import present

SAMPLES = 64
LEVELS = (5.0, 50.0, 95.0)
OPTIONS = PredictOptions(samples=SAMPLES, percentiles=LEVELS)


@dataclass(frozen=True)
class Rows:
    """Rows whose distribution under each draw is known; their only column is their number."""

    means: np.ndarray
    widths: np.ndarray
    """Of the logarithm of lognormal noise, ``[B]``; 0: the noise is Gaussian, with standard deviation 1."""

    @classmethod
    def made(cls, count: int, width: float, seed: int = 0) -> Self:
        rng = np.random.default_rng(seed)
        shared, own = rng.normal(size=(SAMPLES, 1)), rng.normal(size=(SAMPLES, count))
        return cls(3.0 + np.exp(0.2 * shared + 0.1 * own), np.full(count, width))

    def variances(self) -> np.ndarray:
        return np.where(self.widths > 0.0, self.means**2 * np.expm1(self.widths**2), 1.0)

    def predict(self, columns: Any, options: PredictOptions) -> Prediction:
        rows = columns["row"].astype(int)
        means, variances = self.means[:, rows], self.variances()[:, rows]
        growth = np.exp(self.widths[rows] ** 2)
        third = variances**1.5 * ((growth + 2.0) * np.sqrt(growth - 1.0))
        rng = np.random.default_rng(1)
        noise = rng.normal(size=(2_000, 1, len(rows))) * self.widths[rows]
        sampled = means * np.exp(noise - 0.5 * self.widths[rows] ** 2) if options.percentiles else None
        flat = None if sampled is None else sampled.reshape(-1, len(rows))
        return Prediction(
            samples=SAMPLES,
            seed=0,
            calibrated=True,
            extrapolation=np.zeros(means.shape[1], dtype=bool),
            mean=means.mean(axis=0),
            epistemic_std=means.std(axis=0),
            aleatoric_std=np.sqrt(variances.mean(axis=0)),
            draws=means.T,
            variances=variances.T,
            third=third.mean(axis=0),
            percentiles=None if flat is None or not options.percentiles else np.percentile(flat, LEVELS, axis=0).T,
            exceedance=_exceedance(means, options.thresholds) if options.thresholds else None,
        )

    def sampled_totals(self, draws: int) -> np.ndarray:
        rng = np.random.default_rng(5)
        totals = []
        for means, variances in zip(self.means, self.variances(), strict=True):
            noise = rng.normal(size=(draws, len(means)))
            if self.widths.any():
                totals.append((means * np.exp(self.widths * noise - 0.5 * self.widths**2)).sum(axis=1))
            else:
                totals.append((means + np.sqrt(variances) * noise).sum(axis=1))
        return np.concatenate(totals)


def _exceedance(means: np.ndarray, thresholds: tuple[float, ...]) -> np.ndarray:
    from torch import special, tensor

    return np.stack([special.ndtr(tensor(means - each)).mean(dim=0).numpy() for each in thresholds], axis=1)


def added(totals: Totals, rows: Rows, numbers: range, labels: list[Any] | None = None, **more: Any) -> Totals:
    columns = {"row": np.array(numbers, dtype=float)}
    totals.add(rows.predict(columns, totals.asked), columns, labels or [()] * len(numbers), **more)
    return totals


def answer_of(totals: Totals, rows: Rows, calibration: TotalsCalibration | None = None) -> Any:
    alone = None if totals.alone is None else rows.predict(*totals.alone)
    return totals.answer(alone, calibration)


def of(rows: Rows, options: TotalsOptions, labels: list[Any] | None = None, **more: Any) -> Any:
    return answer_of(added(Totals(options), rows, range(rows.means.shape[1]), labels, **more), rows)


@pytest.mark.parametrize("width", [0.0, 0.5])
@pytest.mark.parametrize("count", [2, 40, 1000])
def test_percentiles_are_those_of_sampled_noise(count: int, width: float) -> None:
    rows = Rows.made(count, width)
    answer, sampled = of(rows, TotalsOptions(of=OPTIONS)), rows.sampled_totals(max(400, 400_000 // (count * SAMPLES)))
    std = sampled.std()
    assert answer.mean[0] == pytest.approx(rows.means.mean(axis=0).sum())
    assert answer.std[0] == pytest.approx(std, rel=0.02)
    error = (answer.percentiles[0] - np.percentile(sampled, LEVELS)) / std
    assert np.abs(error).max() < 0.01 + 4.0 * 2.1 / np.sqrt(len(sampled))


def test_one_row_has_its_own_answer() -> None:
    rows = Rows.made(3, 0.5)
    answer = of(rows, TotalsOptions(of=OPTIONS), [("a",), ("b",), ("a",)], weights=np.array([1.0, 2.0, 1.0]))
    own: Any = rows.predict({"row": np.array([1.0])}, OPTIONS)
    assert answer.groups == [("a",), ("b",)]
    np.testing.assert_allclose(answer.percentiles[1], 2.0 * own.percentiles[0])
    np.testing.assert_allclose(answer.mean[1], 2.0 * own.mean[0])
    np.testing.assert_allclose(answer.std[1], 2.0 * np.hypot(own.epistemic_std[0], own.aleatoric_std[0]))


def test_a_total_has_the_variance_of_both_parts_and_a_mean_divides() -> None:
    rows, weights = Rows.made(300, 0.0), np.linspace(0.0, 3.0, 300)
    total, mean = (of(rows, TotalsOptions(each, of=OPTIONS), weights=weights) for each in ("sum", "mean"))
    expected = (rows.means * weights).sum(axis=1)
    assert total.epistemic_std[0] == pytest.approx(expected.std())
    assert total.aleatoric_std[0] == pytest.approx(np.sqrt((weights**2).sum()))
    assert total.std[0] ** 2 == pytest.approx(total.epistemic_std[0] ** 2 + total.aleatoric_std[0] ** 2)
    for name in ("mean", "std", "percentiles"):
        np.testing.assert_allclose(getattr(mean, name), getattr(total, name) / weights.sum())


def test_a_group_without_weight_sums_to_zero_and_has_no_mean() -> None:
    rows, asked = Rows.made(3, 0.5), replace(OPTIONS, thresholds=(-1.0,))
    answer = of(rows, TotalsOptions(of=asked), weights=np.zeros(3))
    assert (*answer.mean, *answer.std, *answer.percentiles[0]) == pytest.approx((0.0,) * 5)
    assert answer.exceedance[0] == 1.0
    with pytest.raises(OptionError, match="--weights"):
        of(rows, TotalsOptions("mean", of=OPTIONS), weights=np.zeros(3))


@pytest.mark.parametrize(("statistic", "threshold"), [("sum", None), ("count_above", 4.5)])
def test_partial_totals_give_the_same_answer_in_any_order(statistic: str, threshold: float | None) -> None:
    rows = Rows.made(90, 0.0)
    options = TotalsOptions(statistic, threshold, OPTIONS)
    labels = [(number % 3,) for number in range(90)]
    whole = of(rows, options, labels)
    parts = []
    for start in (60, 0, 30):
        numbers = range(start, start + 30)
        parts.append(added(Totals(options), rows, numbers, [labels[number] for number in numbers]))
    first, *others = parts
    for other in others:
        first.merge(other)
    joined = answer_of(first, rows)
    order = [joined.groups.index(label) for label in whole.groups]
    for name in ("rows", "mean", "std", "epistemic_std", "aleatoric_std", "percentiles"):
        np.testing.assert_allclose(getattr(joined, name)[order], getattr(whole, name), rtol=1e-6)


def test_a_count_is_exact_and_goes_over_into_the_approximation() -> None:
    rows, threshold = Rows.made(260, 0.0), 4.5
    options = TotalsOptions("count_above", threshold, OPTIONS)
    rng = np.random.default_rng(3)
    few, many = (of(Rows(rows.means[:, :count], rows.widths[:count]), options) for count in (20, 260))
    for answer, count in ((few, 20), (many, 260)):
        above = rows.means[:, :count] + rng.normal(size=(2_000, SAMPLES, count)) > threshold
        counts = above.sum(axis=2).ravel()
        assert answer.mean[0] == pytest.approx(counts.mean(), abs=0.02 * counts.std())
        assert answer.std[0] == pytest.approx(counts.std(), rel=0.01)
        np.testing.assert_allclose(answer.percentiles[0], np.percentile(counts, LEVELS), atol=0 if count == 20 else 1)


@pytest.mark.parametrize("width", [0.0, 0.5])
def test_a_percentile_does_not_depend_on_the_others(width: float) -> None:
    rows, outer = Rows.made(40, width), (1e-200, 1e-6, 50.0, 99.9, 99.9999999999)
    together = of(rows, TotalsOptions(of=replace(OPTIONS, percentiles=outer))).percentiles[0]
    alone = [of(rows, TotalsOptions(of=replace(OPTIONS, percentiles=(each,)))).percentiles[0, 0] for each in outer]
    np.testing.assert_allclose(together, alone)
    assert (np.diff(together) > 0.0).all()
    assert together[2] == pytest.approx(np.median(rows.sampled_totals(10_000)), rel=0.01)


def test_percentiles_of_a_count_go_to_the_outermost_levels() -> None:
    rows = Rows.made(3, 0.0)
    ends = of(rows, TotalsOptions("count_above", 4.5, replace(OPTIONS, percentiles=(1e-9, 100.0 - 1e-9)))).percentiles
    assert ends.tolist() == [[0.0, 3.0]]


def test_probabilities_for_exact_counts_are_kept_of_200_rows_and_of_none_beyond() -> None:
    rows, totals = Rows.made(260, 0.0), Totals(TotalsOptions("count_above", 4.5, OPTIONS))
    kept = added(added(totals, rows, range(120)), rows, range(120, 200)).groups[()].events
    assert present(kept).shape == (200, SAMPLES, 1)
    assert added(totals, rows, range(200, 260)).groups[()].events is None


def test_an_answer_comes_in_parts_and_a_group_keeps_nothing_else_of_its_block(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, options = Rows.made(60, 0.3), TotalsOptions(of=replace(OPTIONS, samples=SAMPLES, thresholds=(9.0, 12.0)))
    totals = added(Totals(options), rows, range(60), [(number % 20,) for number in range(60)])
    whole = totals.answer()
    monkeypatch.setattr(module, "VALUES_AT_A_TIME", 6 * SAMPLES)
    assert len(list(totals.answer_in_parts())) == 4
    np.testing.assert_array_equal(totals.answer().percentiles, whole.percentiles)
    group = totals.groups[0,]
    assert group.drawn.base is group.first[0]["row"].base is None


def test_a_threshold_of_the_total() -> None:
    rows = Rows.made(50, 0.0)
    expected = rows.sampled_totals(4_000)
    at = float(np.percentile(expected, 90.0))
    answer = of(rows, TotalsOptions(of=PredictOptions(samples=SAMPLES, thresholds=(at,))))
    assert answer.exceedance[0, 0] == pytest.approx(0.1, abs=0.005)


def test_rows_of_one_unit_and_neighbours_add_covariance() -> None:
    rows = Rows.made(10, 0.0)
    totals = added(Totals(TotalsOptions(of=OPTIONS)), rows, range(10), units=[0] * 5 + [1] * 5)
    together = answer_of(totals, rows, TotalsCalibration(within=0.5))
    assert together.aleatoric_std[0] == pytest.approx(np.sqrt(10.0 + 0.5 * 2 * (25.0 - 5.0)))
    in_time = answer_of(totals, rows, TotalsCalibration(neighbours=0.5))
    lags = np.arange(10)
    expected = (0.5 ** np.abs(lags[:, None] - lags)).sum()
    assert in_time.aleatoric_std[0] == pytest.approx(np.sqrt(expected))


@pytest.mark.parametrize(("samples", "most"), [(0, MOST_GROUPS), (256, 3_276), (4_096, 204)])
def test_groups_are_limited_by_the_memory_that_they_take(samples: int, most: int) -> None:
    options = PredictOptions(samples=samples, percentiles=tuple(range(1, 19)) if samples else ())
    totals = Totals(TotalsOptions(of=options))

    def add(start: int, count: int) -> None:
        numbers = np.zeros(count)
        answer = Prediction(samples=samples, seed=0, calibrated=False, extrapolation=numbers > 0, mean=numbers)
        if samples:
            zeros = np.zeros((count, samples))
            answer = replace(
                answer, draws=zeros, variances=zeros, third=numbers, epistemic_std=numbers, aleatoric_std=numbers
            )
        totals.add(answer, {"row": numbers}, [(start + number,) for number in range(count)])

    add(0, most)
    with pytest.raises(OptionError, match=f"more than {most:,} groups"):
        add(most, 1)


@pytest.mark.filterwarnings("error")
def test_a_row_that_is_surely_at_a_cap_adds_no_variance() -> None:
    rows = Rows.made(3, 0.0)
    own = rows.predict({"row": np.arange(3)}, OPTIONS)
    others = np.arange(3) > 0
    parts: dict[str, Any] = {"variances": own.variances, "third": own.third, "draws": own.draws}
    parts = {name: (np.asarray(part).T * others).T for name, part in parts.items()}
    moments = RowMoments.of(replace(own, **parts))
    assert all(np.isfinite(part).all() for part in (moments.third, moments.imputed, moments.stretch))
    assert moments.third[0] == 0.0
