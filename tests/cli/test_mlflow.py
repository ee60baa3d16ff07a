"""`murho.mlflow`: a checkpoint as a model of MLflow answers as `murho predict` does, through MLflow's own interface."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

import murho
from tests.support import ROOT

if TYPE_CHECKING:
    from pathlib import Path

mlflow: Any = pytest.importorskip("mlflow")

RENTS = ROOT / "tests" / "fixtures" / "checkpoints" / "rents"
FRAME = pd.DataFrame(
    {
        "sqm": [80.0, 45.5],
        "rooms": [3.0, np.nan],
        "city": ["Bern", "Genf"],
        "parking": ["yes", "no"],
        "listed": pd.to_datetime(["2024-08-04", "2024-09-01"]),
    }
)


@pytest.mark.filterwarnings("ignore")
def test_a_model_of_mlflow_answers_as_murho_does(tmp_path: Path) -> None:
    from murho.mlflow import save_model

    save_model(tmp_path / "model", RENTS)
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    answer = loaded.predict(FRAME, params={"samples": 64, "percentiles": [10.0, 90.0], "seed": 3})
    expected = murho.load(RENTS).predict(FRAME, samples=64, seed=3)
    assert list(answer) == ["mean", "std", "epistemic_std", "aleatoric_std", "p10", "p90"]
    np.testing.assert_allclose(answer["mean"], expected.mean, rtol=1e-6)
    np.testing.assert_allclose(answer["std"], expected.std, rtol=1e-6)
    assert list(loaded.predict(FRAME))[-3:] == ["p5", "p50", "p95"]
    assert [each.name for each in loaded.metadata.signature.outputs][-3:] == ["p5", "p50", "p95"]
    record = json.loads(FRAME.iloc[:1].to_json(orient="records", date_format="iso"))
    np.testing.assert_allclose(
        loaded.predict(pd.DataFrame(record).astype({"listed": "datetime64[ns]"}))["mean"][0],
        answer["mean"][0],
        rtol=0.1,
    )
    with pytest.raises(Exception, match="sqm"):
        loaded.predict(FRAME.drop(columns="sqm"))
    with pytest.raises(Exception, match="samples"):
        loaded.predict(FRAME, params={"samples": -1})
