"""`load` and `train` give the same object: a model that answers, and that can be saved."""

import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import murho
from murho import load, train
from murho.model.checkpoint.posterior import Posterior
from murho.model.errors import CheckpointError
from murho.model.python.answers import ClassDistribution, NumberDistribution
from murho.model.python.interface import TrainedModel
from murho.model.tables.schema import FeatureKind
from tests.model.conftest import make_table
from tests.support import ROOT

QUICK: dict[str, Any] = {"hidden": [6], "members": 1, "epochs": 4, "encoding": "standard", "temperature": 1.0}
OF_NUMBERS: dict[str, Any] = {"noise": "homoscedastic", "transform": "none"}


def flats() -> pd.DataFrame:
    return make_table().to_pandas()


@pytest.fixture(scope="module")
def model() -> TrainedModel:
    return train(flats(), "rent", seed=3, columns={"rent": {"unit": "EUR"}}, **QUICK, **OF_NUMBERS)


# ---- training


def test_a_number_gets_a_distribution_of_numbers(model: TrainedModel) -> None:
    answer = model.predict(flats().head(3))
    assert isinstance(answer, NumberDistribution)
    assert answer.mean.shape == (3,)
    assert (model.target, model.classes) == ("rent", None)
    assert model.features == ("size", "district", "lift", "day")
    assert model.metrics["n"] > 0
    assert repr(model) == "<model of 'rent' (a number) from size, district, lift, day>"


def test_text_gets_a_distribution_of_classes() -> None:
    model = train(flats(), "district", **QUICK)
    answer = model.predict(flats().head(3))
    assert isinstance(answer, ClassDistribution)
    assert model.classes == ("east", "north", "west")
    assert repr(model).startswith("<model of 'district' (3 classes) from ")


def test_a_data_frame_says_what_is_a_category() -> None:
    generator = np.random.default_rng(0)
    frame = pd.DataFrame({"a": np.arange(60), "code": pd.Categorical(generator.integers(0, 3, 60))})
    model = train(frame, "code", **QUICK)
    assert model.classes == ("0", "1", "2")
    assert [feature.kind for feature in model.posterior.schema.features] == [FeatureKind.NUMERIC]
    assert train(frame.assign(code=frame["code"].astype(int)), "code", **QUICK, **OF_NUMBERS).classes is None


def test_columns_of_a_data_frame_may_be_named_by_whole_numbers() -> None:
    numbers = np.random.default_rng(0).normal(size=(60, 3))
    trained = train(pd.DataFrame(numbers), 2, **QUICK, **OF_NUMBERS)
    assert trained.predict(pd.DataFrame(numbers[:, :2])).mean.shape == (60,)


def test_a_file_trains_as_murho_train_does(tmp_path: Path) -> None:
    path = tmp_path / "flats.csv"
    flats().to_csv(path, index=False)
    model = train(path, "rent", ignore=["day"], **QUICK, **OF_NUMBERS)
    assert model.features == ("size", "district", "lift")
    np.testing.assert_allclose(model.predict(str(path)).mean, model.predict(flats()).mean, rtol=1e-6)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: train(flats(), "rents", **QUICK), "'rents' is not a column"),
        (lambda: train(flats(), "rent", epoch=3), "no option epoch; did you mean epochs"),
        (
            lambda: train([[1.0]], "rent"),
            "give a data frame of pandas, polars or pyarrow, or the path of a file, not list",
        ),
        (lambda: train("no.csv", "rent"), r"no\.csv does not exist"),
        (lambda: train("rent", flats()), "target: give the name of a column, not DataFrame; the table comes first"),
        (lambda: train(flats(), "rent", members="ten"), "^members must be a whole number, not 'ten'"),
    ],
)
def test_what_can_not_be_trained_is_a_value_error(ask: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ask()


# ---- answers


def test_frames_of_pandas_polars_and_pyarrow_get_the_same_answers(model: TrainedModel) -> None:
    table = make_table(rows=20, seed=9)
    expected = model.predict(table).mean
    for frame in (table.to_pandas(), pl.from_arrow(table), table.drop_columns(["rent"]).to_pandas()):
        np.testing.assert_array_equal(model.predict(frame).mean, expected)


def test_draws_and_calibration_are_options(model: TrainedModel) -> None:
    rows = flats().head(4)
    raw = model.predict(rows, calibrated=False)
    assert isinstance(raw, NumberDistribution)
    assert (model.predict(rows).calibrated, raw.calibrated) == (True, False)
    np.testing.assert_array_equal(model.predict(rows, seed=3).mean, model.predict(rows).mean)
    assert not np.array_equal(model.predict(rows, seed=4).mean, model.predict(rows).mean)
    few = model.predict(rows, samples=8)
    assert few.functions().shape == (4, 8)
    with pytest.raises(ValueError, match=r"^percentiles: expected numbers strictly between 0 and 100, not 101"):
        model.aggregate(rows, percentiles=(5, 101))
    for seed in (-1, 2**63):
        with pytest.raises(ValueError, match=r"^seed: "):
            model.predict(rows, seed=seed)
    with pytest.raises(ValueError, match=r"^samples: a whole number, at least 0"):
        model.predict(rows, samples=-1)
    with pytest.raises(ValueError, match=r"not Series; one row of a data frame is frame\.iloc\[\[0\]\]"):
        model.predict(flats().iloc[0])
    with pytest.raises(ValueError, match="column 'size', row 1"):
        model.predict(flats().assign(size="big"))


# ---- saving and loading


def test_what_is_saved_is_loaded(model: TrainedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert model.save("rent") == Path("checkpoints") / "rent" / "1"
    assert model.save("rent", "elsewhere").parts == ("elsewhere", "rent", "1")
    model.save("rent")
    rows = flats().head(5)
    expected = model.predict(rows).mean
    for again, version in (
        (load("rent"), "2"),
        (load("rent", version=1), "1"),
        (load("rent/1"), "1"),
        (load("checkpoints/rent"), "2"),
        (load(tmp_path / "checkpoints" / "rent" / "1"), "1"),
        (load("rent", checkpoints=tmp_path / "elsewhere"), "1"),
    ):
        np.testing.assert_allclose(again.predict(rows).mean, expected, rtol=1e-6)
        assert (again.posterior.name, again.posterior.version) == ("rent", version)
    assert load("rent").save("copy").name == "1"


@pytest.mark.parametrize(
    ("source", "version", "message"),
    [
        ("rents", None, "no checkpoint 'rents'; there are: rent"),
        ("rent", 7, "no version '7'; there are: 1"),
        ("rent/1", 2, "rent/1 is version '1'"),
        ("..", None, "can't be the name"),
        ("/", None, "'/' is no checkpoint"),
        (__file__, None, "is a file: give a checkpoint's name"),
    ],
)
def test_what_is_not_there_is_named(
    rent: Posterior, rent_checkpoints: Path, source: str, version: int | None, message: str
) -> None:
    with pytest.raises((CheckpointError, ValueError), match=message):
        load(source, version=version, checkpoints=rent_checkpoints)


def test_a_model_says_how_it_is_kept_instead_of_pickled(rent: Posterior) -> None:
    with pytest.raises(TypeError, match=r"model\.save\(NAME\)"):
        pickle.dumps(TrainedModel(rent))


@pytest.mark.slow
def test_the_guide_runs(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "estimator.md").read_text()
    snippets = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    assert len(snippets) == 8
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    command = [sys.executable, "-W", "error", "-c", "\n".join(snippets)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (r2,) = re.findall(r"rows: (0\S+)", done.stdout)
    (coverage,) = re.findall(r"hold (\d+)%", done.stdout)
    (accuracy,) = re.findall(r"accuracy: (\S+)", done.stdout)
    assert float(r2) > 0.8
    assert float(coverage) > 75
    assert float(accuracy) > 0.8
    assert "['Europe' 'Japan' 'USA']" in done.stdout
    assert (tmp_path / "checkpoints" / "cars" / "2" / "model.json").is_file()


def test_a_model_is_judged_as_by_the_command(model: TrainedModel) -> None:
    report = model.evaluate(make_table(rows=60, seed=9))
    assert report["n"] == 60
    assert report["constant"]["crps"] > 0.0
    assert murho.__version__.count(".") == 2
