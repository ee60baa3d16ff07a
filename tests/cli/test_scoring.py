"""Predictions for tables (through a real service: tests/e2e/test_commands.py)."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pyarrow as pa
import pytest
from murho_client import Client

from murho.cli.service_scorer import ServiceScorer, connect
from murho.model.errors import MurhoError, OptionError, TableError
from murho.model.predictive.prediction import Prediction, PredictOptions
from murho.model.python.table_scoring import ROWS_PER_BLOCK, LocalScorer, Scored, score_blocks
from murho.model.tables.schema_inference import columns_from_table
from tests.model.conftest import make_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from murho.model.checkpoint.posterior import Posterior


def score_table(table: pa.Table, scorer: LocalScorer | ServiceScorer, rows: int = ROWS_PER_BLOCK) -> Scored:
    """The answers for all blocks, as one."""
    parts = list(score_blocks(table, partial(map, scorer.score), rows))
    return Scored(
        pa.concat_tables([part.answers for part in parts]),
        sum(part.unlike for part in parts),
        sum(part.imputed for part in parts),
        any(part.cut for part in parts),
    )


def test_blocks_change_nothing_and_rows_unlike_the_training_rows_are_counted(rent: Posterior) -> None:
    table = make_table(rows=50, seed=8)
    size = table.column("size").to_numpy().copy()
    size[3] = 1e5
    table = table.set_column(0, "size", [size])
    scorer = LocalScorer(rent, PredictOptions(samples=16))
    whole, parts = score_table(table, scorer), score_table(table, scorer, rows=7)
    named = rent.input_warnings(columns_from_table(table, rent.schema))
    assert whole.unlike == parts.unlike == len({item.row for item in named}) >= 1
    for name in whole.answers.column_names:
        np.testing.assert_allclose(parts.answers[name].to_numpy(), whole.answers[name].to_numpy(), rtol=1e-5)


def test_a_mistake_in_a_later_block_is_named_by_its_row_in_the_table(rent: Posterior) -> None:
    table = make_table(rows=20)
    table = table.set_column(0, "size", [["much" if row == 17 else "70" for row in range(20)]])
    with pytest.raises(TableError, match="column 'size', row 18: 'much'") as caught:
        score_table(table, LocalScorer(rent, PredictOptions(samples=0)), rows=7)
    assert caught.value.row == 18


def test_rows_in_a_gap_are_counted_though_each_value_is_within_its_range(
    rent: Posterior, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(rows=50, seed=8)
    scorer = LocalScorer(rent, PredictOptions(samples=4))
    before = score_table(table, scorer).unlike
    real = type(rent).predict

    def with_a_gap(self: Posterior, *asked: Any) -> Prediction:
        answer = real(self, *asked)
        assert answer.unlike is not None
        (inside,) = np.nonzero(~answer.unlike)
        marked: Prediction = replace(answer, unlike=answer.unlike | np.isin(np.arange(50), inside[:2]))
        return marked

    monkeypatch.setattr(type(rent), "predict", with_a_gap)
    assert score_table(table, scorer).unlike == before + 2


def test_without_samples_spreads_are_missing(rent: Posterior) -> None:
    scored = score_table(make_table(rows=5), LocalScorer(rent, PredictOptions(samples=0))).answers
    assert scored["mean"].null_count == 0
    assert scored["std"].null_count == scored["p95"].null_count == 5


def test_a_table_without_rows_is_refused(rent: Posterior) -> None:
    with pytest.raises(TableError, match="no rows"):
        score_table(make_table(rows=5).slice(0, 0), LocalScorer(rent, PredictOptions()))


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
        options = PredictOptions(samples=8, percentiles=(5.0, 95.0), seed=4)
        scored, unlike, imputed, cut = score_table(table, ServiceScorer(client, "rent", None, options))
        raw_options = PredictOptions(percentiles=(5.0, 95.0), calibrated=False)
        score_table(table, ServiceScorer(client, "rent", None, raw_options))
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
    assert scored.to_pydict() == {
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
        ServiceScorer(client, "rent", None, PredictOptions())
    assert "\n" not in str(raised.value)


def test_retries_leave_stdout_to_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    with connect("http://127.0.0.1:9") as client, pytest.raises(MurhoError, match=r"can't be reached.* 4 times"):
        ServiceScorer(client, "rent", None, PredictOptions())
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
        assert ServiceScorer(client, None, None, PredictOptions()).schema.target.name == "price"
    with serving("rent", "cars") as client, pytest.raises(OptionError, match=r"has 2 models .*--model NAME"):
        ServiceScorer(client, None, None, PredictOptions())


@pytest.mark.parametrize("noise", [True, False])
def test_what_http_can_the_command_can_and_a_service_gives_the_same_columns(rent: Posterior, noise: bool) -> None:
    table = make_table(rows=6, seed=9)
    size = table.column("size").to_numpy().copy()
    size[3] = 1e5
    table = table.set_column(table.column_names.index("size"), "size", [size])
    options = PredictOptions(
        samples=8, percentiles=(5.0, 97.5), thresholds=(500.0, 7.5), draws=True, mc_error=True, seed=1, noise=noise
    )
    local = LocalScorer(rent, options, warnings=True).score(table).answers
    assert local.column_names == [
        *("mean", "std", "epistemic_std", "aleatoric_std", "p5", "p97.5", "exceedance_500", "exceedance_7.5"),
        *("mean_mc_error", "std_mc_error", "p5_mc_error", "p97.5_mc_error", "draws", "warnings"),
    ]
    got = local.to_pydict()
    assert [len(draws) for draws in got["draws"]] == [8] * 6
    assert [row for row, text in enumerate(got["warnings"]) if text and text.startswith("size: ")] == [3]
    if not noise:
        assert got["std"] == got["epistemic_std"]

    asked: list[dict[str, Any]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            features = [feature.describe() for feature in rent.schema.features]
            return httpx.Response(200, json=DESCRIBED | {"features": features})
        asked.append(json.loads(request.content))

        def lists(*names: str) -> list[Any]:
            return [list(row) for row in zip(*(got[name] for name in names), strict=True)]

        whole = {name: got[name] for name in ("mean", "std", "epistemic_std", "aleatoric_std", "draws")}
        parts = {
            "percentiles": {"levels": [5, 97.5], "values": lists("p5", "p97.5")},
            "exceedance": {"thresholds": [500.0, 7.5], "values": lists("exceedance_500", "exceedance_7.5")},
            "mc_error": {
                "mean": got["mean_mc_error"],
                "std": got["std_mc_error"],
                "percentiles": lists("p5_mc_error", "p97.5_mc_error"),
            },
        }
        told = {"model": {"name": "rent", "version": "2"}, "target": "price", "samples": 8, "seed": 1}
        text = got["warnings"][3]
        more = "More values are unlike the training rows; the first 100 are listed."
        warnings = [{"pointer": "/inputs/size/3", "message": text}, {"pointer": "/inputs", "message": more}]
        return httpx.Response(200, json=told | whole | parts | {"calibrated": True, "warnings": warnings})

    with client_of(answer) as client:
        scored = score_table(table, ServiceScorer(client, "rent", None, options, warnings=True))
    assert (asked[0]["thresholds"], asked[0]["include"]) == ([500.0, 7.5], ["draws", "mc_error"])
    assert asked[0].get("noise", True) is noise
    assert scored.cut
    assert scored.answers.to_pydict() == got
    assert scored.answers.column_names == local.column_names
