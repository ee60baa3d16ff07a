"""The estimator keeps scikit-learn's manners, and answers as the core does."""

from __future__ import annotations

import copy
import inspect
import json
import pickle
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from pydantic import Field
from sklearn.base import clone
from sklearn.datasets import make_regression
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_checks

from murho import BBBRegressor
from murho.model.checkpoint.checkpoint import find_checkpoint
from murho.model.checkpoint.posterior import Posterior
from murho.model.checkpoint.stores import store_at
from murho.model.errors import CheckpointError, OptionError
from murho.model.predictive.prediction import PredictOptions
from murho.model.python.estimator_parameters import RENAMED
from murho.model.tables.schema import FeatureKind
from murho.model.tables.schema_inference import columns_from_table
from murho.model.training.candidates import Reporter
from murho.model.training.options import TrainOptions, make_options
from murho.model.training.train import train
from murho.service.models.loader import Loader
from murho.service.models.registry import Registry
from murho.service.models.source import StoreSource
from tests.model.conftest import Notes, make_table
from tests.support import ROOT, sealed_again

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from murho.model.bbb.fit import Epoch
    from murho.model.checkpoint.posterior import Posterior

QUICK: dict[str, Any] = {
    "hidden": (8,),
    "members": 1,
    "epochs": 20,
    "learning_rate": 0.03,
    "noise": "homoscedastic",
    "target_transform": "none",
    "encoding": "standard",
    "temperature": 1.0,
}
"""A fit of a few tenths of a second: nothing is searched for."""


def assert_alike(actual: NDArray[np.float64], expected: NDArray[np.float64]) -> None:
    """Equal but for float32 rounding, by which an answer depends on those before it."""
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def quick(**changes: Any) -> BBBRegressor:
    return BBBRegressor(**(QUICK | {"random_state": 0} | changes))


def line(rows: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A noisy plane over three features."""
    X, y = make_regression(rows, 3, noise=5.0, random_state=seed)
    return X, y


@pytest.fixture(scope="module")
def fitted() -> BBBRegressor:
    """Fitted to a frame with every kind of column."""
    frame = make_table().to_pandas()
    return quick(members=2, columns={"rent": {"unit": "EUR"}}).fit(frame.drop(columns="rent"), frame["rent"])


@pytest.fixture(scope="module")
def flats() -> pd.DataFrame:
    """Rows that `fitted` has not seen."""
    return make_table(rows=30, seed=9).to_pandas().drop(columns="rent")


# ---- scikit-learn's own checks


@estimator_checks.parametrize_with_checks(  # type: ignore[untyped-decorator]  # scikit-learn has no types
    [BBBRegressor(**QUICK)],
    expected_failed_checks=lambda _: {
        "check_sample_weight_equivalence_on_dense_data": "a row of weight 2 is one row: it is held out as one, and the "
        "prior has the weight that it has among N rows"
    },
)
def test_it_passes_the_checks_of_scikit_learn(estimator: BBBRegressor, check: Callable[[BBBRegressor], None]) -> None:
    check(estimator)


@pytest.mark.parametrize(
    "check",
    [
        "check_estimator_cloneable",
        "check_estimator_tags_renamed",
        "check_valid_tag_types",
        "check_estimator_repr",
        "check_no_attributes_set_in_init",
        "check_estimators_unfitted",
        "check_do_not_raise_errors_in_init_or_set_params",
        "check_mixin_order",
        "check_parameters_default_constructible",
        "check_get_params_invariance",
        "check_set_params",
        "check_complex_data",
        "check_estimator_sparse_array",
        "check_estimators_empty_data_messages",
        "check_supervised_y_no_nan",
        "check_requires_y_none",
    ],
)
def test_the_default_one_passes_those_that_need_no_fit(check: str) -> None:
    getattr(estimator_checks, check)("BBBRegressor", BBBRegressor())


def test_weights_make_rows_important_and_are_no_feature() -> None:
    x = np.random.default_rng(0).normal(size=(120, 1))
    y = np.tile([0.0, 4.0], 60) + 0.1 * x[:, 0]
    weights = np.tile([9.0, 1.0], 60)
    model = quick(epochs=30, members=2).fit(x, y, sample_weight=weights)
    assert model.n_features_in_ == 1
    assert model.posterior_.location == pytest.approx(np.average(y, weights=weights))
    named = quick(epochs=30, members=2, weight="w").fit(pd.DataFrame({"x0": x[:, 0], "w": weights}), y)
    np.testing.assert_array_equal(named.predict(pd.DataFrame({"x0": x[:, 0], "w": weights})), model.predict(x))


def test_a_copy_of_a_weighted_estimator_fits_without_weights(tmp_path: Path) -> None:
    x, y = np.arange(60.0)[:, None], np.arange(60.0)
    directory = quick().fit(x, y, sample_weight=np.ones(60)).save(tmp_path, "weighted")
    assert BBBRegressor.from_checkpoint(directory).weight is None


@pytest.mark.parametrize("weights", [np.ones(3), np.ones((60, 2)), np.full(60, -1.0), np.full(60, np.nan)])
def test_weights_that_can_not_be_used_are_refused(weights: NDArray[np.float64]) -> None:
    with pytest.raises(ValueError, match="weight"):
        quick().fit(np.arange(60.0)[:, None], np.arange(60.0), sample_weight=weights)


def test_groups_are_held_out_together_and_are_no_feature(tmp_path: Path) -> None:
    X, y = line()
    groups = np.repeat(np.arange(20), 3)
    model = quick(members=2).fit(X, y, groups=groups)
    assert model.n_features_in_ == 3
    frame = pd.DataFrame(X, columns=["x0", "x1", "x2"]).assign(subject=groups)
    named = quick(members=2, group=("subject",)).fit(frame, y)
    assert_alike(model.predict(X), named.predict(frame))
    assert BBBRegressor.from_checkpoint(model.save(tmp_path, "grouped")).group == ()


@pytest.mark.parametrize(
    ("parameters", "groups", "message"),
    [
        ({}, [1, 2], "^groups: one for each of the 60 rows"),
        ({"group": ("x0",)}, range(60), "^group: can't be combined with groups"),
        ({"time": "row-order"}, range(60), "^time: can't be combined with groups"),
    ],
)
def test_groups_that_can_not_be_used_are_refused(parameters: dict[str, Any], groups: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quick(**parameters).fit(*line(), groups=groups)


def test_text_as_a_target_is_for_the_classifier() -> None:
    with pytest.raises(ValueError, match="y holds text: BBBRegressor predicts numbers, BBBClassifier predicts classes"):
        quick().fit(line(20)[0], ["a", "b"] * 10)


def test_names_of_columns_are_kept_and_checked() -> None:
    estimator_checks.check_dataframe_column_names_consistency("BBBRegressor", quick())


# ---- parameters


def test_every_option_of_a_fit_is_a_parameter_with_the_same_default() -> None:
    parameters = inspect.signature(BBBRegressor).parameters
    options = TrainOptions()
    for name in TrainOptions.model_fields:
        # No seed: a random one; no columns: None, as a dict could be changed; no task: the class is it.
        if name not in {"seed", "columns", "task"}:
            assert parameters[RENAMED.get(name, name)].default == getattr(options, name), name
    assert set(parameters) - {RENAMED.get(name, name) for name in TrainOptions.model_fields} == {
        "samples",
        "device",
        "verbose",
    }
    assert parameters["random_state"].default is parameters["columns"].default is None


def test_a_quick_fit_has_few_members_unless_more_are_asked_for() -> None:
    assert BBBRegressor(quick=True).train_options().members == 5
    assert BBBRegressor(quick=True, members=3).train_options().members == 3
    assert BBBRegressor().train_options().members == 10


def test_a_further_option_is_a_further_parameter() -> None:
    class Further(TrainOptions):
        dropout: float = Field(default=0.25, ge=0.0, lt=1.0, description="Share of units left out of a step.")

    class FurtherRegressor(BBBRegressor, options=Further):
        """[options of a training]"""  # noqa: D415 - replaced as a whole

    assert inspect.signature(FurtherRegressor).parameters["dropout"].default == 0.25
    assert (FurtherRegressor.__doc__ or "").splitlines()[-1] == (
        "dropout: Share of units left out of a step. [at least 0, below 1; default: 0.25]"
    )


def test_a_parameter_that_is_unknown_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="'hiden'"):
        BBBRegressor(hiden=(50,))


def test_every_parameter_is_described() -> None:
    described = re.findall(r"^ {4}(\w+): ", inspect.getdoc(BBBRegressor) or "", flags=re.MULTILINE)
    assert described[: len(BBBRegressor().get_params())] == list(inspect.signature(BBBRegressor).parameters)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"hidden": 50}, "^hidden"),
        ({"learning_rate": -1.0}, "^learning_rate"),
        ({"target_transform": "root"}, "^target_transform"),
        ({"random_state": -1}, "^random_state"),
        ({"noise": "fixed"}, "give noise_sigma"),
        ({"device": "abacus"}, "^device"),
        ({"columns": {"x7": {"unit": "m"}}}, "'x7'"),
        ({"ignore": ("x7",)}, "'x7'"),
    ],
)
def test_a_bad_parameter_is_named_when_it_is_used(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        quick(**parameters).fit(*line())
    assert isinstance(caught.value, OptionError)


def test_parameters_may_come_out_of_arrays() -> None:
    estimator = quick(hidden=np.array([4, 3]), epochs=np.arange(3)[2], learning_rate=np.float32(0.01))
    facts = estimator.fit(*line()).posterior_.facts
    assert facts["architecture"]["hidden"] == [4, 3]
    assert facts["training"]["options"]["epochs"] == 2


def test_an_integer_random_state_repeats_a_fit_and_a_generator_goes_on() -> None:
    X, y = line(20)
    first, second = (quick(random_state=np.int64(5)).fit(X, y).predict(X) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    generator = np.random.RandomState(5)
    third, fourth = (quick(random_state=generator).fit(X, y).predict(X) for _ in range(2))
    assert not np.array_equal(third, fourth)


# ---- fits


def test_a_fit_is_that_of_murho_train() -> None:
    table = make_table()
    names = {parameter: option for option, parameter in RENAMED.items()}
    options = make_options({names.get(name, name): value for name, value in QUICK.items()} | {"seed": 3})
    trained = train(table, "rent", options, reporter=Notes())
    frame = table.to_pandas()
    estimator = quick(random_state=3).fit(frame.drop(columns="rent"), frame["rent"])
    assert estimator.posterior_.schema == trained.posterior.schema
    columns = columns_from_table(table, trained.posterior.schema)
    expected = trained.posterior.predict(columns, PredictOptions()).mean
    assert_alike(estimator.predict(frame.drop(columns="rent")), expected)


def test_columns_of_a_frame_become_features_of_their_kinds(fitted: BBBRegressor) -> None:
    schema = fitted.posterior_.schema
    assert {feature.name: feature.kind for feature in schema.features} == {
        "size": FeatureKind.NUMERIC,
        "district": FeatureKind.CATEGORICAL,
        "lift": FeatureKind.BOOLEAN,
        "day": FeatureKind.DATE,
    }
    assert (schema.target.name, schema.target.unit) == ("rent", "EUR")
    assert list(fitted.feature_names_in_) == ["size", "district", "lift", "day"]


def test_tables_of_pyarrow_are_fitted_as_frames_of_pandas_are(fitted: BBBRegressor) -> None:
    table = make_table().drop_columns(["rent"])
    again = clone(fitted).set_params(columns=None).fit(table, make_table().column("rent"))
    assert list(again.feature_names_in_) == list(fitted.feature_names_in_)
    assert again.posterior_.schema.features == fitted.posterior_.schema.features
    assert_alike(again.predict(table), fitted.predict(table.to_pandas()))


def test_counters_are_features_constants_and_gaps_are_not() -> None:
    counter = np.arange(40)
    X = np.column_stack([counter, np.full(40, 7), np.full(40, np.nan)])
    estimator = quick().fit(X, 3.0 * counter)
    assert [feature.name for feature in estimator.posterior_.schema.features] == ["x0"]
    assert estimator.n_features_in_ == 3
    assert estimator.score(X, 3.0 * counter) > 0.9


def test_kinds_and_units_can_be_given() -> None:
    X, y = line(30)
    X[:, 0] = np.round(X[:, 0])
    estimator = quick(columns={"x0": {"kind": "categorical"}, "x1": {"unit": "m"}}, ignore=("x2",)).fit(X, y)
    first, second = estimator.posterior_.schema.features
    assert (first.kind, second.kind, second.unit) == (FeatureKind.CATEGORICAL, FeatureKind.NUMERIC, "m")
    assert np.isfinite(estimator.predict(X)).all()


def test_a_column_left_out_for_a_reason_worth_knowing_is_warned_of() -> None:
    frame = pd.DataFrame(line()[0], columns=["a", "b", "c"]).assign(name=[f"flat {i}" for i in range(60)])
    with pytest.warns(UserWarning, match="column 'name' is no feature: it identifies rows"):
        quick().fit(frame, line()[1])


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.ones((30, 2)), np.arange(30), "no column is left as a feature.*'x0'"),
        (line(30)[0], np.full(30, 3.0), "the target 'y' is 3 in every row"),
        (pd.DataFrame({"a": [1.0, np.inf]}), [0, 1], "column 'a', row 2"),
        (pd.DataFrame({"a": [1.0]}), [0], r"1 sample\(s\)"),
        (pd.DataFrame(index=range(3)), [0, 1, 2], r"0 feature\(s\)"),
        (pd.DataFrame({"a": [1.0, 2.0]}), [0, 1, 2], "inconsistent numbers of samples"),
        (pd.DataFrame({"a": [1.0, 2.0], "": [2.0, 1.0]}), [0, 1], "column 2 has no name"),
        (np.array([[1.0], [np.inf]]), [0, 1], "infinity"),
        (np.array([["a"], ["b"]]), [0, 1], "strings"),
    ],
)
def test_data_that_can_not_be_used_are_value_errors(X: Any, y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quick().fit(X, y)


def test_missing_cells_are_answered_unless_they_shall_be_refused() -> None:
    X, y = line()
    X[::5, 0] = np.nan
    accepting, refusing = quick().fit(X, y), quick(missing="refuse").fit(X, y)
    X[7, 1] = np.nan  # in training x1 was complete
    assert np.isfinite(accepting.predict(X)).all()
    with pytest.raises(ValueError, match="column 'x1', row 8: the cell is missing"):
        refusing.predict(X)


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("rows", [2, 5, 20, 25])
def test_few_rows_and_whole_numbers_are_enough(rows: int, members: int) -> None:
    X = np.arange(rows, dtype=np.float64)[:, None]
    mean, std = quick(members=members).fit(X, np.arange(rows) % 2).predict(X, return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0.0).all()


def test_an_interrupted_fit_is_interrupted_and_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: object, epoch: Epoch) -> None:
        if epoch.number == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Reporter, "epoch", interrupt)
    estimator = quick()
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(*line())
    assert np.isfinite(estimator.predict(line()[0])).all()


def test_it_is_silent_unless_it_is_verbose(capsys: pytest.CaptureFixture[str]) -> None:
    quick().fit(*line(20))
    assert capsys.readouterr() == ("", "")
    quick(verbose=True).fit(*line(20))
    assert "training" in capsys.readouterr().err


# ---- answers


def test_std_is_made_of_the_spread_of_functions_and_of_the_noise(flats: pd.DataFrame) -> None:
    frame = make_table(rows=45).to_pandas()  # too few to calibrate
    estimator = quick(noise="fixed", noise_sigma=40.0).fit(frame.drop(columns="rent"), frame["rent"])
    mean, std = estimator.predict(flats, return_std=True)
    functions = estimator.sample_functions(flats)
    assert functions.shape == (30, 256)
    np.testing.assert_allclose(functions.mean(axis=1), mean, rtol=1e-12)
    assert_alike(std**2, functions.var(axis=1) + 40.0**2)


def test_functions_are_the_same_for_all_rows_and_calls(fitted: BBBRegressor, flats: pd.DataFrame) -> None:
    together = fitted.sample_functions(flats, samples=12)
    alone = np.concatenate([fitted.sample_functions(flats.iloc[[row]], samples=8) for row in range(30)])
    np.testing.assert_allclose(together[:, :8], alone, rtol=1e-5)


def test_quantiles_are_the_posteriors_calibrated_and_in_the_order_asked_for(
    fitted: BBBRegressor, flats: pd.DataFrame
) -> None:
    posterior = fitted.posterior_
    assert posterior.calibration is not None
    table = make_table(rows=30, seed=9)
    options = PredictOptions(percentiles=(5.0, 50.0, 95.0))
    expected = posterior.predict(columns_from_table(table, posterior.schema), options).percentiles
    assert expected is not None
    assert_alike(fitted.predict_quantiles(flats), expected)
    turned = fitted.predict_quantiles(flats, quantiles=np.array([0.95, 0.05]))
    assert_alike(turned, expected[:, [2, 0]])


def test_spread_and_quantiles_come_with_the_mean_also_through_a_pipeline(
    fitted: BBBRegressor, flats: pd.DataFrame
) -> None:
    mean, std, quantiles = fitted.predict(flats, return_std=True, quantiles=(0.1, 0.9))
    assert_alike(mean, fitted.predict(flats))
    assert_alike(std, fitted.predict(flats, return_std=True)[1])
    assert_alike(quantiles, fitted.predict_quantiles(flats, (0.1, 0.9)))
    assert_alike(fitted.predict(flats, quantiles=[0.1, 0.9])[1], quantiles)
    X, y = line()
    pipeline = make_pipeline(StandardScaler(), quick()).fit(X, y)
    mean, std, quantiles = pipeline.predict(X, return_std=True, quantiles=(0.5,))
    assert (mean.shape, std.shape, quantiles.shape) == ((60,), (60,), (60, 1))
    answer = pipeline[-1].predict_dist(pipeline[:-1].transform(X))
    assert_alike(answer.mean(), mean)
    assert_alike(answer.median(), quantiles[:, 0])


def test_the_distribution_says_what_predict_says(fitted: BBBRegressor, flats: pd.DataFrame) -> None:
    answer = fitted.predict_dist(flats)
    mean, std = fitted.predict(flats, return_std=True)
    assert_alike(answer.mean(), mean)
    assert_alike(answer.std(), std)
    assert_alike(answer.interval(0.9)[0], fitted.predict_quantiles(flats)[:, 0])
    np.testing.assert_allclose(answer.cdf(answer.ppf(0.3)), 0.3, atol=1e-6)
    assert copy.deepcopy(fitted).set_params(samples=0).predict_dist(flats).mean().shape == (30,)


@pytest.mark.parametrize("quantiles", [(0.0, 0.5), (5, 50, 95), (np.nan,), 0.5])
def test_levels_lie_between_0_and_1(fitted: BBBRegressor, flats: pd.DataFrame, quantiles: Any) -> None:
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        fitted.predict_quantiles(flats, quantiles)


def test_without_draws_there_is_a_mean_alone(fitted: BBBRegressor, flats: pd.DataFrame) -> None:
    estimator = copy.deepcopy(fitted).set_params(samples=0)
    mean = estimator.predict(flats)
    table = make_table(rows=30, seed=9)
    columns = columns_from_table(table, fitted.posterior_.schema)
    np.testing.assert_array_equal(mean, fitted.posterior_.predict(columns, PredictOptions(samples=0)).mean)
    asks: list[Callable[[], object]] = [
        lambda: estimator.predict(flats, return_std=True),
        lambda: estimator.predict_quantiles(flats),
        lambda: estimator.sample_functions(flats),
        lambda: estimator.sample_functions(flats, samples=2.5),
    ]
    for ask in asks:
        with pytest.raises(ValueError, match=r"^samples: a whole number, at least 1"):
            ask()


def test_before_a_fit_there_is_no_answer(tmp_path: Path) -> None:
    asks: list[Callable[[], object]] = [
        lambda: quick().predict_quantiles([[1.0]]),
        lambda: quick().sample_functions([[1.0]]),
        lambda: quick().save(tmp_path, "line"),
    ]
    for ask in asks:
        with pytest.raises(NotFittedError):
            ask()


# ---- in the company of scikit-learn


def test_pipelines_searches_and_cross_validation_work() -> None:
    X, y = line()
    pipeline = make_pipeline(StandardScaler(), quick())
    assert cross_val_score(pipeline, X, y, cv=3).min() > 0.5
    search = GridSearchCV(pipeline, {"bbbregressor__epochs": [1, 20]}, cv=2).fit(X, y)
    assert search.best_params_ == {"bbbregressor__epochs": 20}
    assert search.score(X, y) > 0.5


# ---- pickles and checkpoints


def test_copies_and_pickles_answer_alike(fitted: BBBRegressor, flats: pd.DataFrame, tmp_path: Path) -> None:
    expected = fitted.predict_quantiles(flats)
    joblib.dump(fitted, tmp_path / "fitted.joblib")
    for again in (
        copy.deepcopy(fitted),
        pickle.loads(pickle.dumps(fitted)),  # noqa: S301 - our own
        joblib.load(tmp_path / "fitted.joblib", mmap_mode="r"),
    ):
        assert_alike(again.predict_quantiles(flats), expected)
    assert pickle.loads(pickle.dumps(quick())).get_params() == quick().get_params()  # noqa: S301 - our own


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there")
def test_a_pickle_from_a_gpu_is_read_without_one(fitted: BBBRegressor, flats: pd.DataFrame) -> None:
    elsewhere = copy.deepcopy(fitted)
    elsewhere.device = "cuda"
    again = pickle.loads(pickle.dumps(elsewhere))  # noqa: S301 - our own
    assert_alike(again.predict(flats), fitted.predict(flats))


def test_what_is_saved_is_served(fitted: BBBRegressor, tmp_path: Path) -> None:
    assert fitted.save(tmp_path, "rent") == tmp_path / "rent" / "1"
    assert fitted.save(str(tmp_path), "rent") == tmp_path / "rent" / "2"
    served = Loader(StoreSource(store_at(tmp_path), "cpu"), Registry("here")).refresh().find("rent")
    assert (served.version, served.schema) == ("2", fitted.posterior_.schema)
    with pytest.raises(CheckpointError, match="can't be the name"):
        fitted.save(tmp_path, "../rent")


def test_a_checkpoint_becomes_the_estimator_again(fitted: BBBRegressor, flats: pd.DataFrame, tmp_path: Path) -> None:
    fitted.save(tmp_path, "rent")
    again = BBBRegressor.from_checkpoint(tmp_path / "rent")
    expected = fitted.predict_quantiles(flats)
    assert_alike(again.predict_quantiles(flats), expected)
    assert list(again.feature_names_in_) == list(fitted.feature_names_in_)
    copied = BBBRegressor.from_checkpoint(again.save(tmp_path, "copy"))
    assert json.loads((find_checkpoint(tmp_path, "copy") / "model.json").read_text())["name"] == "copy"
    frame = make_table().to_pandas()
    refitted = clone(copied).fit(frame.drop(columns="rent"), frame["rent"])
    assert_alike(refitted.predict(flats), fitted.predict(flats))


def test_a_checkpoint_of_a_matrix_takes_matrices(tmp_path: Path) -> None:
    X, y = line(20)
    X[:, 1] = 0.0
    estimator = quick().fit(X, y)
    again = BBBRegressor.from_checkpoint(estimator.save(tmp_path, "line"))
    assert again.n_features_in_ == 3
    assert not hasattr(again, "feature_names_in_")
    assert_alike(again.predict(X), estimator.predict(X))


def test_a_checkpoint_of_murho_train_takes_its_features(rent_checkpoints: Path, rent: Posterior) -> None:
    estimator = BBBRegressor.from_checkpoint(rent_checkpoints / "rent" / "1")
    assert (estimator.members, estimator.hidden, estimator.random_state) == (2, (8,), 0)
    table = make_table(rows=20, seed=4)
    expected = rent.predict(columns_from_table(table, rent.schema), PredictOptions()).mean
    assert_alike(estimator.predict(table.drop_columns(["rent"])), expected)


def test_a_checkpoint_that_somebody_edited_is_refused(fitted: BBBRegressor, tmp_path: Path) -> None:
    path = fitted.save(tmp_path, "rent") / "model.json"
    text = path.read_text()
    for edited in (text.replace('"named"', '"nameless"'), text.replace('"options"', '"choices"')):
        assert edited != text
        path.write_bytes(sealed_again(edited))
        with pytest.raises(CheckpointError, match=r"estimator or training\.options is malformed"):
            BBBRegressor.from_checkpoint(path.parent)


def test_a_checkpoint_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint 'rent'"):
        BBBRegressor.from_checkpoint(tmp_path / "rent")


# ---- the package


def test_importing_the_package_imports_neither_torch_nor_scikit_learn() -> None:
    code = "import sys, murho; print([name for name in ('torch', 'sklearn', 'numpy') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "[]\n"


def test_without_scikit_learn_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("murho.model.python.estimators")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    with pytest.raises(ImportError, match=re.escape("run pip install '.[sklearn]' in a clone")):
        from murho import BBBRegressor  # noqa: F401 - the import is what fails
