"""`murho.mlflow`: a checkpoint as a model of MLflow answers as `murho predict` does, through MLflow's own interface."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import murho
from tests.support import ROOT, free_port

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


@pytest.mark.filterwarnings("ignore")
@pytest.mark.timeout(600)
def test_mlflow_serves_it(tmp_path: Path) -> None:
    from murho.mlflow import save_model

    save_model(tmp_path / "model", RENTS)
    port = free_port()
    words = ["mlflow", "models", "serve", "-m", str(tmp_path / "model"), "--env-manager", "local", "-p", str(port)]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with subprocess.Popen(words, env=os.environ | {"PATH": path}, start_new_session=True) as serving:
        try:
            body = {"dataframe_records": json.loads(FRAME.to_json(orient="records", date_format="iso"))}
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}/invocations",
                json.dumps(body | {"params": {"samples": 64, "seed": 3}}).encode(),
                {"content-type": "application/json"},
            )
            for _ in range(600):
                with contextlib.suppress(OSError), urllib.request.urlopen(request) as answered:
                    answer = json.load(answered)["predictions"]
                    break
                time.sleep(0.2)
        finally:
            os.killpg(serving.pid, signal.SIGTERM)
    expected = murho.load(RENTS).predict(FRAME, samples=64, seed=3)
    np.testing.assert_allclose([row["mean"] for row in answer], expected.mean, rtol=1e-6)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.timeout(600)
def test_spark_asks_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sql: Any = pytest.importorskip("pyspark.sql")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    from murho.mlflow import save_model

    save_model(tmp_path / "model", RENTS)
    local = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    spark = sql.SparkSession.builder.master("local[1]").config(map=local).getOrCreate()
    try:
        asked = {"samples": 64, "seed": 3}
        ask = mlflow.pyfunc.spark_udf(spark, str(tmp_path / "model"), env_manager="local", params=asked)
        answered = spark.createDataFrame(FRAME).select(ask(sql.functions.struct(*FRAME)).alias("answer"))
        answer = answered.select("answer.*").toPandas()
    finally:
        spark.stop()
    expected = murho.load(RENTS).predict(FRAME, samples=64, seed=3)
    np.testing.assert_allclose(answer["mean"], expected.mean, rtol=1e-6)
