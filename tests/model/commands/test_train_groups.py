"""Tests of ``murho train --by``: a model a group, kept when it is there, and a table of what each is worth."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support import call_murho

if TYPE_CHECKING:
    from pathlib import Path

TINY = (
    *("--target", "sold", "--by", "store", "--epochs", 3, "--hidden", 4, "--members", 1, "--transform", "none"),
    *("--encoding", "standard", "--noise", "homoscedastic", "--temperature", 1, "--whiten", "no"),
)


def stores(path: Path, rows: int = 60) -> Path:
    """Two stores with rows enough, one with few, one whose target never changes, and rows of no store."""
    generator = np.random.default_rng(0)
    with path.open("w") as file:
        writer = csv.writer(file)
        writer.writerow(["store", "day", "price", "sold"])
        for row in range(rows):
            for store, slope in (("north", 2.0), ("Genève", -3.0)):
                price = generator.uniform(1.0, 3.0)
                writer.writerow(
                    [store, f"{1 + row % 9}/{1 + row % 12}/2024", f"{price:.3f}", f"{slope * price + row:.3f}"]
                )
            writer.writerow(["flat", "13/5/2024", f"{generator.uniform():.3f}", 7])
        writer.writerows([["tiny", "14/5/2024", 1.0, 2.0], ["", "14/5/2024", 1.0, 2.0]])
    return path


def run(directory: Path, *words: object) -> dict[str, dict[str, Any]]:
    printed = call_murho("train", stores(directory / "sales.csv"), *TINY, "--json", *words, cwd=directory).stdout
    return {row["group"]: row for row in json.loads(printed)["groups"]}


def test_each_group_gets_a_model_or_a_reason_and_a_second_run_keeps_them(tmp_path: Path) -> None:
    first = run(tmp_path)
    assert {group: row["outcome"] for group, row in first.items()} == {
        "north": "trained",
        "Genève": "trained",
        "flat": "left out",
        "tiny": "left out",
    }
    assert first["tiny"]["reason"] == "only 1 row has a target: 30 are needed"
    assert "is 7 in every row" in first["flat"]["reason"]
    assert first["north"]["rows"] == 60
    assert first["north"]["crps"] > 0.0
    assert 0.0 <= first["north"]["coverage_90"] <= 1.0
    assert first["Genève"]["name"] == "sales-Geneve-1bff4631"
    north = tmp_path / "checkpoints" / "sales-north" / "1"
    assert json.loads((north / "group.json").read_text())["value"] == "north"
    with (tmp_path / "checkpoints" / "sales.groups.csv").open() as file:
        written = {row["group"]: row for row in csv.DictReader(file)}
    assert float(written["north"]["crps"]) == first["north"]["crps"]
    again = run(tmp_path)
    assert {group: row["outcome"] for group, row in again.items() if row["version"]} == {
        "north": "kept",
        "Genève": "kept",
    }
    assert again["north"]["crps"] == first["north"]["crps"]
    call_murho("predict", "sales.csv", "--model", "sales-north", "--output", "out.csv", cwd=tmp_path)


def test_other_options_or_rows_train_the_next_version(tmp_path: Path) -> None:
    run(tmp_path)
    again = run(tmp_path, "--seed", 5)
    assert again["north"]["outcome"] == "trained"
    assert again["north"]["version"] == "2"


def test_a_table_is_printed_for_people(tmp_path: Path) -> None:
    printed = call_murho("train", stores(tmp_path / "sales.csv"), *TINY, cwd=tmp_path).stdout
    assert "sales-north/1" in printed
    assert "left out: only 1 row has a target: 30 are needed" in printed
    assert "4 groups: 2 trained, 2 left out" in printed


@pytest.mark.parametrize(("words", "said"), [(("--by", "shop"), "'shop' is not a column"), (("--target", "x"), "'x'")])
def test_a_wrong_column_is_said(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    assert said in call_murho("train", stores(tmp_path / "sales.csv"), *TINY, *words, cwd=tmp_path, code=1).stderr
