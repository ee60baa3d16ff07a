"""The tasks of the benchmarks of tables: what is learned from, and what is asked."""

from __future__ import annotations

from argparse import Namespace
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from benchmarks import cars, co2, dependent, idle, live, missing, shift, spread_parts, uci
from benchmarks.datasets import SETS, UCI
from benchmarks.runner import measure
from murho.model.training.options import make_options

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", list(dependent.TABLES))
def test_a_dependent_table_has_fresh_rows_and_options_that_are_valid(name: str) -> None:
    task = dependent.task(name, 0, told=True)
    assert task.training.column_names == task.test.column_names
    assert task.training.num_rows >= 600
    assert task.test.num_rows >= 2_000
    make_options(dict(task.options))
    plain = dependent.task(name, 0, told=False)
    assert plain.training.equals(task.training)
    assert set(plain.options["ignore"]) <= set(task.training.column_names)


def test_copies_are_copies_groups_are_new_and_later_rows_come_later() -> None:
    four = dependent.task("four times", 0, told=False).training
    assert len(set(four["x0"].to_pylist())) == four.num_rows / 4
    for name, column in (("groups", "plot"), ("patients", "patient")):
        task = dependent.task(name, 0, told=True)
        assert not set(task.training[column].to_pylist()) & set(task.test[column].to_pylist())
    task = dependent.task("AR(1)", 0, told=True)
    assert max(task.training["day"].to_pylist()) < min(task.test["day"].to_pylist())


@pytest.mark.slow
def test_groups_are_covered_with_the_option() -> None:
    report = measure(dependent.task, "groups", 0, True, 20.0)
    assert 0.8 <= report["calibrated"]["coverage"]["90"] <= 0.98


@pytest.mark.parametrize("name", list(idle.TABLES))
def test_fresh_rows_are_others_of_the_same_idle_table(name: str) -> None:
    rows, fresh = idle.make(name, 0)
    assert (rows.num_rows, fresh.num_rows) == (idle.TABLES[name][1], idle.FRESH)
    assert rows.column_names == fresh.column_names
    assert not set(rows["y"].to_pylist()) & set(fresh["y"].to_pylist())
    assert idle.make(name, 0)[0].equals(rows)


@pytest.mark.slow
def test_the_gaussian_process_comes_near_the_noise_where_few_inputs_matter() -> None:
    # Of N(0, 1) the CRPS of the true distribution is 1 / sqrt(pi).
    assert 1.0 / np.sqrt(np.pi) < idle.gaussian_process_crps(*idle.make("Friedman", 0)) < 0.75
    assert idle.gaussian_process_crps(*idle.make("categories", 0)) < 0.9


def test_only_the_first_five_numbers_of_a_function_matter() -> None:
    x = np.random.default_rng(0).random((50, 10))
    for function, features in spread_parts.FUNCTIONS.values():
        rows = x[:, :features]
        changed = rows.copy()
        changed[:, 5:] = 0.0
        np.testing.assert_array_equal(function(rows), function(changed))
        for number in range(5):
            moved = rows.copy()
            moved[:, number] = 1.0 - moved[:, number] ** 2
            assert not np.allclose(function(rows), function(moved))


def test_a_share_of_the_cells_is_blanked_but_no_target() -> None:
    rows = pa.table({"a": list(range(1000)), "b": ["x"] * 1000, "y": [1.0] * 1000})
    blanked = missing.blanked(rows, "y", 20, seed=1)
    assert blanked["y"].null_count == 0
    assert 150 < blanked["a"].null_count < 250
    assert 150 < blanked["b"].null_count < 250
    assert blanked.equals(missing.blanked(rows, "y", 20, seed=1))
    assert missing.blanked(rows, "y", 0, seed=1).equals(rows)


def test_eighty_cars_are_held_out() -> None:
    task = cars.task(1)
    assert task.test.num_rows == 80
    assert task.training.num_rows > 300
    assert task.target == "Miles_per_Gallon"
    assert task.options["seed"] == 1


def test_no_feature_of_co2_is_made_from_the_series_itself() -> None:
    dates = [f"{year}-{month:02d}" for year in range(2009, 2013) for month in range(1, 13)]
    decimal = [f"{2009.0 + (index + 0.5) / 12.0:.4f}" for index in range(48)]
    values = [f"{380.0 + 0.2 * index:.2f}" for index in range(48)]
    read = pa.table({"date": dates, "decimal_date": decimal, "average_ppm": values, "deseasonalized_ppm": values})
    features = {kind: co2.features_of(read, kind)[0].column_names[:-1] for kind in co2.FEATURES}
    assert features == {"month": ["decimal_date", "month"], "date": ["date"]}


def test_widths_of_co2_are_of_the_training_years_and_each_year_after() -> None:
    dates = np.array([2009.5, 2010.5, 2011.5, 2012.5])
    truth = np.zeros(4)
    half = np.array([0.5, 0.5, 1.0, 1.5])
    band = np.stack([-half, half], axis=1)
    shifted = band + np.array([[0.0], [0.0], [0.0], [5.0]])
    report = {
        "dates": dates,
        "truth": truth,
        "mean": np.array([0, 0, 3, 4]),
        "raw_band": band,
        "calibrated_band": shifted,
    }
    lines = [line.split() for line in co2.render(report).splitlines()]
    assert lines[2:5] == [
        ["training", "1.00", "1.00", "100", "100"],
        ["2011", "2.00", "2.00", "100", "100"],
        ["2012", "3.00", "3.00", "100", "0"],
    ]
    assert "calibrated 50.0 % (aim 85 %); RMSE 3.54 ppm" in co2.render(report)


def test_gap_is_the_middle_third_and_tail_the_outer_sixths() -> None:
    feature = np.random.default_rng(0).permutation(12).astype(np.float64)
    rows = np.arange(100, 112)
    made = shift.shifted_splits(feature, rows)
    by_row = dict(zip(rows.tolist(), feature.tolist(), strict=True))
    assert sorted(by_row[row] for row in made["gap"].test.tolist()) == [4, 5, 6, 7]
    assert sorted(by_row[row] for row in made["tail"].test.tolist()) == [0, 1, 10, 11]
    for split in made.values():
        assert sorted([*split.training.tolist(), *split.test.tolist()]) == rows.tolist()


def test_a_large_set_is_cut_and_features_of_few_values_texts_and_missing_cells_are_left_out() -> None:
    count, target = shift.MOST_ROWS + 500, SETS["yacht"].target
    cells = [None if row % 10 == 0 else str(row / 7.0) for row in range(count)]
    columns = {"x": cells, "switch": [str(row % 9) for row in range(count)], "colour": ["red", "blue"] * (count // 2)}
    read = pa.table({**columns, target: [str(row) for row in range(count)]})
    made = shift.splits_of("yacht", read)
    assert list(made) == ["gap-yacht-x", "tail-yacht-x"]
    for split in made.values():
        used = np.sort(np.concatenate([split.training, split.test]))
        assert 0.85 * shift.MOST_ROWS < len(used) < 0.95 * shift.MOST_ROWS
        assert (used % 10 != 0).all()


def test_beside_a_peer_there_is_the_geometric_mean_and_how_many_are_behind() -> None:
    text = shift.render_beside({"tail-a-x": (1.0, 2.0), "tail-b-x": (2.1, 2.0), "tail-c-x": (4.0, 2.0)})
    assert [line.split()[-1] for line in text.splitlines()[2:5]] == ["0.50", "1.05", "2.00"]
    assert "geometric mean of the ratios 1.02; Murho is more than 10 % behind on 1 of 3 splits, at worst 2.00" in text


def test_the_protocol_has_its_network_and_members_have_fits_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uci, "read_set", lambda dataset, _: SimpleNamespace(num_rows=dataset.rows))
    options = Namespace(
        sets=["protein", "yacht"], network="protocol", splits=2, members=None, budget=None, data=tmp_path
    )
    jobs = uci.jobs_of(options)
    assert [job.name for job in jobs] == [
        *("protein-00-protocol", "protein-01-protocol", "yacht-00-protocol", "yacht-01-protocol")
    ]
    assert jobs[0].arguments[-1]["hidden"] == [100]
    assert jobs[2].arguments[-1] == {"hidden": [50], "activation": "relu", "skip": False}
    options.members, options.network, options.splits = 1, "defaults", None
    jobs = uci.jobs_of(options)
    assert jobs[0].name == "protein-00-defaults-members=1"
    assert jobs[0].arguments[-1] == {"members": 1}
    assert len(jobs) == 5 + 20
    assert {line.partition(" ")[0] for line in uci.PUBLISHED} == set(UCI)


def test_live_bands_are_scored_in_all_and_in_the_worst_stretch() -> None:
    truth = np.zeros(1_000)
    bands = np.tile([-1.0, 2.0], (1_000, 1))
    bands[100:200, 0] = 1.0
    assert live.scores(bands, truth) == {"coverage": 0.9, "worst": 0.8, "width": 2.8}
