"""Answers for encoded rows: tiles, threads and draws that are made anew change nothing."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING
from unittest.mock import patch

import numpy as np
import pytest
import torch

from murho.model.checkpoint.posterior import Posterior
from murho.model.checkpoint.row_answers import NetworkOutputs
from murho.model.encoding.encoder import Encoder
from murho.model.predictive.draw_room import DrawRoom
from murho.model.predictive.draws import DrawMaker
from murho.model.predictive.prediction import PredictOptions
from murho.model.tables.schema_inference import columns_from_table
from tests.model.conftest import make_table, present

if TYPE_CHECKING:
    from pathlib import Path

    from murho.model.predictive.prediction import Prediction
    from murho.model.tables.schema import Columns

OPTIONS = PredictOptions(samples=33, thresholds=(500.0, 900.0), draws=True)


@pytest.fixture(scope="module")
def columns(rent: Posterior) -> Columns:
    return columns_from_table(make_table(rows=1000, seed=9), rent.schema)


def _assert_same(part: Prediction, whole: Prediction, rows: slice) -> None:
    """Equal to 1e-5 of the larger of the value and the row's std, DESIGN.md's rule."""
    assert whole.std is not None
    for field in ("mean", "std", "epistemic_std", "aleatoric_std", "percentiles", "exceedance", "draws"):
        expected, actual = getattr(whole, field)[rows], getattr(part, field)
        spread = whole.std[rows].reshape(-1, *([1] * (expected.ndim - 1)))
        assert (np.abs(actual - expected) <= 1e-5 * np.maximum(np.abs(expected), spread)).all(), field


@pytest.mark.parametrize("threads", [1, 2])
def test_tiles_and_threads_change_nothing(
    rent: Posterior, columns: Columns, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    whole = rent.predict(columns, OPTIONS)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        monkeypatch.setattr(rent, "tile_values", 7 * OPTIONS.samples)
        _assert_same(rent.predict(columns, OPTIONS), whole, slice(None))
    finally:
        torch.set_num_threads(before)


def test_draws_that_may_not_be_kept_change_nothing_but_the_time(
    rent: Posterior, rent_checkpoints: Path, columns: Columns
) -> None:
    options = dataclasses.replace(OPTIONS, samples=200, mc_error=True)
    small = Posterior.load(rent_checkpoints / "rent" / "1", room=DrawRoom(1))
    part, whole = small.predict(columns, options), rent.predict(columns, options)
    _assert_same(part, whole, slice(None))
    np.testing.assert_allclose(present(part.mc_error).std, present(whole.mc_error).std, rtol=1e-4)


def test_draws_are_made_once_a_request(
    rent_checkpoints: Path, columns: Columns, monkeypatch: pytest.MonkeyPatch
) -> None:
    posterior = Posterior.load(rent_checkpoints / "rent" / "1")
    monkeypatch.setattr(posterior, "tile_values", 100 * OPTIONS.samples)
    options = dataclasses.replace(OPTIONS, mc_error=True)
    with patch.object(DrawMaker, "make", autospec=True, side_effect=DrawMaker.make) as make:
        first = posterior.predict(columns, options)
        assert make.call_count == 1
        again = posterior.predict(columns, options)
        assert make.call_count == 1
    np.testing.assert_array_equal(present(again.mc_error).std, present(first.mc_error).std)


def test_where_a_row_lies_is_found_out_once_a_request(
    rent: Posterior, columns: Columns, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = rent.architecture.outputs
    monkeypatch.setattr(rent, "tile_values", 600 * OPTIONS.samples * outputs)
    with patch.object(Encoder, "encode", autospec=True, side_effect=Encoder.encode) as encode:
        rent.predict(columns, dataclasses.replace(OPTIONS, mc_error=True))
    assert encode.call_count == 1


@pytest.mark.parametrize(
    ("draws_bytes", "rows_per_draw", "parts"),
    [
        (2**30, 500, [256, 256, 256, 232]),  # half of 500 by the two outputs of a row, but 256 at least
        (2**30, 100, [100] * 10),
        (1, 500, [500, 500]),  # draws are made anew for each tile
    ],
)
def test_tiles_are_small_but_not_where_products_are_slow_or_draws_are_made_anew(
    rent_checkpoints: Path,
    columns: Columns,
    monkeypatch: pytest.MonkeyPatch,
    draws_bytes: int,
    rows_per_draw: int,
    parts: list[int],
) -> None:
    posterior = Posterior.load(rent_checkpoints / "rent" / "1", room=DrawRoom(draws_bytes))
    assert posterior.architecture.outputs == 2
    monkeypatch.setattr(posterior, "tile_values", rows_per_draw * OPTIONS.samples)
    with patch.object(NetworkOutputs, "drawn", autospec=True, side_effect=NetworkOutputs.drawn) as outputs:
        posterior.predict(columns, OPTIONS)
    assert [len(call.args[3]) for call in outputs.call_args_list] == parts
