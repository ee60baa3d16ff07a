"""Tables of the accuracy benchmarks, from made-up reports; no fit and no data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pyarrow as pa
import pytest

from benchmarks import co2, peer_reports, shift, tabular, uci
from benchmarks.command_line import mean_and_error, shown
from benchmarks.comparison import error_of
from benchmarks.datasets import SETS, UCI
from benchmarks.published import LOG_LIKELIHOOD, RMSE, SOURCES

if TYPE_CHECKING:
    from pathlib import Path


SPLITS_ON_DISK = {"ngboost": 5, "deep-ensemble": 3}


def bands(coverage: float, width: float) -> dict[str, Any]:
    levels = ("50", "80", "90", "95")
    return {"coverage": dict.fromkeys(levels, coverage), "width": dict.fromkeys(levels, width)}


def report_of(nll: float = 0.3, coverage: float = 0.9) -> dict[str, Any]:
    return {
        "rmse": 0.5,
        "nll": nll,
        "crps": 0.25,
        "seconds": 12.0,
        "raw": bands(coverage, 2.0),
        "calibrated": bands(0.91, 1.5),
    }


def run_of(crps: float, raw: float | None = None, width: float = 2.0) -> dict[str, Any]:
    return {
        "rmse": 1.0,
        "seconds": 3.0,
        "crps_closed": None,
        "raw": None if raw is None else {"crps": raw, **bands(0.8, width)},
        "calibrated": {"crps": crps, **bands(0.9, width)},
    }


def test_mean_and_standard_error() -> None:
    mean, error = mean_and_error([1.0, 2.0, 3.0, 4.0])
    assert mean == 2.5
    assert error == pytest.approx(np.sqrt(5.0 / 3.0) / 2.0)
    assert shown([1.0, 2.0, 3.0, 4.0]) == "2.5 ± 0.65"
    assert shown([2.0]) == "2"


def test_uci_shows_published_rows_beside_the_measured_ones() -> None:
    text = uci.render(["yacht"], {"yacht": [report_of(0.2), report_of(0.4)]})
    lines = [line.split() for line in text.splitlines()]
    assert lines[2][:6] == ["yacht", "log-likelihood", "2", "-0.3", "±", "0.1"]
    assert lines[2][6:10] == ["-0.47", "±", "0.03", "DVI"]
    assert "DVI: Wu et al. 2019" in text
    assert "GMVIP:" not in text  # only those that the table names
    calibrated = next(line for line in lines if line[:2] == ["yacht", "calibrated"])
    assert calibrated[2:] == ["91.0", "91.0", "91.0", "91.0", "1.5", "±", "0"]


def test_every_published_row_names_a_known_source() -> None:
    for kinds in (LOG_LIKELIHOOD, RMSE):
        for rows in kinds.values():
            assert set(rows) == set(UCI)
            assert all(row.source in SOURCES for row in rows.values())


def test_jobs_of_the_protocol_have_its_network() -> None:
    jobs = uci.jobs_of(["protein", "yacht"], "protocol", 2, {"protein": 500, "yacht": 308})
    assert [job.name for job in jobs] == [
        "protein-00-protocol",
        "protein-01-protocol",
        "yacht-00-protocol",
        "yacht-01-protocol",
    ]
    assert jobs[0].options["hidden"] == [100]
    assert jobs[2].options == {"hidden": [50], "activation": "relu", "skip": False}
    (alone,) = uci.jobs_of(["yacht"], "protocol", 1, {"yacht": 308}, members=1)
    assert alone.name == "yacht-00-protocol-1"  # it is kept beside the other
    assert alone.options == jobs[2].options | {"members": 1}
    assert uci.network_options("defaults", SETS["yacht"]) == {}
    assert uci.network_options("defaults", SETS["yacht"], 1) == {"members": 1}
    assert len(uci.jobs_of(["protein"], "defaults", None, {"protein": 500})) == 5


@pytest.mark.parametrize("command", [uci.main, tabular.main, shift.main, co2.main])
def test_without_the_data_a_command_says_where_to_get_them(
    command: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--data", str(tmp_path), "--output", str(tmp_path / "out")]
    if command is tabular.main:
        arguments.append("--only-murho")
    assert command(arguments) == 1
    said = capsys.readouterr().err
    assert f"{tmp_path}" in said
    assert "does not exist; make it from" in said
    assert not (tmp_path / "out").exists()


def test_a_peer_is_compared_by_its_better_answer_and_murho_by_its_calibrated_one() -> None:
    verdict = tabular.compare(
        {
            "Murho": [run_of(1.0, raw=0.5, width=1.0), run_of(1.2, raw=0.5, width=2.0)],
            "ngboost": [run_of(2.0, raw=0.9), run_of(2.0, raw=1.1)],
            "histogram-boosting": [run_of(1.3), run_of(1.5)],
        }
    )
    assert verdict["crps"] == pytest.approx({"Murho": 1.1, "ngboost": 1.0, "histogram-boosting": 1.4})
    assert verdict["answer"] == {"Murho": "calibrated", "ngboost": "raw", "histogram-boosting": "calibrated"}
    assert verdict["best_peer"] == "ngboost"
    assert verdict["behind"] == pytest.approx(10.0)
    assert verdict["lowest"] is False
    assert verdict["width_ratio"] == pytest.approx(0.75)


def test_the_summary_counts_the_sets_where_murho_is_lowest() -> None:
    text = tabular.render_summary(
        {
            "yacht": {"Murho": [run_of(0.9, raw=1.0)], "ngboost": [run_of(1.0, raw=1.0)]},
            "wine": {"Murho": [run_of(1.05, raw=1.0)], "ngboost": [run_of(1.0, raw=1.0)]},
            "bike": {"ngboost": [run_of(1.0, raw=1.0)]},
        }
    )
    lines = [line.split() for line in text.splitlines()]
    assert lines[2] == ["yacht", "0.9", "1", "ngboost", "-10.0", "%", "yes", "1.00"]  # no errors were kept
    assert lines[3] == ["wine", "1.05", "1", "ngboost", "+5.0", "%", "no", "1.00"]
    assert lines[4] == ["bike", "-", "1", "ngboost", "-", "-", "-"]
    assert "lowest CRPS on 1 of 2 sets; at worst it is +5.0 %" in text


def test_errors_are_over_splits_or_else_over_the_rows_of_the_only_split() -> None:
    one = run_of(2.0)
    one["calibrated"]["crps_error"] = 0.25
    assert error_of([one], "calibrated", "crps") == 0.25
    assert error_of([run_of(2.0)], "calibrated", "crps") is None
    assert error_of([run_of(1.0), run_of(3.0)], "calibrated", "crps") == pytest.approx(1.0)
    assert "2 ± 0.25" in tabular.render_set("yacht", {"Murho": [one]})


def test_the_distance_to_a_peer_has_the_error_of_pairs() -> None:
    # Splits differ much, but Murho is 10 % lower on each: that is sure.
    peer = [1.0, 2.0, 6.0]
    runs = {"Murho": [run_of(0.9 * crps) for crps in peer], "ngboost": [run_of(crps) for crps in peer]}
    assert tabular.compare(runs)["behind_error"] == pytest.approx(0.0, abs=1e-9)
    assert "-10.0 ± 0.0 %" in tabular.render_summary({"yacht": runs})
    assert tabular.compare({name: reports[:1] for name, reports in runs.items()})["behind_error"] is None


def test_the_log_likelihood_of_a_target_of_grades_is_marked() -> None:
    text = uci.render(["wine", "yacht"], {"wine": [report_of()], "yacht": [report_of()]})
    assert "log-likelihood (!)" in text
    assert text.count("(!)") == 2  # wine's alone, and why
    assert "(!)" not in uci.render(["yacht"], {"yacht": [report_of()]})


def test_the_table_of_a_set_begins_with_the_lowest() -> None:
    text = tabular.render_set("yacht", {"ngboost": [run_of(2.0, raw=1.5)] * 2, "Murho": [run_of(1.0, raw=1.1)] * 2})
    lines = text.splitlines()
    assert lines[2].startswith("Murho")
    assert "calibrated *" in lines[3]
    assert lines[4].startswith("NGBoost, Normal")
    assert "raw *" in lines[4]


def test_kept_scores_of_peers_are_shown_without_running_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        peer_reports,
        "kept_runs",
        lambda peer, *_: {number: run_of(1.0) for number in range(SPLITS_ON_DISK.get(peer.name, 0))},
    )
    output = tmp_path / "out"
    arguments = [
        "--data",
        str(tmp_path),
        "--sets",
        "yacht",
        "--kept-peers",
        "--only-peers",
        "--output",
        str(output),
    ]
    assert tabular.main(arguments) == 0
    said = capsys.readouterr()
    assert "NGBoost, Normal" in said.out
    assert "left out deep-ensemble on yacht: 3 of 5 splits are on disk" in said.err
    written = orjson.loads((output / "tabular.json").read_bytes())
    assert written["verdicts"]["yacht"]["crps"] == {"ngboost": 1.0}


def test_unknown_peers_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tabular.main(["--data", str(tmp_path), "--peers", "oracle"]) == 1
    assert "'oracle' is none of ngboost" in capsys.readouterr().err


def test_gap_is_the_middle_third_and_tail_the_outer_sixths() -> None:
    values = np.random.default_rng(0).permutation(12).astype(np.float64)
    rows = np.arange(100, 112)
    made = shift.shifted_splits(values, rows)
    by_row = dict(zip(rows.tolist(), values.tolist(), strict=True))
    assert sorted(by_row[row] for row in made["gap"].test.tolist()) == [4, 5, 6, 7]
    assert sorted(by_row[row] for row in made["tail"].test.tolist()) == [0, 1, 10, 11]
    for split in made.values():
        assert sorted([*split.training.tolist(), *split.test.tolist()]) == rows.tolist()


def test_a_large_set_is_cut_and_features_of_few_values_make_no_split() -> None:
    count = shift.MOST_ROWS + 500
    columns = {
        "x": np.arange(count) / 7.0,
        "switch": np.arange(count) % 9,
        SETS["yacht"].target: np.arange(count),
    }
    read = pa.table({name: [str(cell) for cell in column] for name, column in columns.items()})
    jobs = shift.jobs_of("yacht", read)
    assert [job.name for job in jobs] == ["gap-yacht-x", "tail-yacht-x"]
    for job in jobs:
        assert len(job.split.training) + len(job.split.test) == shift.MOST_ROWS
    assert [job.name for job in shift.jobs_of("yacht", read)] == [job.name for job in jobs]


def test_some_features_of_a_shift_are_evenly_among_all() -> None:
    columns = {f"feature_{number}": np.arange(30.0) for number in range(6)}
    read = pa.table({**columns, "few": np.arange(30) % 3, SETS["yacht"].target: np.arange(30.0)})
    for most, expected in ((2, "03"), (3, "024"), (6, "012345"), (9, "012345")):
        names = [job.name for job in shift.jobs_of("yacht", read, most)]
        assert names == [f"{kind}-yacht-feature_{number}" for number in expected for kind in shift.SHIFTS]


def test_a_shift_leaves_out_texts_and_rows_whose_cell_is_missing() -> None:
    cells = [None if row % 10 == 0 else str(float(row)) for row in range(60)]
    columns = {"x": cells, "colour": ["red", "blue"] * 30, SETS["yacht"].target: [str(row) for row in range(60)]}
    jobs = shift.jobs_of("yacht", pa.table(columns))
    assert [job.name for job in jobs] == ["gap-yacht-x", "tail-yacht-x"]
    for job in jobs:
        used = sorted([*job.split.training.tolist(), *job.split.test.tolist()])
        assert used == [row for row in range(60) if row % 10]
    assert len(shift.jobs_of("yacht", pa.table(columns), most_rows=30)[0].split.training) < 20


def test_shift_gives_the_mean_over_splits_and_then_over_sets() -> None:
    gap = {
        "yacht": [report_of(coverage=0.8), report_of(coverage=1.0)],
        "wine": [report_of(coverage=0.7)],
        "naval": [],
    }
    lines = [line.split() for line in shift.render({"gap": gap}).splitlines()]
    assert lines[2] == ["gap", "yacht", "2", "90.0", "80.0", "90.0", "91.0", "0.5", "0.25"]
    assert lines[4] == ["gap", "mean", "of", "sets", "80.0", "75.0", "80.0", "91.0", "-", "-"]


def months() -> pa.Table:
    dates = [f"{year}-{month:02d}" for year in range(2009, 2013) for month in range(1, 13)]
    decimal = [f"{2009.0 + (index + 0.5) / 12.0:.4f}" for index in range(48)]
    values = [f"{380.0 + 0.2 * index:.2f}" for index in range(48)]
    return pa.table({"date": dates, "decimal_date": decimal, "average_ppm": values, "deseasonalized_ppm": values})


def test_no_feature_is_made_from_the_series_itself() -> None:
    features = {}
    for kind in co2.FEATURES:
        read, years = co2.features_of(months(), kind)
        features[kind] = [name for name in read.column_names if name != co2.TARGET]
        assert years.tolist() == [2009] * 12 + [2010] * 12 + [2011] * 12 + [2012] * 12
    assert features == {
        "month": ["decimal_date", "month"],
        "sine": ["decimal_date", "month_sine", "month_cosine"],
        "date": ["date"],
    }


def test_widths_are_of_the_training_years_and_each_year_after() -> None:
    _, years = co2.features_of(months(), "month")
    width = np.where(years <= 2010, 1.0, years - 2009.0)
    inside = years != 2012
    rows = co2.widths_by_distance(years, np.stack([-width / 2.0, width / 2.0], axis=1), inside)
    assert rows == [
        {"year": "training", "width": 1.0, "inside": 1.0},
        {"year": "2011", "width": 2.0, "inside": 1.0},
        {"year": "2012", "width": 3.0, "inside": 0.0},
    ]


def test_the_figure_of_the_series_has_both_bands_the_wider_behind() -> None:
    dates = co2.decimal_dates(months())
    truth = np.linspace(380.0, 390.0, 48)

    def band(width: float) -> dict[str, Any]:
        return {"band": np.stack([truth - width, truth + width], axis=1), "inside": 0.9}

    report = {
        "decimal_date": dates,
        "truth": truth,
        "mean": truth,
        "later": dates > 2011.0,
        "raw": band(2.0),
        "calibrated": band(1.0),
    }
    drawn = co2.figure(report)
    first, second = (drawn["datasets"][f"layer{index}"][0] for index in (0, 1))
    assert first["upper"] - first["y"] == pytest.approx(4.0)
    assert second["upper"] - second["y"] == pytest.approx(2.0)
