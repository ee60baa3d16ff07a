"""Predictions for tables (through a real service: tests/e2e/test_commands.py)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest

from murho.model.commands import batch_prediction as scoring
from murho.model.commands.batch_prediction import LocalScorer, RemoteScorer, percentile_name, score_table
from murho.model.data.schema_inference import columns_from_table
from murho.model.engines.prediction import Prediction, PredictOptions
from murho.model.errors import MurhoError, TableError
from tests.model.conftest import make_table

if TYPE_CHECKING:
    from murho.model.posterior.posterior import Posterior


def test_percentile_columns_are_named_by_level() -> None:
    assert [percentile_name(level) for level in (5.0, 97.5, 0.1)] == ["p5", "p97.5", "p0.1"]


def test_chunks_change_nothing_and_rows_unlike_the_training_rows_are_counted(
    rent: Posterior, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(rows=50, seed=8)
    size = table.column("size").to_numpy().copy()
    size[3] = 1e5
    table = table.set_column(0, "size", [size])
    options = PredictOptions(samples=16)
    whole, unlike = score_table(table, LocalScorer(rent), options)
    monkeypatch.setattr(scoring, "ROWS_PER_CHUNK", 7)
    parts, unlike_in_parts = score_table(table, LocalScorer(rent), options)
    named = rent.input_warnings(columns_from_table(table, rent.schema))
    assert unlike == unlike_in_parts == len({item.row for item in named}) >= 1
    for name, values in whole.items():
        np.testing.assert_allclose(parts[name], values, rtol=1e-5)


def test_rows_in_a_gap_are_counted_though_each_value_is_within_its_range(
    rent: Posterior, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(rows=50, seed=8)
    _, before = score_table(table, LocalScorer(rent), PredictOptions(samples=4))
    real = type(rent).predict

    def with_a_gap(self: Posterior, *asked: Any) -> Prediction:
        answer = real(self, *asked)
        assert answer.outside is not None
        (inside,) = np.nonzero(~answer.outside)
        return replace(answer, outside=answer.outside | np.isin(np.arange(50), inside[:2]))

    monkeypatch.setattr(type(rent), "predict", with_a_gap)
    _, unlike = score_table(table, LocalScorer(rent), PredictOptions(samples=4))
    assert unlike == before + 2


def test_without_samples_spreads_are_missing(rent: Posterior) -> None:
    scored, _ = score_table(make_table(rows=5), LocalScorer(rent), PredictOptions(samples=0))
    assert np.isfinite(scored["mean"]).all()
    assert np.isnan(scored["std"]).all()
    assert np.isnan(scored["p95"]).all()


def test_a_table_without_rows_is_refused(rent: Posterior) -> None:
    with pytest.raises(TableError, match="no rows"):
        score_table(make_table(rows=5).slice(0, 0), LocalScorer(rent), PredictOptions())


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            httpx.Response(404, json={"detail": "There is no model 'rent'."}),
            "answered 404: There is no model",
        ),
        (httpx.Response(502, text="bad gateway"), "answered 502: bad gateway"),
    ],
)
def test_what_a_service_refuses_is_passed_on(
    answer: httpx.Response, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = httpx.Client
    transport = httpx.MockTransport(lambda _: answer)
    monkeypatch.setattr(httpx, "Client", lambda **options: real(**options, transport=transport))
    with pytest.raises(MurhoError, match=message):
        RemoteScorer("http://127.0.0.1:1", "rent")
