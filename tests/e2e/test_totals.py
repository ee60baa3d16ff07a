"""Totals through every door: HTTP in two formats, the client, Python and the command line give the same."""

from __future__ import annotations

import csv
import gzip
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pandas as pd
import pytest
from murho_client import Client, InvalidInput

import murho
from murho.model.calibration.totals_calibration import TotalsCalibration
from murho.model.checkpoint.posterior import Posterior
from murho.model.tables.schema_inference import GROUPS
from tests.e2e.support import Service, serve
from tests.rents import RENTS, ROWS
from tests.support import ROOT, call_murho

CARS = ROOT / "examples" / "cars.csv"


@pytest.fixture(scope="module")
def cars() -> pd.DataFrame:
    return pd.read_csv(CARS)


def test_all_doors_give_the_same_totals(of_cars: Service, quick_cars: Path, cars: pd.DataFrame) -> None:
    offline = murho.load(quick_cars / "cars").aggregate(cars, by="Origin", statistic="mean")
    with Client(of_cars.address) as client:
        online = client.aggregate(cars, by="Origin", statistic="mean")
    url = f"{of_cars.address}/models/cars/versions/1/aggregate?by=Origin&statistic=mean"
    table = httpx2.post(url, content=CARS.read_bytes(), headers={"content-type": "text/csv"}).json()
    printed = call_murho(
        "aggregate", CARS, "--model", "cars", "--checkpoints", quick_cars, "--by", "Origin", "--statistic", "mean"
    )
    lines = list(csv.DictReader(io.StringIO(printed.stdout)))
    assert [line["Origin"] for line in lines] == [label[0] for label in online.groups]
    assert online.groups == offline.groups == [tuple(label) for label in table["groups"]]
    assert online.rows.tolist() == offline.rows.tolist() == table["rows"]
    assert online.percentiles is not None
    assert offline.percentiles is not None
    for name in ("mean", "std", "epistemic_std", "aleatoric_std"):
        expected = getattr(offline, name)
        for found in (getattr(online, name), table[name], [float(line[name]) for line in lines]):
            np.testing.assert_allclose(found, expected, rtol=1e-6)
    np.testing.assert_allclose(online.percentiles[5], offline.percentiles[:, 0], rtol=1e-6)
    assert (online.percentiles[5] < online.mean).all()


def test_a_table_of_many_blocks_has_the_totals_of_the_file(
    of_cars: Service, quick_cars: Path, cars: pd.DataFrame
) -> None:
    many = pd.concat([cars] * 25, ignore_index=True)
    offline = murho.load(quick_cars / "cars").aggregate(many, by="Origin")
    plain, packed = io.BytesIO(), io.BytesIO()
    many.to_csv(plain, index=False)
    many.drop(columns="Miles_per_Gallon").to_parquet(packed)
    bodies = [
        (plain.getvalue(), {"content-type": "text/csv"}),
        (gzip.compress(plain.getvalue()), {"content-type": "text/csv", "content-encoding": "gzip"}),
        (packed.getvalue(), {"content-type": "application/vnd.apache.parquet"}),
    ]
    for body, headers in bodies:
        online = httpx2.post(f"{of_cars.address}/aggregate?by=Origin", content=body, headers=headers).json()
        assert online["rows"] == offline.rows.tolist()
        np.testing.assert_allclose(online["std"], np.asarray(offline.std), rtol=1e-6)


def test_a_group_of_one_row_has_the_answer_for_that_row(of_cars: Service, cars: pd.DataFrame) -> None:
    with Client(of_cars.address) as client:
        totals = client.aggregate(cars.head(5).assign(number=range(5)), by="number", thresholds=[20.0])
        answer = client.predict(cars.head(5), thresholds=[20.0])
    assert totals.percentiles is not None
    assert totals.exceedance is not None
    for level in (5, 50, 95):
        np.testing.assert_allclose(totals.percentiles[level], answer.percentile(level), rtol=1e-5)
    np.testing.assert_allclose(np.asarray(totals.std), np.asarray(answer.std), rtol=1e-5)
    np.testing.assert_allclose(totals.exceedance[20.0], answer.exceedance(20.0), rtol=1e-5)


def test_groups_by_a_feature_keep_digits_that_the_model_does_not(of_cars: Service, cars: pd.DataFrame) -> None:
    with Client(of_cars.address) as client:
        heavy = client.aggregate(cars.head(3).assign(Weight_in_lbs=[2**53, 2**53 + 1, 2**53]), by="Weight_in_lbs")
    assert heavy.groups == [(2**53,), (2**53 + 1,)]
    assert heavy.rows.tolist() == [2, 1]


def test_weights_and_counts(of_cars: Service, cars: pd.DataFrame) -> None:
    with Client(of_cars.address) as client:
        plain, doubled = (client.aggregate(cars, weights=each) for each in (None, [2.0] * len(cars)))
        count = client.aggregate(cars, statistic="count_above", threshold=30.0)
    np.testing.assert_allclose(doubled.mean, 2.0 * plain.mean)
    np.testing.assert_allclose(np.asarray(doubled.std), 2.0 * np.asarray(plain.std))
    assert 60.0 < count.mean[0] < 120.0
    metrics = httpx2.get(f"{of_cars.address}/metrics").text
    for name in ("rows", "groups"):
        assert f'murho_totals_{name}_total{{model="cars",version="1"}}' in metrics
    assert count.percentiles is not None
    assert float(count.percentiles[50][0]).is_integer()


def test_what_can_not_be_used_is_named(of_cars: Service, cars: pd.DataFrame) -> None:
    rows = cars.head(2).drop(columns="Miles_per_Gallon").astype(object).where(cars.head(2).notna(), None)
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("/by", {"by": ["Nope"]}),
        ("/statistic", {"statistic": "median"}),
        ("/threshold", {"statistic": "count_above"}),
        ("/weights", {"weights": [1.0]}),
        ("/weights/0", {"weights": [-1.0, 1.0]}),
        ("/groups", {"groups": ["a"]}),
        ("/groups", {"groups": ["a", "b"], "by": ["Origin"]}),
        ("/include", {"include": ["draws"]}),
        ("/noise", {"noise": False}),
        ("/unknown", {"unknown": 1}),
    ]
    for pointer, change in wrong:
        body = {"inputs": rows.to_dict("records"), **change}
        answer = httpx2.post(f"{of_cars.address}/aggregate", json=body)
        assert answer.status_code == 422, answer.text
        assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]
    with Client(of_cars.address) as client, pytest.raises(InvalidInput, match="no column 'Nope'"):
        client.aggregate(cars, by="Nope")


def test_rows_of_one_unit_are_less_certain_together(tmp_path: Path) -> None:
    """A model whose held-out rows told that the noise of one patient is correlated."""
    posterior = Posterior.load(RENTS)
    described = posterior.with_spec(
        replace(
            posterior.spec,
            schema=replace(posterior.schema, left_out={"patient": GROUPS}),
            totals=TotalsCalibration(within=0.5),
        )
    )
    described.save(tmp_path, "rents")
    rows = pd.DataFrame([ROWS[0]] * 8)
    offline = murho.load(tmp_path / "rents")
    alone = offline.aggregate(rows.assign(patient=range(8)))
    of_one = offline.aggregate(rows.assign(patient=1))
    with serve(tmp_path, tmp_path / "log") as service, Client(service.address) as client:
        online = client.aggregate(rows.assign(patient=1), units="patient")
    expected = np.asarray(alone.aleatoric_std) * np.sqrt(1 + 7 * 0.5)
    np.testing.assert_allclose(np.asarray(of_one.aleatoric_std), expected, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(online.std), np.asarray(of_one.std), rtol=1e-5)
