"""Predictions for tables (through a real service: tests/e2e/test_commands.py)."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pyarrow as pa
import pytest
from murho_client import Client

from murho.cli import batch_prediction as scoring
from murho.cli.batch_prediction import LocalScorer, ServiceScorer, connect, only_model, score_table
from murho.model.errors import MurhoError, OptionError, TableError
from murho.model.predictive.prediction import Prediction, PredictOptions
from murho.model.tables.schema_inference import columns_from_table
from tests.model.conftest import make_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from murho.model.checkpoint.posterior import Posterior


def test_chunks_change_nothing_and_rows_unlike_the_training_rows_are_counted(
    rent: Posterior, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(rows=50, seed=8)
    size = table.column("size").to_numpy().copy()
    size[3] = 1e5
    table = table.set_column(0, "size", [size])
    options = PredictOptions(samples=16)
    whole, unlike, *_ = score_table(table, LocalScorer(rent), options)
    monkeypatch.setattr(scoring, "ROWS_PER_CHUNK", 7)
    parts, unlike_in_parts, *_ = score_table(table, LocalScorer(rent), options)
    named = rent.input_warnings(columns_from_table(table, rent.schema))
    assert unlike == unlike_in_parts == len({item.row for item in named}) >= 1
    for name, values in whole.items():
        np.testing.assert_allclose(parts[name], values, rtol=1e-5)


def test_a_mistake_in_a_later_chunk_is_named_by_its_row_in_the_table(
    rent: Posterior, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(rows=20)
    table = table.set_column(0, "size", [["much" if row == 17 else "70" for row in range(20)]])
    monkeypatch.setattr(scoring, "ROWS_PER_CHUNK", 7)
    with pytest.raises(TableError, match="column 'size', row 18: 'much'") as caught:
        score_table(table, LocalScorer(rent), PredictOptions(samples=0))
    assert caught.value.row == 18


def test_rows_in_a_gap_are_counted_though_each_value_is_within_its_range(
    rent: Posterior, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(rows=50, seed=8)
    _, before, *_ = score_table(table, LocalScorer(rent), PredictOptions(samples=4))
    real = type(rent).predict

    def with_a_gap(self: Posterior, *asked: Any) -> Prediction:
        answer = real(self, *asked)
        assert answer.outside is not None
        (inside,) = np.nonzero(~answer.outside)
        marked: Prediction = replace(answer, outside=answer.outside | np.isin(np.arange(50), inside[:2]))
        return marked

    monkeypatch.setattr(type(rent), "predict", with_a_gap)
    _, unlike, *_ = score_table(table, LocalScorer(rent), PredictOptions(samples=4))
    assert unlike == before + 2


def test_without_samples_spreads_are_missing(rent: Posterior) -> None:
    scored, *_ = score_table(make_table(rows=5), LocalScorer(rent), PredictOptions(samples=0))
    assert np.isfinite(scored["mean"]).all()
    assert np.isnan(scored["std"]).all()
    assert np.isnan(scored["p95"]).all()


def test_a_table_without_rows_is_refused(rent: Posterior) -> None:
    with pytest.raises(TableError, match="no rows"):
        score_table(make_table(rows=5).slice(0, 0), LocalScorer(rent), PredictOptions())


DESCRIBED = {
    "name": "rent",
    "version": "2",
    "versions": ["1", "2"],
    "task": "regression",
    "target": {"name": "price", "unit": "EUR"},
    "features": [
        {"name": "size", "kind": "numeric", "unit": "m2", "min": 20, "max": 90, "categories": None, "missing": True},
        {"name": "built", "kind": "date", "unit": None, "min": "1950-01-01", "max": "2020-01-01", "categories": None,
         "missing": False},
        {"name": "lift", "kind": "boolean", "unit": None, "min": 0, "max": 1, "categories": None, "missing": False},
        {"name": "town", "kind": "categorical", "unit": None, "min": None, "max": None, "categories": ["Ulm"],
         "missing": False},
    ],
    "metrics": {},
}  # fmt: skip


def client_of(answer: Callable[[httpx.Request], httpx.Response]) -> Client:
    return Client("http://127.0.0.1:1", transport=httpx.MockTransport(answer), retries=0)


def test_a_service_is_asked_for_the_features_alone_and_its_answer_has_the_columns_of_a_local_one() -> None:
    asked: list[dict[str, Any]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, json=DESCRIBED)
        asked.append(json.loads(request.content))
        spread = {name: [1.0, 2.0] for name in ("std", "epistemic_std", "aleatoric_std")}
        percentiles = {"levels": [5, 95], "values": [[1.0, 3.0], [2.0, 4.0]]}
        model = {"model": {"name": "rent", "version": "2"}, "target": "price", "samples": 8, "seed": 4}
        warnings = [
            {"pointer": "/inputs/size/0", "message": "size: the cell is missing"},
            {"pointer": "/inputs/size/1", "message": "size: 120 m2 is above the training range"},
            {"pointer": "/inputs/town/1", "message": "town: category 'Bonn' was not seen in training"},
        ]
        told = {"mean": [2.0, 3.0], **spread, "percentiles": percentiles, "calibrated": True, "warnings": warnings}
        return httpx.Response(200, json=model | told)

    table = pa.table(
        {
            "id": ["a", "b"],
            "size": ["", "120"],
            "built": ["1990-05-01", "2001-01-01"],
            "lift": ["true", "false"],
            "town": ["Ulm", "Bonn"],
            "price": [1, 2],
        }
    )
    table = table.set_column(1, "size", [pa.array([None, "120"])])
    with client_of(answer) as client:
        scored, unlike, imputed, cut = score_table(
            table, ServiceScorer(client, "rent"), PredictOptions(samples=8, percentiles=(5.0, 95.0), seed=4)
        )
        score_table(table, ServiceScorer(client, "rent"), PredictOptions(percentiles=(5.0, 95.0), calibrated=False))
    body, raw = asked
    assert "calibrated" not in body
    assert raw["calibrated"] is False
    assert body["inputs"] == {
        "size": [None, 120.0],
        "built": ["1990-05-01", "2001-01-01"],
        "lift": [True, False],
        "town": ["Ulm", "Bonn"],
    }
    assert (body["samples"], body["percentiles"], body["seed"]) == (8, [5, 95], 4)
    assert {name: values.tolist() for name, values in scored.items()} == {
        "mean": [2.0, 3.0],
        "std": [1.0, 2.0],
        "epistemic_std": [1.0, 2.0],
        "aleatoric_std": [1.0, 2.0],
        "p5": [1.0, 2.0],
        "p95": [3.0, 4.0],
    }
    assert unlike == 1  # 120 m2, in a town that is new
    assert imputed == 1
    assert not cut


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            httpx.Response(404, json={"type": "urn:murho:problem:unknown", "detail": "There is no model 'rent'."}),
            "There is no model 'rent'",
        ),
        (httpx.Response(502, text="bad gateway"), "502"),
    ],
)
def test_what_a_service_refuses_is_passed_on_in_one_line(answer: httpx.Response, message: str) -> None:
    with client_of(lambda _: answer) as client, pytest.raises(MurhoError, match=message) as raised:
        ServiceScorer(client, "rent")
    assert "\n" not in str(raised.value)


def test_retries_leave_stdout_to_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    with connect("http://127.0.0.1:9") as client, pytest.raises(MurhoError, match=r"can't be reached.* 4 times"):
        ServiceScorer(client, "rent")
    assert capsys.readouterr().out == ""


def test_without_the_client_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "murho_client", None)
    with pytest.raises(OptionError, match=r"pip install \./client in a clone"):
        connect("http://127.0.0.1:1")


def test_what_is_no_address_is_told() -> None:
    with pytest.raises(MurhoError, match="not an address of a service"):
        connect("127.0.0.1:8000")


def test_the_only_model_of_a_service_needs_no_name() -> None:
    def serving(*names: str) -> Client:
        models = [{"name": name, "version": "1"} for name in names]
        return client_of(
            lambda request: httpx.Response(
                200, json={"models": models} if request.url.path == "/models" else DESCRIBED | {"name": "rent"}
            )
        )

    with serving("rent") as client:
        assert only_model(client, "http://s") == "rent"
    with serving("rent", "cars") as client, pytest.raises(OptionError, match=r"serves 2 models .*--model NAME"):
        only_model(client, "http://s")


@pytest.mark.parametrize("noise", [True, False])
def test_what_http_can_the_command_can_and_a_service_gives_the_same_columns(rent: Posterior, noise: bool) -> None:
    table = make_table(rows=6, seed=9)
    size = table.column("size").to_numpy().copy()
    size[3] = 1e5
    table = table.set_column(table.column_names.index("size"), "size", [size])
    options = PredictOptions(
        samples=8, percentiles=(5.0, 97.5), thresholds=(500.0, 7.5), draws=True, mc_error=True, seed=1, noise=noise
    )
    local = LocalScorer(rent, warnings=True).score(columns_from_table(table, rent.schema), options)
    assert list(local.columns) == [
        *("mean", "std", "epistemic_std", "aleatoric_std", "p5", "p97.5", "exceedance_500", "exceedance_7.5"),
        *("mean_mc_error", "std_mc_error", "p5_mc_error", "p97.5_mc_error", "draws", "warnings"),
    ]
    assert local.columns["draws"].shape == (6, 8)
    assert [row for row, text in enumerate(local.columns["warnings"]) if text and text.startswith("size: ")] == [3]
    if not noise:
        np.testing.assert_array_equal(local.columns["std"], local.columns["epistemic_std"])

    asked: list[dict[str, Any]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            features = [feature.describe() for feature in rent.schema.features]
            return httpx.Response(200, json=DESCRIBED | {"features": features})
        asked.append(json.loads(request.content))
        got = {name: values for name, values in local.columns.items() if name != "warnings"}

        def lists(*names: str) -> list[Any]:
            listed: list[Any] = np.stack([got[name] for name in names], axis=1).tolist()
            return listed

        whole = {name: got[name].tolist() for name in ("mean", "std", "epistemic_std", "aleatoric_std", "draws")}
        parts = {
            "percentiles": {"levels": [5, 97.5], "values": lists("p5", "p97.5")},
            "exceedance": {"thresholds": [500.0, 7.5], "values": lists("exceedance_500", "exceedance_7.5")},
            "mc_error": {
                "mean": got["mean_mc_error"].tolist(),
                "std": got["std_mc_error"].tolist(),
                "percentiles": lists("p5_mc_error", "p97.5_mc_error"),
            },
        }
        told = {"model": {"name": "rent", "version": "2"}, "target": "price", "samples": 8, "seed": 1}
        text = local.columns["warnings"][3]
        more = "More values are unlike the training rows; the first 100 are listed."
        warnings = [{"pointer": "/inputs/size/3", "message": text}, {"pointer": "/inputs", "message": more}]
        return httpx.Response(200, json=told | whole | parts | {"calibrated": True, "warnings": warnings})

    with client_of(answer) as client:
        scored = score_table(table, ServiceScorer(client, "rent", warnings=True), options)
    assert (asked[0]["thresholds"], asked[0]["include"]) == ([500.0, 7.5], ["draws", "mc_error"])
    assert asked[0].get("noise", True) is noise
    assert scored.cut
    assert list(scored.columns) == list(local.columns)
    for name, values in local.columns.items():
        np.testing.assert_array_equal(scored.columns[name], values)
