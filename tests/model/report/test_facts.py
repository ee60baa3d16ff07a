"""The facts of a report, plain JSON, small, the same numbers as everywhere else; and the rows that a page shows."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pytest

from murho.model.checkpoint.checkpoint import write_checkpoint
from murho.model.predictive.prediction import PredictOptions
from murho.model.report.facts import FACTS_PATH, facts_of_spec, facts_of_training, report_facts
from tests.model.conftest import make_table

if TYPE_CHECKING:
    from pathlib import Path

    from murho.model.training.train import Trained

KEYS = {
    "format",
    "created",
    "murho",
    "source",
    "target",
    "table",
    "training",
    "scores",
    "held_out",
    "doubt",
    "importance",
    "revision",
}


def test_the_facts_are_plain_json_of_a_few_tens_of_kilobytes(facts: dict[str, Any]) -> None:
    assert set(facts) == KEYS
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    assert len(json.dumps(facts)) < 50_000


def test_the_table_tells_how_many_cells_are_missing_and_how_values_are_spread(facts: dict[str, Any]) -> None:
    size, district, lift, day = facts["table"]["features"]
    assert 0.02 < size["missing_share"] < 0.2
    assert sum(size["counts"]) == round(160 * (1.0 - size["missing_share"]))
    assert sum(district["counts"]) == 160
    assert len(lift["counts"]) == 2
    assert sum(lift["counts"]) == sum(day["counts"]) == 160


def test_curves_are_those_of_the_kept_fit_and_of_the_full_fit_before_it(
    facts: dict[str, Any], trained: Trained
) -> None:
    training = facts["training"]
    assert [fit["stage"] for fit in training["curves"]] == ["full", "settling"]
    for fit in training["curves"]:
        sums = np.array(fit["nll"]) + np.array(fit["kl"])
        np.testing.assert_allclose(fit["free_energy"], sums, rtol=1e-3, atol=1e-3)
    assert [candidate["chosen"] for candidate in training["candidates"]].count(True) == 1
    assert len(training["candidates"]) == len(trained.evidence.attempts)


def test_the_epistemic_share_is_that_of_the_answers_and_its_bins_hold_all_rows(
    facts: dict[str, Any], trained: Trained
) -> None:
    doubt = facts["doubt"]
    columns = trained.evidence.columns
    answer = trained.posterior.predict(columns, PredictOptions(percentiles=()))
    epistemic, total = answer.epistemic_std**2, answer.std**2
    assert doubt["share"] == pytest.approx(epistemic.sum() / total.sum(), rel=1e-3)
    for feature in doubt["features"]:
        assert sum(place["rows"] for place in feature["bins"]) == doubt["rows"]
    (lift,) = (feature for feature in doubt["features"] if feature["name"] == "lift")
    for place in lift["bins"]:
        rows = columns["lift"] == place["category"]
        assert place["share"] == pytest.approx(epistemic[rows].sum() / total[rows].sum(), rel=1e-3)


def test_of_many_features_the_strongest_are_judged_and_all_are_counted(
    facts: dict[str, Any], trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [feature["name"] for feature in facts["importance"]["features"]] == ["size", "district", "lift", "day"]
    assert facts["importance"]["of_features"] == 4
    monkeypatch.setattr("murho.model.report.facts.MOST_BARS", 2)
    importance = facts_of_training(trained)["importance"]
    means = {feature["name"]: feature["mean"]["value"] for feature in facts["importance"]["features"]}
    assert [feature["name"] for feature in importance["features"]] == [
        name for name in means if means[name] in sorted(means.values())[-2:]
    ]
    assert importance["of_features"] == 4


def test_stored_facts_are_read_back_and_without_them_model_json_tells(
    facts: dict[str, Any], trained: Trained, tmp_path: Path
) -> None:
    stored = {str(FACTS_PATH): orjson.dumps(facts)}
    first = write_checkpoint(tmp_path, "rent", trained.spec, trained.posterior.tensors, extras=stored)
    assert report_facts(first) == facts
    second = write_checkpoint(tmp_path, "rent", trained.spec, trained.posterior.tensors)
    bare = report_facts(second)
    assert set(bare) == KEYS
    assert (bare["held_out"], bare["doubt"], bare["training"]["curves"]) == (None, None, None)
    assert bare["scores"] == facts["scores"]
    assert report_facts(second, trained.spec) == facts_of_spec(trained.spec)


@pytest.mark.parametrize("damage", [b"{", b'{"format": 99}'])
def test_damaged_facts_are_no_facts(damage: bytes, trained: Trained, tmp_path: Path) -> None:
    directory = write_checkpoint(
        tmp_path, "rent", trained.spec, trained.posterior.tensors, extras={str(FACTS_PATH): damage}
    )
    assert report_facts(directory, trained.spec)["held_out"] is None
    (directory / FACTS_PATH).unlink()
    os.mkfifo(directory / FACTS_PATH)
    assert report_facts(directory, trained.spec)["held_out"] is None


def test_surprising_rows_have_their_number_and_cells_in_the_table_and_the_rarest_comes_first(
    rows: dict[str, Any],
) -> None:
    table = make_table()
    found = rows["surprising"]
    assert len(found) == 10
    assert [row["one_in"] for row in found] == sorted((row["one_in"] for row in found), reverse=True)
    for row in found:
        cells = {name: table[name][row["row"] - 1].as_py() for name in ("rent", "district", "lift")}
        assert row["observed"] == cells["rent"]
        assert row["cells"]["district"] == cells["district"]
        assert row["cells"]["lift"] == ("yes" if cells["lift"] else "no")
