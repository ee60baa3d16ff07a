"""Commands, kept measurements and the tables that are printed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pytest

from benchmarks.results import Kept, command, mean_and_error, positive, shown, table
from murho.model.errors import OptionError

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

ABOUT = "`python -m benchmarks.made_up`: nothing.\n\nNothing else."


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--number", type=positive, default=3)


def test_a_finished_command_adds_a_line_of_facts_options_and_numbers(tmp_path: Path) -> None:
    main = command(ABOUT, add, lambda options: {"twice": 2 * options.number, "array": np.arange(4)[::2]})
    for number in ("1", "2"):
        assert main(["--number", number, "--output", str(tmp_path / "made")]) == 0
    lines = [orjson.loads(line) for line in (tmp_path / "made" / "results.jsonl").read_bytes().splitlines()]
    assert [(line["benchmark"], line["twice"], line["array"]) for line in lines] == [
        ("made_up", 2, [0, 2]),
        ("made_up", 4, [0, 2]),
    ]
    assert lines[0]["options"]["number"] == 1
    assert lines[0]["machine"]["cores"] >= 1
    assert "commit" in lines[0]


def test_what_goes_wrong_is_said_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(_: argparse.Namespace) -> dict[str, Any]:
        raise OptionError("no such luck")

    assert command(ABOUT, add, run)(["--output", str(tmp_path)]) == 1
    assert capsys.readouterr().err == "python -m benchmarks.made_up: no such luck\n"
    file = tmp_path / "file"
    file.write_text("")
    assert command(ABOUT, add, lambda _: {})(["--output", str(file)]) == 1
    assert str(file) in capsys.readouterr().err


def test_kept_reports_count_while_they_depend_on_the_same_and_whole_lines_alone(tmp_path: Path) -> None:
    path = tmp_path / "made" / "kept.jsonl"
    kept = Kept(path)
    assert kept.get("one", ("a", 1)) is None
    kept.put("one", ("a", 1), {"value": 1})
    kept.put("two", None, {"value": 2})
    kept.put("one", ("a", 2), {"value": 3})
    for seen in (kept, Kept(path)):
        assert seen.get("one", ("a", 2)) == {"value": 3}
        assert seen.get("one", ("a", 1)) is None
        assert seen.get("two", None) == {"value": 2}
    path.write_bytes(path.read_bytes()[:-20])
    again = Kept(path)
    assert again.get("one", ("a", 1)) == {"value": 1}
    again.put("three", None, {"value": 4})  # not glued to what was cut short
    assert Kept(path).get("three", None) == {"value": 4}


def test_columns_are_aligned_and_errors_are_shown() -> None:
    assert table(["name", "x"], [["a", "1.0"], ["long name", "10.0"]]).splitlines() == [
        "name          x",
        "---------  ----",
        "a           1.0",
        "long name  10.0",
    ]
    mean, error = mean_and_error([1.0, 2.0, 3.0, 4.0])
    assert mean == 2.5
    assert error == pytest.approx(np.sqrt(5.0 / 3.0) / 2.0)
    assert shown(mean, error) == "2.5 ± 0.65"
    assert shown(*mean_and_error([2.0])) == shown(2.0) == "2"
