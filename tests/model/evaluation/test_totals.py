"""Counts of classes in regions whose truth is known: what held-out counts tell makes the bands of new ones right."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from murho.model.bbb.network import Architecture, inverse_softplus
from murho.model.calibration.classes import ClassCalibration, ClassMap, fit_prediction_sets
from murho.model.calibration.totals import TotalsCalibration
from murho.model.checkpoint.posterior import Posterior
from murho.model.checkpoint.spec import ClassShares, LikelihoodSpec, ModelSpec
from murho.model.distributions.transforms import Identity, Standardisation
from murho.model.encoding.encoder import Encoder
from murho.model.evaluation.totals import calibrate_totals
from murho.model.predictive.prediction import PredictOptions
from murho.model.predictive.totals import Totals, TotalsOptions
from murho.model.tables.schema import Feature, FeatureKind, Schema, Target
from murho.model.tables.splits import HeldOut
from tests.model.conftest import present

CLASSES = ("a", "b", "c")
REGIONS = np.array([f"region {number:02}" for number in range(80)], dtype=object)
OF_REGION = 50
DOUBT = 0.3


def posterior_of(factor: float, seed: int) -> tuple[Posterior, np.ndarray]:
    """A linear classifier of regions, and the true class probabilities, ``[regions, C]``.

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
        likelihood=LikelihoodSpec("categorical", shares=ClassShares.even(len(CLASSES))),
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
