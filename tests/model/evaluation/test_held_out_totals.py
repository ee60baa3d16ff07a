"""Totals whose truth is known: what held-out ones tell makes the bands of new ones right."""

import numpy as np
import pyarrow as pa
import pytest
import torch

from murho.model.bbb.network import Architecture, inverse_softplus
from murho.model.calibration.class_calibration import ClassCalibration, ClassMap, fit_prediction_sets
from murho.model.calibration.totals_calibration import TotalsCalibration
from murho.model.checkpoint.posterior import Posterior
from murho.model.checkpoint.spec import ClassShares, LikelihoodSpec, ModelSpec
from murho.model.distributions.target_transforms import Identity, Standardisation
from murho.model.encoding.encoder import Encoder
from murho.model.evaluation.held_out_totals import calibrate_totals, determined_share
from murho.model.predictive.prediction import PredictOptions
from murho.model.predictive.row_moments import RowMoments
from murho.model.predictive.totals import Totals, TotalsOptions
from murho.model.python.table_totals import add_up_table, answer_of
from murho.model.tables.schema import Feature, FeatureKind, Schema, Target
from murho.model.tables.splits import HeldOut
from murho.model.training.options import make_options
from murho.model.training.train import train
from tests.model.conftest import Notes, present

CLASSES = ("a", "b", "c")
REGIONS = np.array([f"region {number:02}" for number in range(80)], dtype=object)
OF_REGION = 50
DOUBT = 0.3


def posterior_of(factor: float, seed: int) -> tuple[Posterior, np.ndarray]:
    """Return a linear classifier of regions, and the true class probabilities, ``[regions, C]``.

    The truth deviates from the means by so many standard deviations of the posterior as a draw times ``factor`` does.
    """
    schema = Schema(
        (Feature("region", FeatureKind.CATEGORICAL, None, False, None, None, tuple(REGIONS)),),
        Target("class", None, CLASSES),
        {},
    )
    encoder = Encoder.fit(schema, {"region": np.repeat(REGIONS, OF_REGION)})
    as_they_are = ClassMap((1.0,) * len(CLASSES), (0.0,) * len(CLASSES), 0.0)
    sets = fit_prediction_sets(torch.eye(3).double().repeat(10, 1), torch.arange(3).repeat(10))
    spec = ModelSpec(
        architecture=Architecture(encoder.width, (), len(CLASSES), members=1, skip=False),
        likelihood=LikelihoodSpec("categorical", shares=ClassShares((1.0 / len(CLASSES),) * len(CLASSES), 0.0)),
        target=Standardisation(Identity(), 0.0, 1.0),
        schema=schema,
        encoder=encoder,
        calibration=ClassCalibration(as_they_are, sets),
    )
    chance, learned, true = torch.Generator().manual_seed(seed), {}, {}
    for name, shape in spec.tensor_shapes().items():
        doubt = DOUBT if "weight" in name else 1e-9  # a bias would move all regions
        if name.endswith(".mu"):
            learned[name] = torch.randn(shape, generator=chance)
            true[name] = learned[name] + factor * doubt * torch.randn(shape, generator=chance)
        else:
            learned[name] = torch.full(shape, float(inverse_softplus(torch.tensor(doubt))))
            true[name] = torch.full(shape, -30.0)
    truth = Posterior(spec, true, engine="torch").predict({"region": REGIONS}, PredictOptions(samples=1))
    return Posterior(spec, learned, engine="torch"), truth.probabilities


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_bands_of_counts_of_new_rows_hold_the_truth(factor: float) -> None:
    posterior, truth = posterior_of(factor, 0)
    chance, rows = np.random.default_rng(0), np.repeat(np.arange(len(REGIONS)), OF_REGION)
    cells, cumulated = {"region": REGIONS[rows]}, truth[rows].cumsum(axis=1)
    known, new = ((cumulated > chance.random((len(rows), 1))).argmax(axis=1) for _ in range(2))
    folds = [HeldOut(fold, None) for fold in np.array_split(np.arange(len(rows)), 4)]
    encoded, targets = posterior.encoder.encode(cells), known.astype(np.float64)
    learned = present(calibrate_totals(posterior, encoded, targets, folds, posterior.calibration))
    assert learned.shared == pytest.approx(factor**2, rel=0.4)
    assert learned.independent == pytest.approx(1.0, rel=0.25)
    totals = Totals.of(TotalsOptions("count", of=PredictOptions(percentiles=(5.0, 95.0))), posterior.schema)
    totals.add(posterior.predict(cells, totals.asked), cells, [(number,) for number in rows.tolist()])
    counts = np.stack([np.bincount(rows, new == number) for number in range(len(CLASSES))], axis=1)
    held = []
    for calibration in (learned, TotalsCalibration()):
        lower, upper = np.moveaxis(present(totals.answer(None, calibration).percentiles), -1, 0)
        held.append(((lower <= counts) & (counts <= upper)).mean())
    assert 0.86 <= held[0] <= 0.96  # of whole numbers, 90 % or a little more
    assert factor == 1.0 or held[1] < 0.8


def smooth(rng: np.random.Generator, count: int) -> pa.Table:
    x = rng.random((count, 4))
    value = 4.0 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 8.0 * (x[:, 2] - 0.5) ** 2 + 4.0 * x[:, 3]
    columns = {f"x{number}": column for number, column in enumerate(x.T)}
    return pa.table({**columns, "y": value + 0.5 * rng.normal(size=count)})


def test_totals_of_a_smooth_function_are_as_uncertain_as_they_are_wrong() -> None:
    wrong, variances = (909.0, 1_873.0), []  # mean squared errors of 16 fits: random rows, rows alike in x0
    for seed in range(2):
        rng = np.random.default_rng(seed)
        trained = train(smooth(rng, 500), "y", make_options({"quick": True, "seed": seed}), reporter=Notes())
        rows = smooth(rng, 2_000)
        for block in (np.arange(1_000), np.argsort(rows["x0"].to_numpy())[:1_000]):
            totals = add_up_table(trained.posterior, rows.take(block), TotalsOptions(of=PredictOptions(samples=100)))
            variances.append(present(answer_of(totals, trained.posterior).std)[0] ** 2)
    assert 0.7 < (np.mean(variances) / np.mean(wrong)) ** 0.5 < 1.5


@pytest.mark.parametrize("mean_field", [False, True])
def test_weights_that_are_drawn_alone_move_rows_together_more_than_data_allow(mean_field: bool) -> None:
    rng, count, samples = np.random.default_rng(0), 400, 300
    inputs = np.column_stack([np.ones(count), 1.0 + 0.7 * rng.normal(size=(count, 3))])
    exact = np.linalg.inv(inputs.T @ inputs + 1e-3 * np.eye(4))
    drawn = np.diag(np.diag(exact)) if mean_field else exact
    values = inputs @ np.linalg.cholesky(drawn) @ rng.normal(size=(4, samples))
    ones = np.ones((count, 1))
    moments = RowMoments(
        0.0 * ones,
        values.std(axis=1, keepdims=True),
        ones,
        0.0 * ones,
        0.0 * ones,
        values[..., None],
        np.ones((count, samples, 1)),
        np.ones((2, count)),
        np.zeros(count),
    )
    share = determined_share(moments, [np.zeros(count, dtype=np.intp)], count)
    total = inputs.sum(axis=0)
    known = (total @ exact @ total) / (total @ drawn @ total)
    assert known < 0.15 or not mean_field
    assert 0.7 * known < share < 1.5 * known
