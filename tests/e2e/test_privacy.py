"""Nothing that a checkpoint, its report, the page or the service show names a row of the table (docs/security.md)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from murho.model.checkpoint.posterior import Posterior
from murho.service.app import create_app
from murho.service.settings import Settings
from tests.service.support import AppClient
from tests.support import call_murho

NAMES = ("Zebedee-4711", "Quenby-0815", "notes about Ottoline")
NUMBER = 4321.987
"""An income amid the others, of one row."""
ASKED = {"income": 4000.0, "age": 40.0, "town": "Bern", "member": True}


def write_people(path: Path, rows: int = 300) -> None:
    """Return a table in which the people of single rows have a town, a note and an income of their own."""
    generator = np.random.default_rng(0)
    lines = ["income,age,town,note,member,spent"]
    for row in range(rows):
        income = NUMBER if row == 100 else round(generator.lognormal(8.3, 0.4), 3)
        town = {7: NAMES[0], 8: NAMES[1], 9: NAMES[1]}.get(row, ("Bern", "Chur", "Genf")[row % 3])
        note = NAMES[2] if row == 0 else f"note {row} of nobody"
        age, member = int(generator.integers(18, 90)), ("true", "false")[row % 2]
        lines.append(f"{income},{age},{town},{note},{member},{income * (0.3 + 0.1 * (row % 3)):.2f}")
    path.write_text("\n".join(lines))


@pytest.mark.parametrize("rare", ["pool", "name"])
def test_planted_secrets_are_nowhere(tmp_path: Path, rare: str) -> None:
    write_people(tmp_path / "people.csv")
    options: tuple[object, ...] = ("--target", "spent", "--epochs", 3, "--hidden", 8, "--members", 2, "--rare", rare)
    options += ("--noise", "heteroscedastic", "--report", "--no-report-rows")
    call_murho("train", tmp_path / "people.csv", "--checkpoints", tmp_path / "made", *options)
    shown = {str(path): path.read_bytes() for path in (tmp_path / "made").rglob("*") if path.is_file()}
    assert {Path(path).name for path in shown} >= {"model.json", "model.safetensors", "report.html"}
    with AppClient(create_app(Settings(checkpoints=tmp_path / "made"))) as client:
        paths = ["/", "/models", "/openapi.json", "/metrics", "/v2/models/people"]
        paths += [f"/models/people{more}" for more in ("", "/overview", "/charts", "/calibration")]
        shown |= {path: client.get(path).content for path in paths}
        odd = {"inputs": [ASKED | {"town": "elsewhere", "income": 1e7}, ASKED], "include": ["draws"]}
        shown["odd row"] = client.post("/predict", odd).content
        shown["wrong row"] = client.post("/predict", {"inputs": [{"town": 7}]}).content
    named = {secret for secret in (*NAMES, f"{NUMBER:.7g}"[:8]) for text in shown.values() if secret.encode() in text}
    assert named == (set() if rare == "pool" else {NAMES[0], NAMES[1]})

    (directory,) = (path.parent for path in (tmp_path / "made").rglob("model.json"))
    model = json.loads((directory / "model.json").read_text())
    landmarks = model["encoder"]["distribution"]["landmarks"]
    points = np.array(landmarks["points"]) * landmarks["stds"] + landmarks["means"]
    table = np.genfromtxt(tmp_path / "people.csv", delimiter=",", skip_header=1, usecols=(0, 1))
    assert np.abs((points[:, None] - table) / landmarks["stds"]).max(axis=2).min() > 1e-4
    assert Posterior.load(directory).schema.left_out["note"].startswith("it identifies rows")
