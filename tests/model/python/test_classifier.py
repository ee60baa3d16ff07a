"""The classifier keeps scikit-learn's manners, and answers as the core does."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
from typing import TYPE_CHECKING, Any

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_checks

from murho import BBBClassifier, BBBRegressor
from murho.model.checkpoint.stores import store_at
from murho.model.errors import CheckpointError
from murho.model.predictive.prediction import PredictOptions
from murho.model.python.estimator_parameters import RENAMED
from murho.model.tables.schema_inference import columns_from_table
from murho.model.training.options import make_options
from murho.model.training.prepared_table import OF_NUMBERS
from murho.model.training.train import train
from murho.service.models.loader import Loader
from murho.service.models.registry import Registry
from murho.service.models.source import StoreSource
from tests.model.conftest import Notes, make_table
from tests.support import sealed_again

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


QUICK: dict[str, Any] = {
    "hidden": (8,),
    "members": 1,
    "epochs": 20,
    "learning_rate": 0.03,
    "encoding": "standard",
    "temperature": 1.0,
}
"""A fit of a few tenths of a second: nothing is searched for."""


def quick(**changes: Any) -> BBBClassifier:
    return BBBClassifier(**(QUICK | {"random_state": 0} | changes))


def plane(rows: int = 90, classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Parts of equal size between parallel planes."""
    X = np.random.default_rng(0).normal(size=(rows, 3))
    height = X @ [2.0, 1.0, 0.0]
    return X, np.searchsorted(np.quantile(height, np.arange(1, classes) / classes), height)


@pytest.fixture(scope="module")
def fitted() -> BBBClassifier:
    """Fitted to a frame with every kind of column; the classes are numbers whose texts have another order."""
    return quick(ignore=("day",)).fit(*frame_and_classes())


def frame_and_classes() -> tuple[pd.DataFrame, pd.Series]:
    frame = make_table().to_pandas()
    codes = frame["district"].map({"west": 2, "east": 10, "north": 30}).rename("code")
    return frame.drop(columns="district"), codes


@pytest.fixture(scope="module")
def flats() -> pd.DataFrame:
    """Rows that `fitted` has not seen."""
    return make_table(rows=30, seed=9).to_pandas().drop(columns="district")


# ---- scikit-learn's own checks


@estimator_checks.parametrize_with_checks(  # type: ignore[untyped-decorator]  # scikit-learn has no types
    [BBBClassifier(**QUICK)],
    expected_failed_checks=lambda _: {
        "check_sample_weight_equivalence_on_dense_data": "a row of weight 2 is one row: it is held out as one, and the "
        "prior has the weight that it has among N rows"
    },
)
def test_it_passes_the_checks_of_scikit_learn(estimator: BBBClassifier, check: Callable[[BBBClassifier], None]) -> None:
    check(estimator)


def test_names_of_columns_are_kept_and_checked() -> None:
    estimator_checks.check_dataframe_column_names_consistency("BBBClassifier", quick())


# ---- parameters


def test_its_parameters_are_those_of_the_regressor_but_for_what_only_numbers_have() -> None:
    own = inspect.signature(BBBClassifier).parameters
    of_numbers = {RENAMED.get(name, name) for name in OF_NUMBERS}
    assert set(inspect.signature(BBBRegressor).parameters) - set(own) == of_numbers
    assert "task" not in own
    described = re.findall(r"^ {4}(\w+): ", inspect.getdoc(BBBClassifier) or "", flags=re.MULTILINE)
    assert described[: len(own)] == list(own)
    with pytest.raises(TypeError, match="'noise'"):
        quick(noise="homoscedastic")


# ---- fits


def test_a_fit_is_that_of_murho_train(flats: pd.DataFrame) -> None:
    table = make_table().drop_columns(["day"])
    options = make_options(QUICK | {"seed": 0, "task": "classification"})
    posterior = train(table, "district", options, reporter=Notes()).posterior
    frame = table.to_pandas()
    estimator = quick().fit(frame.drop(columns="district"), frame["district"])
    assert estimator.classes_.tolist() == list(posterior.schema.target.classes or ()) == ["east", "north", "west"]
    columns = columns_from_table(make_table(rows=30, seed=9), posterior.schema)
    expected = posterior.predict(columns, PredictOptions(coverage=0.8, draws=True))
    rows = flats.drop(columns="day")
    np.testing.assert_allclose(estimator.predict_proba(rows), expected.probabilities, rtol=1e-6)
    np.testing.assert_array_equal(estimator.predict_set(rows, coverage=0.8), expected.prediction_set)
    np.testing.assert_allclose(estimator.sample_functions(rows), expected.draws, rtol=1e-6)


def test_classes_keep_their_type_and_order(fitted: BBBClassifier, flats: pd.DataFrame) -> None:
    assert fitted.classes_.tolist() == [2, 10, 30]
    assert fitted.posterior_.schema.target.classes == ("10", "2", "30")
    assert fitted.posterior_.schema.target.name == "code"
    proba, predicted = fitted.predict_proba(flats), fitted.predict(flats)
    assert predicted.dtype == fitted.classes_.dtype
    np.testing.assert_array_equal(predicted, fitted.classes_[proba.argmax(axis=1)])
    np.testing.assert_array_equal(fitted.predict_log_proba(flats), np.log(proba))
    truth = make_table(rows=30, seed=9).to_pandas()["district"].map({"west": 2, "east": 10, "north": 30})
    assert log_loss(truth, proba, labels=fitted.classes_) < np.log(3.0) + 0.2  # not those of another class


def test_classes_that_the_model_would_take_for_one_stay_distinct() -> None:
    X, y = plane()
    labels = np.array(["1.0", "1"])[y]
    estimator = quick().fit(X, labels)
    assert estimator.classes_.tolist() == ["1", "1.0"]
    assert estimator.score(X, labels) > 0.8


@pytest.mark.parametrize(
    "make",
    [
        lambda y: y.astype(bool),
        lambda y: np.array(["no", "yes"])[y],
        lambda y: pd.Series(np.array(["no", "yes"])[y]),
        lambda y: pd.Series(np.array(["no", "yes"])[y], dtype="category"),
        lambda y: pl.Series("y", np.array(["no", "yes"])[y]),
        lambda y: y.astype(np.float32),
        lambda y: y.tolist(),
    ],
)
def test_classes_may_come_as_many_things(make: Callable[[np.ndarray], Any]) -> None:
    X, y = plane()
    target = make(y)
    estimator = quick().fit(X, target)
    assert estimator.score(X, target) > 0.8
    np.testing.assert_array_equal(estimator.classes_, np.unique(np.asarray(target)))


def test_weights_make_rows_important() -> None:
    X = np.random.default_rng(0).normal(size=(120, 1))
    y = np.tile([0, 1], 60)
    even, weighted = (quick(epochs=30).fit(X, y, sample_weight=w) for w in (None, np.tile([9.0, 1.0], 60)))
    assert even.predict_proba(X)[:, 0].mean() == pytest.approx(0.5, abs=0.1)
    assert weighted.predict_proba(X)[:, 0].mean() > 0.75


def test_frames_of_polars_are_fitted_as_those_of_pandas(fitted: BBBClassifier, flats: pd.DataFrame) -> None:
    frame, codes = frame_and_classes()
    again = clone(fitted).fit(pl.from_pandas(frame), pl.from_pandas(codes))
    np.testing.assert_allclose(again.predict_proba(pl.from_pandas(flats)), fitted.predict_proba(flats), rtol=1e-6)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (["a"] * 20, "y has one class, 'a', in every row"),
        (["a", None] * 10, "^y: a class is missing"),
        ([1.0, np.nan] * 10, "NaN"),
        (np.linspace(0.0, 1.0, 20), "Unknown label type"),
        (["a", "b"], "inconsistent numbers of samples"),
    ],
)
def test_classes_that_can_not_be_learned_are_value_errors(y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quick().fit(plane(20)[0], y)


def test_too_many_classes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"1,001 different classes.*BBBRegressor predicts numbers"):
        quick().fit(np.zeros((1_001, 1)), [f"name {number}" for number in range(1_001)])


# ---- answers


def test_sets_and_draws_are_in_the_order_of_the_classes(fitted: BBBClassifier, flats: pd.DataFrame) -> None:
    sets, proba = fitted.predict_set(flats, coverage=0.5), fitted.predict_proba(flats)
    assert sets.shape == (30, 3)
    assert sets.dtype == np.bool_
    assert sets.any(axis=1).all()
    assert (fitted.predict_set(flats, coverage=0.99) >= sets).all()
    draws = fitted.sample_functions(flats, samples=32)
    assert draws.shape == (30, 32, 3)
    np.testing.assert_allclose(fitted.sample_functions(flats).mean(axis=1), proba, atol=1e-6)


def test_the_distribution_says_what_predict_says(fitted: BBBClassifier, flats: pd.DataFrame) -> None:
    answer = fitted.predict_dist(flats)
    np.testing.assert_allclose(answer.probabilities, fitted.predict_proba(flats), rtol=1e-6)
    np.testing.assert_array_equal(answer.classes, fitted.classes_)
    np.testing.assert_allclose(answer.probability(10), answer.probabilities[:, 1])


def test_without_draws_there_are_probabilities_alone(fitted: BBBClassifier, flats: pd.DataFrame) -> None:
    estimator = copy.deepcopy(fitted).set_params(samples=0)
    np.testing.assert_allclose(estimator.predict_proba(flats).sum(axis=1), 1.0)
    for ask in (estimator.predict_set, estimator.sample_functions):
        with pytest.raises(ValueError, match=r"^samples: a whole number, at least 1"):
            ask(flats)


def test_coverage_lies_between_0_and_1(fitted: BBBClassifier, flats: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match=r"^coverage: .*0\.95, not 95"):
        fitted.predict_set(flats, coverage=95)


# ---- in the company of scikit-learn


def test_pipelines_searches_and_cross_validation_work() -> None:
    X, y = plane(classes=3)
    pipeline = make_pipeline(StandardScaler(), quick())
    proba = cross_val_predict(pipeline, X, y, cv=3, method="predict_proba")
    assert log_loss(y, proba) < np.log(3.0)
    search = GridSearchCV(pipeline, {"bbbclassifier__epochs": [1, 20]}, cv=2, scoring="neg_log_loss").fit(X, y)
    assert search.best_params_ == {"bbbclassifier__epochs": 20}


# ---- pickles and checkpoints


def test_copies_and_pickles_answer_alike(fitted: BBBClassifier, flats: pd.DataFrame, tmp_path: Path) -> None:
    expected = fitted.predict_proba(flats)
    joblib.dump(fitted, tmp_path / "fitted.joblib")
    for again in (
        copy.deepcopy(fitted),
        pickle.loads(pickle.dumps(fitted)),  # noqa: S301 - our own
        joblib.load(tmp_path / "fitted.joblib", mmap_mode="r"),
    ):
        np.testing.assert_allclose(again.predict_proba(flats), expected, rtol=1e-6)
        np.testing.assert_array_equal(again.classes_, fitted.classes_)


def test_a_checkpoint_is_served_and_becomes_the_estimator_again(
    fitted: BBBClassifier, flats: pd.DataFrame, tmp_path: Path
) -> None:
    directory = fitted.save(tmp_path, "code")
    served = Loader(StoreSource(store_at(tmp_path), "cpu"), Registry("here")).refresh().find("code")
    assert served.schema == fitted.posterior_.schema
    again = BBBClassifier.from_checkpoint(directory)
    np.testing.assert_array_equal(again.classes_, fitted.classes_)
    assert again.classes_.dtype == fitted.classes_.dtype
    np.testing.assert_allclose(again.predict_proba(flats), fitted.predict_proba(flats), rtol=1e-6)
    refitted = clone(again).fit(*frame_and_classes())
    np.testing.assert_allclose(refitted.predict_proba(flats), fitted.predict_proba(flats), rtol=1e-6)


def test_a_checkpoint_of_murho_train_has_texts_as_classes(tmp_path: Path) -> None:
    posterior_classes = ("east", "north", "west")
    from murho import train as train_model

    directory = train_model(make_table(), "district", **QUICK).save("district", tmp_path)
    again = BBBClassifier.from_checkpoint(directory)
    assert tuple(again.classes_.tolist()) == posterior_classes
    assert set(again.predict(make_table(rows=9, seed=3).drop_columns(["district"]))) <= set(posterior_classes)


def test_a_checkpoint_of_the_other_kind_is_refused(
    fitted: BBBClassifier, rent_checkpoints: Path, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match=r"predicts numbers: load it with BBBRegressor\.from_checkpoint"):
        BBBClassifier.from_checkpoint(rent_checkpoints / "rent")
    with pytest.raises(CheckpointError, match=r"predicts classes: load it with BBBClassifier\.from_checkpoint"):
        BBBRegressor.from_checkpoint(fitted.save(tmp_path, "code"))


def test_a_checkpoint_that_somebody_edited_is_refused(fitted: BBBClassifier, tmp_path: Path) -> None:
    path = fitted.save(tmp_path, "code") / "model.json"
    edited = path.read_text().replace('"<i8"', '"<q8"')
    assert edited != path.read_text()
    path.write_bytes(sealed_again(edited))
    with pytest.raises(CheckpointError, match=r"estimator or training\.options is malformed"):
        BBBClassifier.from_checkpoint(path.parent)
