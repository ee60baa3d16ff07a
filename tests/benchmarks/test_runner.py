"""The runner of the benchmarks of tables: what it keeps, what it measures, what it prints."""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest

from benchmarks.results import Kept, command, positive
from benchmarks.runner import Job, Task, measure, reports_of
from murho.model.training.train import Trained

QUICK = {"epochs": 30, "hidden": [8], "members": 1, "noise": "homoscedastic", "batch_size": 32}


def line(count: int, *, classes: bool = False) -> Task:
    """Return a line with noise, or two classes on its sides; the report also gets the number of members."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=count)
    target = np.where(x + 0.3 * generator.normal(size=count) > 0.0, "above", "below")
    values: Any = target if classes else 100.0 + 10.0 * x + generator.normal(size=count)
    rows = pa.table({"x": x, "y": values})
    options = {name: of for name, of in QUICK.items() if name != "noise"} if classes else QUICK

    def members(trained: Trained) -> dict[str, Any]:
        return {"members": trained.spec.architecture.members}

    return Task(rows.slice(0, count - 40), rows.slice(count - 40), "y", options, members)


def test_a_fit_is_scored_on_its_test_rows() -> None:
    report = measure(line, 160)
    assert (report["rows"], report["training_rows"], report["members"]) == (40, 120, 1)
    assert report["rmse"] < 5.0
    assert report["printed"]["rmse"] < 5.0
    # The mean over 99 levels is near the mixture's closed form.
    assert report["raw"]["crps"] == pytest.approx(report["crps"], rel=0.05)
    assert set(report["calibrated"]["coverage"]) == {"50", "80", "90", "95"}


class Counted:
    """Stands in for a measurement: numbers its calls, to tell a new one from a kept one."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, value: int) -> dict[str, Any]:
        if value == 13:
            raise RuntimeError("out of luck")
        self.count += 1
        return {"seconds": 2.0, "number": self.count}


def test_finished_measurements_are_not_made_again_and_survive_a_failure(tmp_path: Path) -> None:
    made, path = Counted(), tmp_path / "fits.jsonl"

    def run(*jobs: Job, fresh: bool = False) -> list[int]:
        reports = reports_of(jobs, Kept(path), workers=1, fresh=fresh)
        return [reports[job.name]["number"] for job in jobs]

    one, other = Job("one", "", made, (1,), "a"), Job("one", "", made, (1,), "b")
    assert run(one) == [1]
    assert run(one, Job("two", "", made, (2,), "a")) == [1, 2]
    assert run(other) == [3]  # it depends on something else
    assert run(other, fresh=True) == [4]
    with pytest.raises(RuntimeError, match="out of luck"):
        run(Job("three", "", made, (3,), "a"), Job("four", "", made, (13,), "a"))
    assert run(Job("three", "", made, (3,), "a")) == [5]


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
