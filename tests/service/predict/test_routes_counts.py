"""Counts from a table to the answers of a service: train, evaluate, predict, HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from murho.model.checkpoint.checkpoint import write_checkpoint
from murho.model.checkpoint.posterior import Posterior
from murho.model.distributions.transforms import Limits
from murho.model.errors import OptionError, TableError
from murho.model.evaluation.judging import evaluate_table
from murho.model.predictive.prediction import Prediction, PredictOptions
from murho.model.tables.schema_inference import columns_from_table
from murho.model.training.options import UpdateOptions, make_options
from murho.model.training.revisions import labelled_rows
from murho.model.training.tasks import is_overdispersed, suits
from murho.model.training.train import train
from murho.model.training.updating import update
from murho.service.app import create_app
from murho.service.settings import Settings
from tests.model.conftest import Notes
from tests.service.support import AppClient

if TYPE_CHECKING:
    from pathlib import Path

OPTIONS: dict[str, Any] = {
    "noise": "negative-binomial",
    "epochs": 40,
    "members": 2,
    "hidden": (8,),
    "encoding": "standard",
    "temperature": 0.3,
}
ROWS = [{"warmth": -1.5, "day": "work"}, {"warmth": 1.5, "day": "free"}]


def table(rows: int = 250, seed: int = 0) -> pa.Table:
    """Visitors by warmth and kind of day: negative binomials of dispersion 0.25, with many zeros."""
    chance = np.random.default_rng(seed)
    warmth, day = chance.uniform(-2.0, 2.0, rows), chance.choice(["free", "work"], rows)
    mean = np.exp(0.8 + 0.7 * warmth + 0.6 * (day == "free"))
    visitors = chance.negative_binomial(4.0, 4.0 / (4.0 + mean))
    return pa.table({"warmth": warmth, "day": day, "visitors": visitors})


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    trained = train(table(), "visitors", make_options(OPTIONS), reporter=Notes())
    assert trained.spec.calibration is not None
    return write_checkpoint(tmp_path_factory.mktemp("checkpoints"), "visits", trained.spec, trained.posterior.tensors)


def test_an_evaluation_finds_the_bands_and_the_randomised_pit_calibrated(directory: Path) -> None:
    report = evaluate_table(Posterior.load(directory), table(300, seed=1), samples=64)
    assert report["nll"] < 2.4  # of a negative binomial with one mean for all rows: 2.55
    assert report["calibrated"]["calibration_error"]["quantiles"]["max"] < 0.1
    assert 0.85 < report["calibrated"]["coverage"]["90"] < 0.99


def test_percentiles_are_whole_numbers_and_exceedance_is_above_the_threshold(directory: Path) -> None:
    posterior = Posterior.load(directory)
    columns = columns_from_table(table(50, seed=2), posterior.schema)
    options = PredictOptions(percentiles=(5.0, 50.0, 95.0), thresholds=(-1.0, 0.0, 2.0, 2.5), mc_error=True)
    answer = posterior.predict(columns, options)
    assert isinstance(answer, Prediction)
    assert answer.percentiles is not None
    assert answer.exceedance is not None
    assert (answer.percentiles == np.round(answer.percentiles)).all()
    assert (answer.percentiles >= 0.0).all()
    assert answer.exceedance[:, 0] == pytest.approx(np.ones(50))
    assert (answer.exceedance[:, 2] == answer.exceedance[:, 3]).all()
    median = answer.percentiles[:, 1]
    assert (answer.exceedance[median > 0.0, 1] > 0.5).all()
    raw = posterior.predict(columns, PredictOptions(calibrated=False))
    assert raw.std**2 == pytest.approx(raw.epistemic_std**2 + raw.aleatoric_std**2)
    assert (raw.aleatoric_std**2 > raw.mean).all()  # more than a Poisson distribution


def test_a_service_answers_with_them(directory: Path) -> None:
    with AppClient(create_app(Settings(checkpoints=directory.parent.parent, device="cpu"))) as service:
        service.wait_until_loaded()
        response = service.post("/predict", {"inputs": ROWS, "thresholds": [0, 3], "include": ["draws"]})
        assert response.status_code == 200, response.text
        answer = response.json()
        without_draws = service.post("/predict", {"inputs": ROWS, "samples": 0}).json()
        function = service.post("/predict", {"inputs": ROWS, "noise": False}).json()
    values = np.array(answer["percentiles"]["values"])
    assert (values == np.round(values)).all()
    assert values[1, 1] > values[0, 1]
    assert np.array(answer["exceedance"]["values"])[1, 1] > 0.4
    assert np.mean(answer["draws"], axis=1) == pytest.approx(np.array(answer["mean"]))
    assert 0.0 < without_draws["mean"][0] < without_draws["mean"][1]
    assert function["std"] == function["epistemic_std"]


def test_an_update_learns_more_counts_and_refuses_other_targets(directory: Path) -> None:
    revision = Posterior.load(directory)
    updated = update(revision, labelled_rows(table(60, seed=3), revision), UpdateOptions(epochs=5), reporter=Notes())
    answer = updated.posterior.predict(columns_from_table(table(5), updated.posterior.spec.schema), PredictOptions())
    assert (answer.percentiles == np.round(answer.percentiles)).all()
    bad = pa.table({"warmth": [0.1], "day": ["free"], "visitors": [0.5]})
    with pytest.raises(TableError, match=r"column 'visitors', row 1: the target 0\.5 is not a count"):
        labelled_rows(bad, revision)
    with pytest.raises(TableError, match=r"column 'visitors', row 1: the target 0\.5 is not a count"):
        evaluate_table(revision, bad)


def test_the_search_may_try_counts_where_the_target_is_one() -> None:
    options, counts = make_options({}), np.array([0.0, 3.0, 7.0])
    assert suits("negative-binomial", counts, None, options)
    assert suits("negative-binomial", counts, Limits(0.0, np.inf), options)
    assert not suits("negative-binomial", counts, Limits(0.0, 7.0), options)
    assert not suits("negative-binomial", counts + 0.5, None, options)
    assert not suits("negative-binomial", counts, None, make_options({"transform": "none"}))
    assert suits("mixture", counts + 0.5, Limits(0.0, 8.0), make_options({"transform": "none"}))
    line = np.arange(100.0)
    assert not is_overdispersed(line, line[:, None])
    assert is_overdispersed(line, np.zeros((100, 1)))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"transform": "none"}, OptionError, "--transform log"),
        ({"target_maximum": 99.0}, OptionError, "--target-maximum inf"),
    ],
)
def test_options_that_do_not_go_with_counts_are_refused(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        train(table(40), "visitors", make_options(OPTIONS | options), reporter=Notes())


def test_targets_that_are_no_counts_are_refused_with_column_and_row() -> None:
    bad = pa.table({"x": [1.0, 2.0, 3.0], "y": [1.0, -2.0, 3.5]})
    with pytest.raises(TableError, match=r"column 'y', row 2: the target -2 is not a count.*--noise"):
        train(bad, "y", make_options(OPTIONS), reporter=Notes())
