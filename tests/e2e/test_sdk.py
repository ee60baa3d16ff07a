"""The client and a real service over loopback; every snippet of the client's documents runs."""

from __future__ import annotations

import csv
import re
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from murho_client import Client

from tests.support import ROOT, call_murho

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.support import Service

CARS = ROOT / "examples" / "cars.csv"
CAR: dict[str, Any] = {
    "Cylinders": 4,
    "Displacement": 97,
    "Horsepower": None,
    "Weight_in_lbs": 2130,
    "Acceleration": 14.5,
    "Year": "1974-01-01",
    "Origin": "Japan",
}


@pytest.fixture(scope="module")
def client(of_cars: Service) -> Iterator[Client]:
    with Client(of_cars.address) as client:
        yield client


def snippets(path: Path) -> str:
    """All Python of a page, one block after the other."""
    return "\n".join(re.findall(r"^```python\n(.*?)^```", path.read_text(), flags=re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("page", ["docs/sdk.md", "client/README.md", "README.md"])
def test_every_snippet_runs(
    of_cars: Service,
    page: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    code = snippets(ROOT / page)
    assert "murho_client" in code
    code = code.replace("http://127.0.0.1:8000", of_cars.address)
    exec(compile(code, page, "exec"), {"__name__": "snippets"})  # noqa: S102 - our own documents
    printed = capsys.readouterr().out
    if page == "docs/sdk.md":
        assert "Weight_in_lbs" in printed  # of the warning about the truck
        assert "1 Cylinders" in printed  # of the wrong cell
        assert "406 rows" in printed


def test_the_answer_is_that_of_plain_http(of_cars: Service, client: Client) -> None:
    body = {"inputs": [CAR], "seed": 3, "samples": 64, "thresholds": [30.0], "include": ["draws", "mc_error"]}
    told = of_cars.client.post("/models/cars/predict", json=body).json()
    answer = client.predict(CAR, "cars", seed=3, samples=64, thresholds=[30.0], include=["draws", "mc_error"])
    for name in ("mean", "std", "epistemic_std", "aleatoric_std", "draws"):
        np.testing.assert_array_equal(getattr(answer, name), told[name])
    np.testing.assert_array_equal(answer.percentiles, told["percentiles"]["values"])
    np.testing.assert_array_equal(answer.exceedance(30.0), np.array(told["exceedance"]["values"])[:, 0])
    assert (answer.model, answer.version, answer.target, answer.seed) == ("cars", "1", "Miles_per_Gallon", 3)


def test_a_file_gets_the_answers_of_murho_predict(of_cars: Service, client: Client, tmp_path: Path) -> None:
    scored, printed = tmp_path / "scored.csv", tmp_path / "printed.csv"
    assert client.predict_file(CARS, scored, samples=16, rows_per_chunk=100, keep_inputs=True) == 406
    options = ("--samples", 16, "--keep-inputs", "--output", printed)
    call_murho("predict", CARS, "--model", "cars", "--url", of_cars.address, *options)
    with scored.open(newline="") as ours, printed.open(newline="") as theirs:
        pairs = list(zip(csv.DictReader(ours), csv.DictReader(theirs), strict=True))
    assert len(pairs) == 406
    for one, other in pairs:
        assert list(one) == list(other)
        for name in ("mean", "std", "p5", "p95"):
            assert float(one[name]) == pytest.approx(float(other[name]), rel=1e-4)
