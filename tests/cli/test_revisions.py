"""`murho prune` and `murho update` as a user types them, and the page that tells of them."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_docs import block_after, shell
from tests.support import ROOT, call_murho

CARS = ROOT / "examples" / "cars.csv"
PAGE = ROOT / "docs" / "revising.md"
TRAIN = "--epochs 30 --noise heteroscedastic --hidden 16,16 --members 5 --encoding standard --no-report"
WIDE = "--epochs 30 --noise heteroscedastic --hidden 64,64 --encoding standard"


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Cars of two decades, and a checkpoint ``cars`` trained on the first."""
    directory: Path = tmp_path_factory.mktemp("revisions")
    header, *lines = CARS.read_text().splitlines()
    for name, chosen in (
        ("seventies", [line for line in lines if re.search(r",197\d-", line)]),
        ("eighties", [line for line in lines if re.search(r",198\d-", line)]),
    ):
        (directory / f"{name}.csv").write_text("\n".join([header, *chosen, ""]))
    words = ("--target", "Miles_per_Gallon", "--name", "cars", "--checkpoints", directory, *TRAIN.split())
    call_murho("train", directory / "seventies.csv", *words)
    return directory


def facts_of(directory: Path, version: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((directory / "cars" / version / "model.json").read_text())
    return facts


def test_an_update_writes_the_next_version_and_says_how_far_it_moved(workplace: Path) -> None:
    data = workplace / "eighties.csv"
    result = call_murho("update", "cars", data, "--version", 1, "--checkpoints", workplace, "--epochs", 20, "--seed", 3)
    saved = re.search(r"^saved .*/cars/(\d+)$", result.stdout, flags=re.MULTILINE)
    assert saved, result.stdout
    facts = facts_of(workplace, saved[1])["records"]["update"]
    assert facts["from_version"] == "1"
    assert facts["seed"] == 3
    assert facts["epochs"] <= 20
    assert "learned 89 new rows" in result.stdout
    for words in ("the posterior moved by", "NLL ", "version 1", "now"):
        assert words in result.stdout
    assert "left out 1 row without" in result.stderr
    assert "'Year' is unlike the training rows (beyond their range, or unseen) in 89 of 89 rows" in result.stderr
    assert "89 rows: each member learns from all but one of 5 parts" in result.stderr
    assert "learned" not in result.stderr
    page = workplace / "cars" / saved[1] / "report.html"
    assert f"report: {page}" in result.stdout
    assert "updated with 89 new rows" in page.read_text()


def test_update_and_prune_print_one_json_object(workplace: Path) -> None:
    where = ("--version", 1, "--checkpoints", workplace, "--json")
    updated = json.loads(call_murho("update", "cars", workplace / "eighties.csv", *where, "--epochs", 3).stdout)
    assert {"checkpoint", "name", "version", "update", "metrics"} == set(updated)
    assert updated["metrics"]["n"] == updated["update"]["rows"] == 89
    assert {"nll", "crps"} <= set(updated["update"]["before"])
    pruned = json.loads(call_murho("prune", "cars", *where, "--fraction", 0.5).stdout)
    assert {"checkpoint", "name", "version", "pruning", "metrics"} == set(pruned)
    assert pruned["pruning"] == facts_of(workplace, pruned["version"])["records"]["pruning"]
    assert int(pruned["version"]) == int(updated["version"]) + 1


def test_pruning_with_rows_compares_and_calibrates(workplace: Path) -> None:
    prune = ("prune", "cars", "--version", 1, "--fraction", 0.75, "--checkpoints", workplace)
    result = call_murho(*prune, "--data", workplace / "eighties.csv")
    for words in ("removed", "held", "on 89 rows", "version 1", "now", "bands calibrated anew"):
        assert words in result.stdout
    bare = call_murho(*prune)
    assert "bands calibrated as in version 1, which had all its weights" in bare.stdout
    page = re.search(r"^report: (.*)$", bare.stdout, flags=re.MULTILINE)
    assert page
    assert "of its weights were removed" in Path(page[1]).read_text()
    assert "report: " not in call_murho(*prune, "--no-report").stdout


def test_a_pruned_version_can_not_be_updated_and_the_message_says_which_can(workplace: Path) -> None:
    call_murho("prune", "cars", "--version", 1, "--fraction", 0.4, "--checkpoints", workplace)
    said = call_murho("update", "cars", workplace / "eighties.csv", "--checkpoints", workplace, code=2).stderr
    assert "was pruned" in said
    assert "--version 1" in said


def _shape(line: str) -> str:
    """Return a line without its numbers, bars and widths."""
    return re.sub(r"\s+", " ", re.sub(r"[·█]+", "", re.sub(r"[\d.,]*\d", "0", line))).strip()


def _weights(text: str) -> list[str]:
    """Return the counts of weights that the table and the options decide."""
    return re.findall(r"^(removed [\d,]+ of [\d,]+ weights|held [\d,]+ more)", text, flags=re.MULTILINE)


@pytest.mark.slow
def test_the_page_about_revisions_is_what_happens(tmp_path: Path) -> None:
    (tmp_path / "examples").mkdir()
    for name in ("cars.csv", "cars.toml"):
        (tmp_path / "examples" / name).write_text((ROOT / "examples" / name).read_text())
    typed = re.findall(r"<!-- revising -->\n```sh\n(.*?)^```", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert len(typed) == 4
    printed = [shell(text.replace("murho train ", f"murho train {WIDE} "), tmp_path) for text in typed]
    for text, mark in ((printed[1], "updated"), (printed[3], "pruned")):
        said = {_shape(line) for line in text.splitlines()}
        promised = {_shape(line) for line in block_after(PAGE, mark).splitlines()}
        assert promised <= said, promised - said
    assert len(_weights(printed[3])) == 2
    assert _weights(printed[3]) == _weights(block_after(PAGE, "pruned"))
    before, after = (_mean_epistemic_std(tmp_path / f"{name}.csv") for name in ("before", "after"))
    assert after < before  # the new rows tell what is beyond the range of `Year`


def _mean_epistemic_std(scored: Path) -> float:
    with scored.open() as file:
        values = [float(row["epistemic_std"]) for row in csv.DictReader(file)]
    return sum(values) / len(values)
