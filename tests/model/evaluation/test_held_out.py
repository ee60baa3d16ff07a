"""Calibration and scores of held-out rows by members that have not seen them."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from murho.model.bbb.likelihood import NOISE_FLOOR
from murho.model.bbb.network import inverse_softplus
from murho.model.bbb.number_likelihoods import HeteroscedasticNoise
from murho.model.calibration.conformal import CROSS, FORWARD, POOLED, SPLIT, fit_conformal_map
from murho.model.checkpoint.posterior import Posterior
from murho.model.distributions.target_transforms import Identity, Limits, Standardisation
from murho.model.encoding.encoder import Encoded
from murho.model.evaluation.held_out import SAMPLES, calibrate_held_out
from murho.model.evaluation.judged_rows import RowWeights, standard_errors
from murho.model.evaluation.judging import judge_encoded
from murho.model.evaluation.number_scores import Bands, JudgedNumbers
from murho.model.evaluation.summary import summary
from murho.model.predictive.forward import TorchEngine
from murho.model.predictive.plans import DrawnRows, TargetModel
from murho.model.tables.schema_inference import columns_from_table
from murho.model.tables.splits import HeldOut, split_rows
from tests.model.conftest import make_table, train_quickly
from tests.model.judged_rows import stand_in

Rows = tuple[Encoded, np.ndarray]


def calibrate_and_score(*arguments: Any, **options: Any) -> tuple[Any, dict[str, Any]]:
    calibrated = calibrate_held_out(*arguments, **options)
    return calibrated.conformal, calibrated.metrics


def labelled(rent: Posterior, rows: int) -> Rows:
    table = make_table(rows=rows, seed=4)
    return rent.encoder.encode(columns_from_table(table, rent.schema)), table.column("rent").to_numpy().copy()


def test_a_row_is_judged_by_its_members_alone(rent: Posterior, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[int, set[Sequence[int] | None]] = {}
    real = Posterior.draw_rows
    encoded, targets = labelled(rent, 60)

    def spy(
        self: Posterior, rows: Encoded, samples: int, seed: int, *, members: Sequence[int] | None = None
    ) -> DrawnRows:
        for row in rows.inputs:
            (number,) = np.flatnonzero((encoded.inputs == row).all(axis=1))
            asked.setdefault(int(number), set()).add(members)
        return real(self, rows, samples, seed, members=members)

    monkeypatch.setattr(Posterior, "draw_rows", spy)
    groups = split_rows(60, 0, members=2).held_out_groups(2)
    conformal, report = calibrate_and_score(rent, encoded, targets, groups, calibrating=range(2))
    assert asked == {int(row): {group.members} for group in groups for row in group.rows}
    assert {group.members for group in groups} == {(0,), (1,)}
    assert conformal.rows == report["n"] == 60
    assert {"rmse", "mae", "nll", "crps", "raw", "calibrated"} <= set(report)


def test_without_calibrating_groups_there_is_no_map_and_the_posterior_scores_with_its_own(rent: Posterior) -> None:
    encoded, targets = labelled(rent, 30)
    groups = [HeldOut(np.arange(30), None)]
    conformal, report = calibrate_and_score(rent, encoded, targets, groups, calibrating=[])
    assert conformal is None
    found = judge_encoded(rent, encoded, targets, SAMPLES).report()
    assert report["calibrated"]["coverage"] == found["calibrated"]["coverage"]
    bare = Posterior(replace(rent.spec, calibration=None), rent.tensors)
    _, report = calibrate_and_score(bare, encoded, targets, groups, calibrating=[])
    assert report["calibrated"] is None


def test_calibrated_bands_are_judged_by_the_other_groups(rent: Posterior) -> None:
    """One group lies far off: a map of the other groups covers none of its rows, a map of all rows would cover some."""
    encoded, targets = labelled(rent, 60)
    targets[40:] += 5000.0
    groups = [HeldOut(np.arange(40), None), HeldOut(np.arange(40, 60), None)]
    _, report = calibrate_and_score(rent, encoded, targets, groups, calibrating=range(2))
    assert report["calibrated"]["coverage"]["90"] == pytest.approx(40.0 / 60.0)


def test_where_all_members_judge_the_estimate_is_what_evaluation_finds(rent: Posterior) -> None:
    encoded, targets = labelled(rent, 60)
    conformal, report = calibrate_and_score(rent, encoded, targets, [HeldOut(np.arange(60), None)], calibrating=[0])
    assert conformal.method == SPLIT
    calibrated = Posterior(replace(rent.spec, calibration=conformal), rent.tensors)
    found = judge_encoded(calibrated, encoded, targets, SAMPLES).report()
    for name in ("n", "rmse", "mae", "r2", "nll", "crps"):
        assert report[name] == pytest.approx(found[name], rel=1e-9)
    for kind in ("raw", "calibrated"):
        for name in ("coverage", "width", "interval_score"):
            assert report[kind][name] == pytest.approx(found[kind][name])
    assert report["members"] == 2


def _disagreeing(rows: int = 600, members: int = 6) -> tuple[Posterior, Encoded, NDArray[np.float64]]:
    """Return a stand-in for a posterior: member k predicts a row by its column k and noise 1; targets have noise 1.

    The members' errors are independent, of std 1.
    """
    generator = np.random.default_rng(0)
    truth = generator.standard_normal(rows)
    encoded = (truth[:, None] + generator.standard_normal((rows, members))).astype(np.float32)
    target = TargetModel(HeteroscedasticNoise(), Standardisation(Identity(), 0.0, 1.0), None)

    def drawn(rows: Encoded, samples: int, seed: int, *, members: Sequence[int] | None = None) -> DrawnRows:
        chosen = torch.tensor(range(encoded.shape[1]) if members is None else members)
        means = torch.from_numpy(rows.inputs).double().T[chosen]
        rho = inverse_softplus(torch.ones_like(means) - NOISE_FLOOR)
        nowhere = torch.zeros(len(rows), dtype=torch.bool)
        return DrawnRows(torch.stack((means, rho), dim=2), chosen, nowhere, target, TorchEngine())

    posterior = stand_in(drawn, architecture=SimpleNamespace(members=members))
    return posterior, Encoded.like(encoded), truth + generator.standard_normal(rows)


def _in_pairs(rows: int, members: int) -> list[HeldOut]:
    """Return groups of rows, each with a pair of judges of its own."""
    pairs = [(one, two) for one in range(members) for two in range(one)]
    return [HeldOut(np.arange(number, rows, len(pairs)), pair) for number, pair in enumerate(pairs)]


@pytest.mark.parametrize("forward", [False, True])
def test_scores_and_bands_are_those_of_the_judges_which_all_members_better(forward: bool) -> None:
    posterior, encoded, targets = _disagreeing()
    groups = _in_pairs(600, 6)
    conformal, report = calibrate_and_score(
        posterior, encoded, targets, groups, calibrating=range(len(groups)), forward=forward
    )
    posterior.calibration = conformal
    found = judge_encoded(posterior, encoded, targets, SAMPLES).report()
    for name in ("rmse", "mae", "nll", "crps"):
        assert report[name] > found[name]
    for band in ("50", "80", "90", "95"):
        assert report["calibrated"]["coverage"][band] == pytest.approx(0.01 * float(band), abs=0.03)
        wide = found["calibrated"]["coverage"][band] - report["calibrated"]["coverage"][band]
        assert (wide > 0.03) if forward else (abs(wide) < 0.05)  # what is served is narrowed
    assert (report["members"], report["all_members"]) == (2, 6)
    assert conformal.method == (FORWARD if forward else CROSS)
    said = summary(report, None)[-2]
    assert said == "(scores of the 2 members that have not seen the row; all 6 together do better)"


def test_rows_of_one_unit_count_as_one_in_standard_errors_and_levels() -> None:
    posterior, encoded, targets = _disagreeing(rows=40)
    encoded, targets = encoded[np.tile(np.arange(40), 4)], np.tile(targets, 4)
    groups = [HeldOut(np.arange(160), (0, 1))]
    once, _ = calibrate_and_score(
        posterior, encoded[:40], targets[:40], [HeldOut(np.arange(40), (0, 1))], calibrating=[0]
    )
    conformal, report = calibrate_and_score(
        posterior, encoded, targets, groups, calibrating=[0], units=np.tile(np.arange(40), 4)
    )
    _, wrong = calibrate_and_score(posterior, encoded, targets, groups, calibrating=[0])
    assert report["standard_errors"]["nll"] == pytest.approx(2.0 * wrong["standard_errors"]["nll"], rel=0.02)
    assert conformal.nominal[-1] == pytest.approx(once.nominal[-1])


def test_scores_whose_squares_overflow_have_no_standard_error() -> None:
    scores = {"nll": np.array([1.0, 3.0]), "rmse": np.array([1.0, 1e200])}
    assert standard_errors(scores, RowWeights.of(2)) == {"nll": pytest.approx(1.0), "rmse": None}


def test_an_earlier_map_is_pooled_with_the_rows() -> None:
    posterior, encoded, targets = _disagreeing(rows=30)
    earlier = fit_conformal_map(3.0 * np.random.default_rng(0).standard_normal(500))
    groups = [HeldOut(np.arange(30), (0, 1))]
    conformal, report = calibrate_and_score(posterior, encoded, targets, groups, calibrating=[0], earlier=earlier)
    assert (conformal.method, conformal.rows) == (POOLED, 530)
    assert report["calibrated"]["coverage"]["90"] > 0.95  # no longer right for these rows by construction


@pytest.mark.parametrize("members", [1, 4])
def test_bands_and_pits_say_what_the_metrics_say(members: int) -> None:
    trained = train_quickly(make_table(), members=members)
    rows, metrics = trained.evidence.held_out, trained.spec.metrics
    assert isinstance(rows, JudgedNumbers)
    assert sorted(rows.rows.tolist()) == list(range(160)) or members == 1
    np.testing.assert_array_equal(rows.targets, trained.evidence.targets[rows.rows])
    assert list(rows.bands) == ["raw", "calibrated"]
    for kind, bands in rows.bands.items():
        covered = metrics[kind]["coverage"]["90"]
        assert np.mean(np.abs(2.0 * bands.pit - 1.0) <= 0.9) == pytest.approx(covered, abs=0.013)
        lower, upper = rows.mean + bands.from_mean[:, 4:6].T
        assert np.mean(upper - lower) == pytest.approx(metrics[kind]["width"]["90"], rel=1e-6)
        inside = (rows.targets >= lower) & (rows.targets <= upper)
        assert inside.mean() == pytest.approx(covered, abs=0.03)
    assert np.sqrt(np.mean((rows.mean - rows.targets) ** 2)) == pytest.approx(metrics["rmse"], rel=0.05)


@pytest.mark.parametrize("scale", [1e-60, 1.0, 1e60])
def test_ends_of_bands_are_finite_whatever_the_unit_and_of_no_width_where_the_rest_is_rounding(scale: float) -> None:
    mean, std = scale * np.array([5e5, 5e5, 0.0]), scale * np.array([0.0, 2.0, 0.0])
    ends = mean[:, None] + scale * np.array([[1e-10], [3.0], [0.0]]) * np.linspace(-1.0, 1.0, 8)
    bands = Bands.around(mean, std, ends, np.zeros(3), np.zeros(3), np.zeros((3, 4), dtype=np.bool_))
    assert bands.from_mean[:, -1].tolist() == pytest.approx([0.0, 3.0 * scale, 0.0], rel=1e-6)


@pytest.mark.filterwarnings("error")
def test_rows_that_are_surely_at_a_cap_have_bands_without_width() -> None:
    target = TargetModel(HeteroscedasticNoise(), Standardisation(Identity(), 0.0, 1.0, Limits(minimum=0.0)), None)
    outputs = torch.tensor([[-1e3, 0.0], [5.0, 0.0]]).double().expand(4, -1, -1)
    drawn = DrawnRows(outputs, torch.tensor([0, 0, 1, 1]), torch.zeros(2, dtype=torch.bool), target, TorchEngine())
    judged = JudgedNumbers.of(drawn, np.arange(2), np.array([0.0, 5.5]), None)
    bands = judged.served
    assert np.all(bands.ends[0] == 0.0)
    assert np.all(np.diff(bands.ends[1, 0::2]) < 0.0)
    assert judged.doubt.tolist() == [0.0, 0.0]
