"""Why, through every door: shares add up to the answer, and what is asked for costs no more than is allowed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx2
import numpy as np
import pandas as pd
import pyarrow.csv
import pytest
from murho_client import AsyncClient, Client, InvalidInput

import murho
from tests.e2e.support import Service, serve
from tests.support import ROOT, call_murho

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROWS: list[list[Any]] = [[8, 307, 130, 3504, 12, "1970-01-01", "USA"], [4, None, 70, None, 15, "1978-01-01", None]]

FEATURES = ("Cylinders", "Displacement", "Horsepower", "Weight_in_lbs", "Acceleration", "Year", "Origin")


@pytest.fixture(scope="module")
def service(quick_cars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serve(quick_cars, tmp_path_factory.mktemp("log") / "log") as service:
        service.wait_for_line("(Ready: )")
        yield service


def post(service: Service, path: str, document: Any, **headers: str) -> tuple[int, Any]:
    response = httpx2.post(f"{service.address}{path}", json=document, headers=headers, timeout=60)
    return response.status_code, response.json()


@pytest.mark.parametrize("options", [{}, {"calibrated": False}, {"noise": False, "seed": 3}])
def test_shares_and_baseline_add_up_to_the_answer(service: Service, options: dict[str, Any]) -> None:
    _, answer = post(service, "/predict", {"inputs": ROWS, "include": ["why", "worth_asking"], **options})
    why = answer["why"]
    for name, whole in (
        ("mean", answer["mean"]),
        ("epistemic_variance", np.square(answer["epistemic_std"])),
        ("aleatoric_variance", np.square(answer["aleatoric_std"])),
    ):
        np.testing.assert_allclose(np.add(why["baseline"][name], np.sum(why[name], axis=1)), whole, rtol=1e-5)
    assert np.equal(why["mean"], 0.0).tolist()[1] == [False, True, False, True, False, False, True]
    names = {cell["feature"] for cell in answer["worth_asking"][1]}
    assert answer["worth_asking"][0] == []
    assert names == {"Displacement", "Weight_in_lbs", "Origin"}


def test_it_is_the_same_whatever_else_is_asked(service: Service) -> None:
    _, both = post(service, "/predict", {"inputs": ROWS, "include": ["why"]})
    _, alone = post(service, "/predict", {"inputs": ROWS[1:], "include": ["why", "draws"], "percentiles": []})
    for name, shares in alone["why"].items():
        if name not in ("features", "baseline"):
            np.testing.assert_allclose(shares[0], both["why"][name][1], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "headers", "status", "said"),
    [
        ({"samples": 0, "include": ["worth_asking"]}, {}, 422, "needs draws"),
        ({"include": ["why"]}, {"accept": "text/csv"}, 422, "Accept application/json"),
        ({"inputs": ROWS * 5_000, "include": ["why"]}, {}, 413, "cost"),
        ({"include": ["why"], "timeout": 1e-3}, {}, 504, "no answer within"),
    ],
)
def test_what_can_not_be_asked(
    service: Service, options: dict[str, Any], headers: dict[str, str], status: int, said: str
) -> None:
    found, problem = post(service, "/predict", {"inputs": ROWS, **options}, **headers)
    assert found == status
    assert said in str(problem)


def test_all_doors_say_the_same(service: Service, quick_cars: Path, tmp_path: Path) -> None:
    file, model = tmp_path / "rows.csv", murho.load(quick_cars / "cars")
    pd.DataFrame(ROWS, columns=FEATURES).to_csv(file, index=False)
    _, online = post(service, "/predict", {"inputs": ROWS, "include": ["why", "worth_asking"]})
    offline = model.explain(file)
    call_murho("explain", file, "--model", "cars", "--checkpoints", quick_cars, "--output", tmp_path / "why.csv")
    with Client(service.address) as client:
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


def test_the_nearest_rows_reach_the_goal(service: Service) -> None:
    row = dict(zip(FEATURES, ROWS[0], strict=True))
    goal = {"mean": {"at_least": 18.0}}

    async def ask() -> Any:
        async with AsyncClient(service.address) as client:
            return await client.counterfactual(row, goal, "cars", fixed=["Origin"])

    with Client(service.address) as client:
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
