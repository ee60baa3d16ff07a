"""Counts from a table to the answers of a service: train, evaluate, predict, HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from murho.model.training.options import make_options
from murho.model.training.train import train
from murho.service.app import create_app
from murho.service.settings import Settings
from tests.model.conftest import Notes
from tests.service.support import AppClient

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
    return trained.posterior.save(tmp_path_factory.mktemp("checkpoints"), "visits")


def test_a_service_answers_with_them(directory: Path) -> None:
    with AppClient(create_app(Settings(checkpoints=directory.parent.parent, device="cpu"))) as service:
        response = service.post("/predict", {"inputs": ROWS, "thresholds": [0, 3], "include": ["draws"]})
        assert response.status_code == 200, response.text
        answer = response.json()
        without_draws = service.post("/predict", {"inputs": ROWS, "samples": 0}).json()
        function = service.post("/predict", {"inputs": ROWS, "noise": False}).json()
    values = np.array(answer["percentiles"]["values"])
    assert (values == np.round(values)).all()
    assert (values >= 0.0).all()
    assert values[1, 1] > values[0, 1]
    assert np.array(answer["exceedance"]["values"])[1, 1] > 0.4
    assert np.mean(answer["draws"], axis=1) == pytest.approx(np.array(answer["mean"]))
    assert 0.0 < without_draws["mean"][0] < without_draws["mean"][1]
    assert function["std"] == function["epistemic_std"]
