"""Why, through every door: shares add up to the answer, and what is asked for costs no more than is allowed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pandas as pd
import pyarrow.csv
import pytest
from murho_client import AsyncClient, Client, InvalidInput

import murho
from tests.e2e.support import Service
from tests.support import ROOT, call_murho

ROWS: list[list[Any]] = [[8, 307, 130, 3504, 12, "1970-01-01", "USA"], [4, None, 70, None, 15, "1978-01-01", None]]

FEATURES = ("Cylinders", "Displacement", "Horsepower", "Weight_in_lbs", "Acceleration", "Year", "Origin")


def post(of_cars: Service, document: Any, **headers: str) -> tuple[int, Any]:
    response = httpx2.post(f"{of_cars.address}/predict", json=document, headers=headers, timeout=60)
    return response.status_code, response.json()


@pytest.mark.parametrize("options", [{}, {"calibrated": False}, {"noise": False, "seed": 3}])
def test_shares_and_baseline_add_up_to_the_answer_whatever_else_is_asked(
    of_cars: Service, options: dict[str, Any]
) -> None:
    _, answer = post(of_cars, {"inputs": ROWS, "include": ["why", "worth_asking"], **options})
    _, alone = post(of_cars, {"inputs": ROWS[1:], "include": ["why", "draws"], "percentiles": [], **options})
    why = answer["why"]
    for name, whole in (
        ("mean", answer["mean"]),
        ("epistemic_variance", np.square(answer["epistemic_std"])),
        ("aleatoric_variance", np.square(answer["aleatoric_std"])),
    ):
        np.testing.assert_allclose(np.add(why["baseline"][name], np.sum(why[name], axis=1)), whole, rtol=1e-5)
        np.testing.assert_allclose(alone["why"][name][0], why[name][1], rtol=1e-3, atol=1e-4)
    assert np.equal(why["mean"], 0.0).tolist()[1] == [False, True, False, True, False, False, True]
    assert answer["worth_asking"][0] == []
    assert {cell["feature"] for cell in answer["worth_asking"][1]} == {"Displacement", "Weight_in_lbs", "Origin"}


def test_what_can_not_be_asked(of_cars: Service) -> None:
    wrong: list[tuple[int, str, dict[str, Any], dict[str, str]]] = [
        (422, "needs draws", {"samples": 0, "include": ["worth_asking"]}, {}),
        (422, "Accept application/json", {"include": ["why"]}, {"accept": "text/csv"}),
        (413, f"{5_000 * len(ROWS)} rows cost", {"inputs": ROWS * 5_000, "include": ["why"]}, {}),
        (504, "no answer within", {"include": ["why"], "timeout": 1e-3}, {}),
    ]
    for status, said, options, headers in wrong:
        found, problem = post(of_cars, {"inputs": ROWS, **options}, **headers)
        assert found == status
        assert said in str(problem)


def test_all_doors_say_the_same(of_cars: Service, quick_cars: Path, tmp_path: Path) -> None:
    file, model = tmp_path / "rows.csv", murho.load(quick_cars / "cars")
    pd.DataFrame(ROWS, columns=FEATURES).to_csv(file, index=False)
    _, online = post(of_cars, {"inputs": ROWS, "include": ["why", "worth_asking"]})
    offline = model.explain(file)
    call_murho("explain", file, "--model", "cars", "--checkpoints", quick_cars, "--output", tmp_path / "why.csv")
    with Client(of_cars.address) as client:
        told = client.explain(pd.read_csv(file))
        by_eights = client.explain(pd.read_csv(file).iloc[[1] * 9], samples=16)
    assert by_eights.shares["mean"].shape == (9, 7)
    assert len(by_eights.worth_asking) == 9
    written = pyarrow.csv.read_csv(tmp_path / "why.csv")
    for name in ("mean", "epistemic_variance", "aleatoric_variance"):
        column = written[name].to_numpy().reshape(2, -1)
        for found in (offline.why.shares[name], column[:, 1:], told.shares[name]):
            np.testing.assert_allclose(found, online["why"][name], rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(column[:, 0], online["why"]["baseline"][name], rtol=1e-4)
    asked = [{cell["feature"] for cell in of_row} for of_row in offline.worth_asking]
    for others in (online["worth_asking"], told.worth_asking):
        assert asked == [{cell["feature"] for cell in of_row} for of_row in others]


def test_rows_to_label_are_named(quick_cars: Path, tmp_path: Path) -> None:
    options = ("--model", "cars", "--checkpoints", quick_cars, "--label-next", "3", "--output", tmp_path / "next.csv")
    call_murho("explain", ROOT / "examples" / "cars.csv", *options)
    lines = (tmp_path / "next.csv").read_text().splitlines()
    rows, left = zip(*(line.split(",") for line in lines[1:]), strict=True)
    assert lines[0] == "row,epistemic_variance_left"
    assert len(set(rows)) == 3
    assert 1.0 > float(left[0]) > float(left[1]) > float(left[2]) > 0.0


def test_the_nearest_rows_reach_the_goal(of_cars: Service) -> None:
    row = dict(zip(FEATURES, ROWS[0], strict=True))
    goal = {"mean": {"at_least": 18.0}}

    async def ask() -> Any:
        async with AsyncClient(of_cars.address) as client:
            return await client.counterfactual(row, goal, "cars", fixed=["Origin"])

    with Client(of_cars.address) as client:
        found = client.counterfactual(row, goal, "cars", fixed=["Origin"])
        answer = client.predict([each["inputs"] for each in found.found])
        with pytest.raises(InvalidInput, match="Did you mean 'Origin'"):
            client.counterfactual(row, goal, "cars", fixed=["Orign"])
        assert not client.counterfactual(row, {"mean": {"at_least": 1e6}}, "cars").found
        far = client.counterfactual({**row, "Displacement": 1e300}, {"mean": {"at_least": -1e9}}, "cars")
        assert far.found[0]["inputs"]["Displacement"] == 1e300
    assert asyncio.run(ask()).found == found.found
    assert (answer.mean >= 18.0 - 1e-3).all()
    assert not answer.warnings
    distances = [each["distance"] for each in found.found]
    assert distances == sorted(distances)
    assert not {"Origin"} & {change["feature"] for each in found.found for change in each["changes"]}
    for each, mean in zip(found.found, answer.mean, strict=True):
        assert each["mean"] == pytest.approx(mean, rel=1e-4)
        assert {**row, **{change["feature"]: change["to"] for change in each["changes"]}} == each["inputs"]
