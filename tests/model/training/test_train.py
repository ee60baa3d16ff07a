"""Training from a table to a checkpoint: held-out rows, messages, facts and metrics."""

from typing import Any
from unittest import mock

import numpy as np
import orjson
import pyarrow as pa
import pytest
import torch

from murho.model.evaluation.held_out import calibrate_held_out
from murho.model.predictive.prediction import PredictOptions
from murho.model.tables.schema_inference import columns_from_table
from murho.model.tables.splits import split_rows
from murho.model.training import context
from murho.model.training import train as training
from murho.model.training.options import QUICK_MEMBERS, make_options
from murho.model.training.train import train
from tests.model.conftest import Notes, make_table, train_quickly
from tests.model.held_out_cars import coverages_and_far_ratios
from tests.model.maps import calibration_of


def test_a_tiny_table_is_fitted_and_says_that_nothing_is_held_out() -> None:
    notes = Notes()
    trained = train_quickly(make_table(rows=12), notes)
    assert trained.spec.calibration is None
    assert any("too few" in line for line in notes.lines)


def test_weights_are_no_feature_and_rows_of_weight_zero_are_left_out() -> None:
    table = make_table()
    weights = np.tile([0.0, 1.0, 1.0, 4.0], 40)
    notes = Notes()
    weighted = train_quickly(table.append_column("w", pa.array(weights)), notes, weight="w", members=2)
    kept = train_quickly(table.filter(pa.array(weights > 0.0)), members=2)
    assert [feature.name for feature in weighted.spec.schema.features] == ["size", "district", "lift", "day"]
    assert weighted.spec.metrics["n"] == 120
    assert weighted.spec.training["left_out_rows"] == 40
    assert any("40 of 160 rows" in line and "'w'" in line for line in notes.lines)
    rent = table.column("rent").to_numpy()
    assert weighted.spec.target.location == pytest.approx(np.average(rent, weights=weights))
    assert kept.spec.target.location == pytest.approx(rent[weights > 0.0].mean())


def test_only_the_ratios_of_weights_matter() -> None:
    table = make_table()
    weights = np.tile([1.0, 2.0], 80)
    first, second, plain = (
        train_quickly(table.append_column("w", pa.array(given)), members=2, weight="w")
        for given in (weights, 8.0 * weights, np.full(160, 3.0))
    )
    assert all(torch.equal(tensor, second.posterior.tensors[name]) for name, tensor in first.posterior.tensors.items())
    assert first.spec.metrics == second.spec.metrics
    assert first.spec.metrics != plain.spec.metrics


def test_fixed_noise_is_in_the_targets_unit() -> None:
    trained = train_quickly(make_table(), noise="fixed", noise_sigma=40.0)
    columns = columns_from_table(make_table(rows=5, seed=1), trained.posterior.schema)
    noise = trained.posterior.predict(columns, PredictOptions(calibrated=False)).aleatoric_std
    assert noise is not None
    np.testing.assert_allclose(noise, 40.0, rtol=1e-6)


class InterruptedAt(Notes):
    """Ctrl-C at the first message that begins with a word."""

    def __init__(self, word: str) -> None:
        super().__init__()
        self.word = word

    def say(self, message: str) -> None:
        super().say(message)
        if message.startswith(self.word):
            self.word = "never again"
            raise KeyboardInterrupt


@pytest.mark.parametrize("word", ["trial: homoscedastic", "h", "settling: ", "chose "])
def test_an_interruption_between_fits_keeps_the_best_so_far(word: str) -> None:
    trained = train_quickly(make_table(), InterruptedAt(word), noise="auto", temperature=None, members=2)
    assert trained.spec.training["interrupted"] is True
    assert trained.spec.calibration is not None


def test_an_interruption_before_anything_is_scored_ends_the_training() -> None:
    with pytest.raises(KeyboardInterrupt):
        train_quickly(make_table(), InterruptedAt("160 rows"))


def test_an_interruption_while_calibrating_calibrates_on_fewer_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def interrupted_once(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return calibrate_held_out(*arguments, **options)

    monkeypatch.setattr(training, "calibrate_held_out", interrupted_once)
    monkeypatch.setattr(training, "ROWS_IN_A_HURRY", 60)
    notes = Notes()
    trained = train_quickly(make_table(), notes, members=5)
    assert trained.spec.training["interrupted"] is True
    assert trained.spec.metrics["n"] == calibration_of(trained.spec).rows == 60
    assert any("at most 60 rows" in line and "once more" in line for line in notes.lines)
    whole = train_quickly(make_table(), members=5)
    assert all(torch.equal(tensor, whole.posterior.tensors[name]) for name, tensor in trained.posterior.tensors.items())


def test_a_second_interruption_while_calibrating_ends_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "calibrate_held_out", mock.Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        train_quickly(make_table())


@pytest.mark.slow
def test_calibrated_bands_of_cars_cover_and_far_cars_are_uncertain() -> None:
    """A fifth of the rows is held out each time, as the README promises."""
    coverages, ratios = coverages_and_far_ratios(seeds=4)
    assert 0.85 <= np.mean(coverages) <= 0.95, coverages
    assert min(ratios) >= 2.0, ratios


def test_the_example_row_and_the_landmarks_are_no_rows_of_the_table() -> None:
    table = make_table().append_column("wei", pa.array(1e25 * (np.arange(160) % 31)))
    trained = train_quickly(table)
    assert orjson.dumps(trained.spec.training)  # has no whole number beyond 64 bits
    rows = table.select(list(trained.spec.training["example"])).to_pylist()
    assert trained.spec.training["example"] not in [{**row, "day": str(row["day"])} for row in rows]


def test_standardisation_uses_training_rows_only(monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_table()
    split = split_rows(160, 0)
    monkeypatch.setattr(context, "hold_out", lambda *_: (split, []))
    target = train_quickly(table, members=1).spec.target
    rent = table.column("rent").to_numpy()[split.training]
    assert target.location == pytest.approx(rent.mean())
    assert target.scale == pytest.approx(rent.std())


SMALL = {"epochs": 12, "hidden": (6,)}


def test_one_candidate_is_fitted_with_few_members_and_calibrated() -> None:
    spec = train(make_table(), "rent", make_options(SMALL | {"quick": True}), reporter=Notes()).spec
    candidates = spec.training["candidates"]
    assert [one["stage"] for one in candidates] == ["full", "settling"]
    assert {(one["noise"], one["transform"], one["encoding"]) for one in candidates} == {
        ("heteroscedastic", "none", "standard")
    }
    assert spec.architecture.members == QUICK_MEMBERS
    assert spec.calibration is not None


def test_a_target_that_is_a_line_of_correlated_columns_is_learned_as_exactly_as_algebra_does() -> None:
    normal = np.random.default_rng(4).normal(size=(280, 20))
    months = normal[:, :1] + 0.2 * normal[:, 1:13]
    columns = {f"month {number}": months[:, number] for number in range(12)}
    columns |= {f"rain {number}": normal[:, 13 + number] for number in range(7)}
    columns["year"] = months[:, 0] - months[:, 1] + 0.5 * months[:, 2:].mean(axis=1)
    trained = train(pa.table(columns).slice(0, 80), "year", make_options({"quick": True}), reporter=Notes())
    asked = columns_from_table(pa.table(columns).slice(80), trained.posterior.schema)
    error = trained.posterior.predict(asked, PredictOptions()).mean - columns["year"][80:]
    assert np.median(np.abs(error)) < 1e-5 * columns["year"].std()
