"""`murho importance`: its table, its JSON, its figure, and what it refuses."""

import json
import re
from pathlib import Path

from tests.e2e.test_docs import block_after
from tests.rents import CHECKPOINTS, ROWS
from tests.support import ROOT, call_murho


def test_the_most_important_feature_comes_first(rooms_file: Path, room_checkpoints: Path) -> None:
    where = ("importance", "rooms", rooms_file, "--checkpoints", room_checkpoints, "--repeats", 1)
    lines = call_murho(*where).stdout.splitlines()
    assert re.fullmatch(r"rooms version \d+: 60 rows, each feature shuffled 1 times", lines[0])
    found = json.loads(call_murho(*where, "--json").stdout)
    losses = {feature["name"]: feature["log_loss"]["value"] for feature in found["features"]}
    assert [line.split()[0] for line in lines[3 : 3 + len(losses)]] == sorted(losses, key=lambda name: -losses[name])


def test_a_cell_that_cannot_be_used_is_named_by_its_row_in_the_file(tmp_path: Path) -> None:
    rows = [ROWS[0] | {"rent": 2000} for _ in range(1_100)]
    rows[0]["rent"], rows[1_079]["sqm"] = "", "large"
    file = tmp_path / "rents.csv"
    file.write_text("\n".join([",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]))
    said = call_murho("importance", "rents", file, "--checkpoints", CHECKPOINTS, "--rows", 2_000, code=1).stderr
    assert "rents.csv: column 'sqm', row 1080: 'large'" in said


PAGE = ROOT / "docs" / "why.md"


def test_the_page_is_what_is_printed(tmp_path: Path) -> None:
    """Its commands, with a quick fit: the same table but for numbers and order."""
    typed, shown = block_after(PAGE, "importance"), block_after(PAGE, "ranking")
    train, ask = (line.removeprefix("murho ").split() for line in typed.strip().splitlines())
    train[1] = str(ROOT / train[1])
    ask[2] = str(ROOT / ask[2])
    quick: tuple[object, ...] = (
        "--noise",
        "homoscedastic",
        "--epochs",
        3,
        "--hidden",
        8,
        "--members",
        2,
        "--no-report",
    )
    quick += ("--encoding", "standard", "--whiten", "no", "--transform", "none")
    call_murho(*train, *quick, cwd=tmp_path)
    said = call_murho(*ask, "--repeats", 1, "--rows", 20, cwd=tmp_path).stdout
    words = [sorted({line.split("  ")[0] for line in text.splitlines()[1:]}) for text in (shown, said)]
    assert words[0] == words[1]
