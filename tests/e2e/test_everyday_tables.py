"""A table as people have it: trained, and read alike by predict, evaluate, update and the service."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from murho.service.app import create_app
from murho.service.settings import Settings
from tests.service.support import AppClient
from tests.support import call_murho, made_once

ROWS = 120
TIMES = pd.Timestamp("2020-01-20") + pd.to_timedelta(np.arange(ROWS) * 37 % 500, unit="D")
WEIGHTS = 1500.0 + np.arange(ROWS) * 71 % 3000
PARTS = 10.0 + np.arange(ROWS) * 29 % 80
PRICES = 20_000.0 - 3.0 * WEIGHTS + 50.0 * PARTS


def everyday() -> pd.DataFrame:
    """Return the rows as people write them."""
    return pd.DataFrame(
        {
            "price": [f"{price:,.2f} \u20ac".translate(str.maketrans(",.", ".,")) for price in PRICES],
            "weight": [f"{weight:,.1f}".translate(str.maketrans(",.", ".,")) for weight in WEIGHTS],
            "discount": [f"{part:.1f}%".replace(".", ",") for part in PARTS],
            "sold": TIMES.strftime("%d.%m.%Y"),
            "stamp": TIMES.strftime("%d %b %Y %I:%M %p UTC"),
        }
    )


def plain() -> pd.DataFrame:
    """Return the same rows, with plain cells."""
    return pd.DataFrame({"price": PRICES, "weight": WEIGHTS, "discount": PARTS, "sold": TIMES, "stamp": TIMES})


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def train(root: Path) -> None:
        (root / "sales.csv.gz").write_bytes(gzip.compress(everyday().to_csv().encode("cp1252")))
        everyday().to_excel(root / "sales.xlsx", index=False)
        plain().to_parquet(root / "plain.parquet")
        options = ("--members", 2, "--epochs", 5, "--noise", "homoscedastic", "--hidden", 8, "--no-report", "--json")
        done = call_murho("train", "sales.csv.gz", "--target", "price", *options, cwd=root)
        (root / "trained.json").write_text(done.stdout)
        (root / "said.txt").write_text(done.stderr)

    return made_once(tmp_path_factory, "everyday sales", train)


def test_the_training_says_what_it_has_read(trained: Path) -> None:
    data = json.loads((trained / "trained.json").read_text())["data"]
    columns = {column["name"]: column for column in data["columns"]}
    assert {name: (column["kind"], column["unit"]) for name, column in columns.items()} == {
        "price": ("numeric", "\u20ac"),
        "weight": ("numeric", None),
        "discount": ("numeric", "%"),
        "sold": ("date", None),
        "stamp": ("date", None),
    }
    assert columns["weight"]["range"] == [WEIGHTS.min(), WEIGHTS.max()]
    assert any("read as Latin-1" in note for note in data["notes"])
    said = (trained / "said.txt").read_text()
    assert said.startswith("sales.csv.gz: 120 rows, 5 columns")
    assert "as the index of df.to_csv(): dropped" in said


@pytest.mark.parametrize("words", [("predict",), ("evaluate", "--json")])
def test_further_files_are_read_as_the_training_file_was(trained: Path, words: tuple[str, ...]) -> None:
    said = {
        call_murho(*words, name, "--model", "sales", cwd=trained).stdout
        for name in ("sales.csv.gz", "sales.xlsx", "plain.parquet")
    }
    assert len(said) == 1


def test_requests_are_read_alike(trained: Path) -> None:
    texts = everyday().drop(columns="price").iloc[:5]
    numbers = plain().drop(columns="price").iloc[:5]
    for name in ("sold", "stamp"):
        numbers[name] = numbers[name].dt.strftime("%Y-%m-%d")
    with AppClient(create_app(Settings(checkpoints=trained / "checkpoints", device="cpu"))) as client:
        features = {feature["name"]: feature for feature in client.get("/models/sales").json()["features"]}
        assert features["discount"]["reading"] == {"form": "number", "decimal": ",", "unit": "%"}

        def ask(rows: pd.DataFrame) -> Any:
            return client.post("/models/sales/predict", {"inputs": rows.to_dict("records")}).json()

        assert ask(texts)["mean"] == ask(numbers)["mean"]
        body = texts.to_csv().encode()
        answer = client.post("/models/sales/predict", content=body, kind="text/csv")
        assert len(answer.text.splitlines()) == 6
        wrong = client.post("/models/sales/predict", {"inputs": [texts.iloc[0].to_dict() | {"discount": "5 \u20ac"}]})
        assert wrong.status_code == 422
        assert "'5 \u20ac' has the unit '\u20ac' in a column with the unit '%'" in wrong.json()["errors"][0]["message"]
