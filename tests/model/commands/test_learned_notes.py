"""`murho evaluate` and `murho update` recognise the rows of the training."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from murho.model.commands.learned_notes import JUDGED, note_of_learned
from murho.model.data.row_fingerprints import Recognised
from murho.model.data.tables import write_table
from murho.model.posterior.learned_rows import LEARNED_ROWS_FILE, read_learned_rows
from tests.model.conftest import make_table
from tests.model.rooms import rooms_table
from tests.support import call_murho

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

QUICK = ("--members", 1, "--epochs", 2, "--encoding", "standard", "--whiten", "no", "--temperature", 1, "--no-report")


def written(table: pa.Table, path: Path) -> Path:
    write_table(path, {name: table.column(name) for name in table.column_names})
    return path


@pytest.mark.parametrize("kind", ["number", "class"])
def test_rows_of_the_training_and_of_an_update_are_recognised(kind: str, tmp_path: Path) -> None:
    make, target = (make_table, "rent") if kind == "number" else (rooms_table, "room")
    old = written(make(rows=120, seed=1), tmp_path / "old.csv")
    new = written(make(rows=60, seed=2), tmp_path / "new.parquet")
    before, after = (made.num_rows - made.column(target).null_count for made in (make(120, 1), make(60, 2)))
    root = ("--checkpoints", tmp_path / "models")
    quick = (*QUICK, "--noise", "homoscedastic", "--transform", "none") if kind == "number" else QUICK
    trained = call_murho("train", old, "--target", target, "--name", "a", *quick, *root)
    assert "next:" in trained.stdout

    said = "rows are equal, in every column, to rows of the model's training"
    judged = call_murho("evaluate", old, *root, "--json")
    assert f"note: {before} of {before} {said}: their scores are too good" in judged.stderr
    assert json.loads(judged.stdout)["learned"] == {"checked": before, "equal": before, "by_chance": 0.0}
    assert said not in call_murho("evaluate", new, *root).stderr

    updating = ("--epochs", 1, "--no-report", *root)
    assert said not in call_murho("update", "a", new, *updating).stderr
    again = call_murho("update", "a", new, *updating)
    assert f"note: {after} of {after} {said}: learning from them again makes error bars too narrow" in again.stderr
    call_murho("prune", "a", "--fraction", 0.1, "--no-report", *root)
    for version in ("3", "4"):
        learned = read_learned_rows(tmp_path / "models" / "a" / version)
        assert learned is not None
        assert len(learned.rows) == before + after

    (tmp_path / "models" / "a" / "4" / LEARNED_ROWS_FILE).write_bytes(b"damaged")
    blind = call_murho("evaluate", old, *root, "--json")
    assert said not in blind.stderr
    assert json.loads(blind.stdout)["learned"] is None


def test_what_chance_explains_is_said_or_nothing_is() -> None:
    assert note_of_learned(None, JUDGED) is None
    assert note_of_learned(Recognised(100, 30, 0.3), JUDGED) is None
    note = note_of_learned(Recognised(100, 100, 0.3), JUDGED)
    assert "(about 30 would be by chance, since its rows repeat)" in (note or "")
