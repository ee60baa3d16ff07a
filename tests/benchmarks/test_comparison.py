"""Murho beside peers: who is compared with what, and how it is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from benchmarks import classification, co2, comparison, live, mushroom, shift, tabular, uci
from benchmarks.comparison import standing
from benchmarks.peers import PEERS
from benchmarks.results import Kept


def run_of(crps: float, raw: float | None = None, width: float = 2.0) -> dict[str, Any]:
    levels = ("50", "80", "90", "95")
    bands = {"coverage": dict.fromkeys(levels, 0.9), "width": dict.fromkeys(levels, width)}
    return {
        "rmse": 1.0,
        "seconds": 3.0,
        "raw": None if raw is None else {"crps": raw, **bands},
        "calibrated": {"crps": crps, **bands},
    }


def test_a_peer_is_compared_by_its_better_answer_and_murho_by_its_calibrated_one() -> None:
    verdict = standing(
        {
            "Murho": [run_of(1.0, raw=0.5), run_of(1.2, raw=0.5)],
            "ngboost": [run_of(2.0, raw=0.9), run_of(2.0, raw=1.1)],
            "histogram-boosting": [run_of(1.3), run_of(1.5)],
        },
        "crps",
    )
    assert verdict["crps"] == pytest.approx({"Murho": 1.1, "ngboost": 1.0, "histogram-boosting": 1.4})
    assert verdict["answer"] == {"Murho": "calibrated", "ngboost": "raw", "histogram-boosting": "calibrated"}
    assert verdict["best_peer"] == "ngboost"
    assert verdict["behind"] == pytest.approx(10.0)


def test_kept_scores_of_peers_are_shown_without_running_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "results.jsonl"
    monkeypatch.setattr(comparison, "RESULTS", path)
    for name, count in (("ngboost", 5), ("deep-ensemble", 3)):
        peer = next(each for each in PEERS if each.name == name)
        for number in range(count):
            Kept(path).put(f"{name}-yacht-{number:02d}", peer.requirements, run_of(1.0))
    words = ["--data", str(tmp_path), "--sets", "yacht", "--kept-peers", "--only-peers"]
    assert tabular.main([*words, "--output", str(tmp_path / "out")]) == 0
    said = capsys.readouterr()
    assert "NGBoost, Normal" in said.out
    assert "left out deep-ensemble on yacht: 3 of 5 splits are kept" in said.err
    written = orjson.loads((tmp_path / "out" / "results.jsonl").read_bytes())
    assert written["verdicts"]["yacht"]["crps"] == {"ngboost": 1.0}


@pytest.mark.parametrize("command", [uci, tabular, classification, shift, co2, live, mushroom])
def test_without_the_data_a_command_says_where_to_get_them(
    command: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--peers", ""] if command in (tabular, classification) else []
    jobs = [] if command is mushroom else ["--jobs", "1"]
    assert command.main(["--data", str(tmp_path), "--output", str(tmp_path / "out"), *more, *jobs]) == 1
    said = capsys.readouterr().err
    assert f"{tmp_path}" in said
    assert "does not exist; make it from" in said
    assert not (tmp_path / "out").exists()
