"""The estimators keep scikit-learn's manners, and answer as the core does."""

import copy
import inspect
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_checks

import murho
from murho import BBBClassifier, BBBRegressor
from murho.model.bbb.fit import Epoch
from murho.model.checkpoint.posterior import Posterior
from murho.model.errors import CheckpointError, OptionError
from murho.model.predictive.prediction import PredictOptions
from murho.model.python.estimators import RENAMED
from murho.model.tables.schema import FeatureKind
from murho.model.tables.schema_inference import columns_from_table
from murho.model.training.candidates import Reporter
from murho.model.training.options import TrainOptions, make_options
from murho.model.training.prepared_table import OF_NUMBERS
from murho.model.training.train import train
from tests.model.conftest import Notes, make_table

Estimator: TypeAlias = BBBRegressor | BBBClassifier

EITHER: dict[str, Any] = {"hidden": (8,), "members": 1, "epochs": 20, "learning_rate": 0.03, "temperature": 1.0}
EITHER |= {"encoding": "standard"}
NUMBER: dict[str, Any] = EITHER | {"noise": "homoscedastic", "target_transform": "none"}
"""A fit of a few tenths of a second: nothing is searched for."""


def number(**changes: Any) -> BBBRegressor:
    return BBBRegressor(**(NUMBER | {"random_state": 0} | changes))


def classes(**changes: Any) -> BBBClassifier:
    return BBBClassifier(**(EITHER | {"random_state": 0} | changes))


def alike(actual: Any, expected: Any) -> None:
    """Equal but for float32 rounding, by which an answer depends on those before it."""
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def line(rows: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Return a noisy plane over three features."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(rows, 3))
    return X, X @ [60.0, 30.0, 10.0] + 5.0 * generator.normal(size=rows)


def parts(rows: int = 90, count: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Parts of equal size between parallel planes."""
    X = np.random.default_rng(0).normal(size=(rows, 3))
    height = X @ [2.0, 1.0, 0.0]
    return X, np.searchsorted(np.quantile(height, np.arange(1, count) / count), height)


def frame_of(rows: int = 160, seed: int = 0, *, without: str) -> tuple[pd.DataFrame, pd.Series]:
    """Every kind of column, and a target: the rent, or codes of districts whose texts have another order."""
    frame = make_table(rows, seed).to_pandas()
    codes = frame["district"].map({"west": 2, "east": 10, "north": 30}).rename("code")
    return frame.drop(columns=without), frame["rent"] if without == "rent" else codes


@pytest.fixture(scope="module")
def of_rent() -> BBBRegressor:
    return number(members=2, columns={"rent": {"unit": "EUR"}}).fit(*frame_of(without="rent"))


@pytest.fixture(scope="module")
def of_code() -> BBBClassifier:
    return classes(ignore=("day",)).fit(*frame_of(without="district"))


@pytest.fixture(scope="module")
def flats() -> pd.DataFrame:
    """Rows that no estimator has seen."""
    return frame_of(30, 9, without="rent")[0]


@pytest.fixture(scope="module")
def rents() -> pd.DataFrame:
    return frame_of(30, 9, without="district")[0]


@pytest.fixture(params=["number", "classes"])
def fitted(request: pytest.FixtureRequest) -> tuple[Estimator, pd.DataFrame]:
    """Return an estimator of either kind, and rows that it has not seen."""
    names = ("of_rent", "flats") if request.param == "number" else ("of_code", "rents")
    estimator, rows = map(request.getfixturevalue, names)
    return estimator, rows


def answers(estimator: Estimator, rows: pd.DataFrame) -> np.ndarray:
    return np.asarray(
        estimator.predict_quantiles(rows) if isinstance(estimator, BBBRegressor) else estimator.predict_proba(rows)
    )


@estimator_checks.parametrize_with_checks(  # type: ignore[untyped-decorator]  # scikit-learn has no types
    [BBBRegressor(**NUMBER), BBBClassifier(**EITHER)],
    expected_failed_checks=lambda _: {
        "check_sample_weight_equivalence_on_dense_data": "a row of weight 2 is one row: it is held out as one, and the "
        "prior has the weight that it has among N rows"
    },
)
def test_it_passes_the_checks_of_scikit_learn(estimator: Estimator, check: Callable[[Estimator], None]) -> None:
    check(estimator)


def test_every_option_of_a_fit_is_a_described_parameter_with_the_same_default() -> None:
    parameters, options = inspect.signature(BBBRegressor).parameters, TrainOptions()
    names = {RENAMED.get(name, name): name for name in TrainOptions.model_fields if name != "task"}
    assert set(parameters) - set(names) == {"samples", "device", "verbose"}
    assert parameters["random_state"].default is parameters["columns"].default is None
    for parameter in set(names) - {"random_state", "columns"}:
        assert parameters[parameter].default == getattr(options, names[parameter]), parameter
    of_classes = inspect.signature(BBBClassifier).parameters
    assert set(parameters) - set(of_classes) == {RENAMED.get(name, name) for name in OF_NUMBERS}
    for kind, own in ((BBBRegressor, parameters), (BBBClassifier, of_classes)):
        described = re.findall(r"^ {4}(\w+): ", inspect.getdoc(kind) or "", flags=re.MULTILINE)
        assert described[: len(own)] == list(own)
    with pytest.raises(TypeError, match="'noise'"):
        classes(noise="homoscedastic")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"hidden": 50}, "^hidden"),
        ({"noise": "fixed"}, "give noise_sigma"),
        ({"device": "abacus"}, "^device"),
        ({"columns": {"x7": {"unit": "m"}}}, "'x7'"),
    ],
)
def test_a_bad_parameter_is_named_when_it_is_used(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        number(**parameters).fit(*line())
    assert isinstance(caught.value, OptionError)


def test_parameters_may_come_out_of_arrays_and_a_generator_goes_on() -> None:
    estimator = number(hidden=np.array([4, 3]), epochs=np.arange(3)[2], learning_rate=np.float32(0.01)).fit(*line())
    assert estimator.posterior_.facts["architecture"]["hidden"] == [4, 3]
    assert estimator.posterior_.facts["training"]["options"]["epochs"] == 2
    generator, (X, y) = np.random.RandomState(5), line(20)
    states = (np.int64(5), np.int64(5), generator, generator)
    first, second, third, fourth = (number(random_state=state).fit(X, y).predict(X) for state in states)
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(third, fourth)


def test_weights_make_rows_important_and_are_no_feature() -> None:
    x = np.random.default_rng(0).normal(size=(120, 1))
    y, weights = np.tile([0.0, 4.0], 60) + 0.1 * x[:, 0], np.tile([9.0, 1.0], 60)
    model = number(epochs=30, members=2).fit(x, y, sample_weight=weights)
    assert model.n_features_in_ == 1
    assert model.posterior_.location == pytest.approx(np.average(y, weights=weights))
    frame = pd.DataFrame({"x0": x[:, 0], "w": weights})
    named = number(epochs=30, members=2, weight="w").fit(frame, y)
    np.testing.assert_array_equal(named.predict(frame), model.predict(x))
    even, weighted = (classes(epochs=60).fit(x, y > 2.0, sample_weight=each) for each in (None, weights))
    assert even.predict_proba(x)[:, 0].mean() == pytest.approx(0.5, abs=0.1)
    assert weighted.predict_proba(x)[:, 0].mean() > 0.75


def test_groups_are_held_out_together_and_are_no_feature() -> None:
    X, y = line()
    groups = np.repeat(np.arange(20), 3)
    model = number(members=2).fit(X, y, groups=groups)
    assert model.n_features_in_ == 3
    frame = pd.DataFrame(X, columns=["x0", "x1", "x2"]).assign(subject=groups)
    alike(model.predict(X), number(members=2, group=("subject",)).fit(frame, y).predict(frame))


@pytest.mark.parametrize(
    ("parameters", "given", "message"),
    [
        ({}, {"groups": [1, 2]}, "^groups: one for each of the 60 rows"),
        ({"group": ("x0",)}, {"groups": range(60)}, "^group: can't be combined with groups"),
        ({"time": "row-order"}, {"groups": range(60)}, "^time: can't be combined with groups"),
        ({}, {"sample_weight": np.ones((60, 2))}, "weight"),
        ({}, {"sample_weight": np.full(60, np.nan)}, "weight"),
    ],
)
def test_groups_and_weights_that_can_not_be_used_are_refused(
    parameters: dict[str, Any], given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        number(**parameters).fit(*line(), **given)


def test_a_fit_is_that_of_murho_train(flats: pd.DataFrame) -> None:
    table, new = make_table(), make_table(rows=30, seed=9)
    names = {parameter: option for option, parameter in RENAMED.items()}
    options = make_options({names.get(name, name): value for name, value in NUMBER.items()} | {"seed": 3})
    posterior = train(table, "rent", options, reporter=Notes()).posterior
    estimator = number(random_state=3).fit(*frame_of(without="rent"))
    assert estimator.posterior_.schema == posterior.schema
    expected = posterior.predict(columns_from_table(new, posterior.schema), PredictOptions())
    alike(estimator.predict(flats), expected.mean)
    alike(estimator.predict_quantiles(flats, np.array([0.95, 0.05])), expected.percentiles[:, [2, 0]])


def test_kinds_and_units_can_be_given_and_what_is_no_feature_is_left_out() -> None:
    X, y = line(30)
    X[:, 0] = np.round(X[:, 0])
    estimator = number(columns={"x0": {"kind": "categorical"}, "x1": {"unit": "m"}}, ignore=("x2",)).fit(X, y)
    first, second = estimator.posterior_.schema.features
    assert (first.kind, second.kind, second.unit) == (FeatureKind.CATEGORICAL, FeatureKind.NUMERIC, "m")
    frame = pd.DataFrame(line()[0], columns=["a", "b", "c"]).assign(name=[f"flat {i}" for i in range(60)])
    with pytest.warns(UserWarning, match="column 'name' is no feature: it identifies rows"):
        number().fit(frame, line()[1])


def test_durations_are_seconds_whatever_their_resolution() -> None:
    X, _ = line()
    hours = pd.Series(pd.to_timedelta(10.0 + X[:, 0], unit="h"))
    for resolution in ("ns", "us", "s"):
        model = number(members=2, epochs=1).fit(X, hours.astype(f"timedelta64[{resolution}]"))
        assert model.posterior_.location == pytest.approx(hours.dt.total_seconds().mean(), abs=1.0)


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.ones((30, 2)), np.arange(30), "no column is left as a feature.*'x0'"),
        (line(30)[0], np.full(30, 3.0), "the target 'y' is 3 in every row"),
        (line(20)[0], ["a", "b"] * 10, "y holds text: BBBRegressor predicts numbers, BBBClassifier predicts classes"),
        (line(20)[0], pd.Series(pd.date_range("2020-01-01", periods=20, tz="UTC")), "y holds dates, and a number must"),
        (pd.DataFrame({"a": [1.0, np.inf]}), [0, 1], "column 'a', row 2"),
    ],
)
def test_data_that_can_not_be_used_are_value_errors(X: Any, y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        number().fit(X, y)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (["a"] * 20, "y has one class, 'a', in every row"),
        (["a", None] * 10, "^y: a class is missing"),
        (np.linspace(0.0, 1.0, 20), "Unknown label type"),
        ([f"name {number}" for number in range(1_001)], r"1,001 different classes.*BBBRegressor predicts numbers"),
    ],
)
def test_classes_that_can_not_be_learned_are_value_errors(y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        classes().fit(line(len(y))[0], y)


@pytest.mark.parametrize(("rows", "members"), [(2, 1), (5, 3), (25, 3)])
def test_few_rows_and_whole_numbers_are_enough(rows: int, members: int) -> None:
    X = np.arange(rows, dtype=np.float64)[:, None]
    mean, std = number(members=members).fit(X, np.arange(rows) % 2).predict(X, return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0.0).all()


def test_missing_cells_are_answered_unless_they_shall_be_refused() -> None:
    X, y = line()
    X[::5, 0] = np.nan
    accepting, refusing = number().fit(X, y), number(missing="refuse").fit(X, y)
    X[7, 1] = np.nan  # in training x1 was complete
    assert np.isfinite(accepting.predict(X)).all()
    with pytest.raises(ValueError, match="column 'x1', row 8: the cell is missing"):
        refusing.predict(X)


def test_an_interrupted_fit_is_interrupted_and_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: object, epoch: Epoch) -> None:
        if epoch.number == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Reporter, "epoch", interrupt)
    estimator = number()
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(*line())
    assert np.isfinite(estimator.predict(line()[0])).all()
    with pytest.warns(UserWarning, match="interrupted"):
        murho.train(make_table(), "rent", **EITHER)


def test_it_is_silent_unless_it_is_verbose(capsys: pytest.CaptureFixture[str]) -> None:
    number().fit(*line(20))
    assert capsys.readouterr() == ("", "")
    number(verbose=True).fit(*line(20))
    assert "training" in capsys.readouterr().err


def test_spread_and_quantiles_come_with_the_mean_also_through_a_pipeline(
    of_rent: BBBRegressor, flats: pd.DataFrame
) -> None:
    mean, std, quantiles = of_rent.predict(flats, return_std=True, quantiles=(0.1, 0.9))
    alike(mean, of_rent.predict(flats))
    alike(std, of_rent.predict(flats, return_std=True)[1])
    alike(quantiles, of_rent.predict_quantiles(flats, (0.1, 0.9)))
    answer = of_rent.predict_dist(flats)
    alike(answer.mean, mean)
    alike(answer.std, std)
    alike(answer.ppf(0.1), quantiles[:, 0])
    for levels in ((5, 50, 95), (np.nan,), 0.5):
        with pytest.raises(ValueError, match="strictly between 0 and 1"):
            of_rent.predict_quantiles(flats, levels)
    X, y = line()
    pipeline = make_pipeline(StandardScaler(), number()).fit(X, y)
    mean, std, quantiles = pipeline.predict(X, return_std=True, quantiles=(0.5,))
    assert (mean.shape, std.shape, quantiles.shape) == ((60,), (60,), (60, 1))
    alike(pipeline[-1].predict_dist(pipeline[:-1].transform(X)).median(), quantiles[:, 0])


def test_classes_keep_their_type_and_order(of_code: BBBClassifier, rents: pd.DataFrame) -> None:
    target = of_code.posterior_.schema.target
    assert (target.name, target.classes) == ("code", ("10", "2", "30"))
    assert of_code.classes_.tolist() == [2, 10, 30]
    proba, predicted, sets = of_code.predict_proba(rents), of_code.predict(rents), of_code.predict_set(rents, 0.5)
    assert predicted.dtype == of_code.classes_.dtype
    np.testing.assert_array_equal(predicted, of_code.classes_[proba.argmax(axis=1)])
    np.testing.assert_array_equal(of_code.predict_log_proba(rents), np.log(proba))
    truth = frame_of(30, 9, without="district")[1]
    assert log_loss(truth, proba, labels=of_code.classes_) < np.log(3.0) + 0.2  # not those of another class
    assert (sets.shape, str(sets.dtype)) == ((30, 3), "bool")
    assert sets.any(axis=1).all()
    assert (of_code.predict_set(rents, coverage=0.99) >= sets).all()
    np.testing.assert_allclose(of_code.sample_functions(rents).mean(axis=1), proba, atol=1e-6)
    answer = of_code.predict_dist(rents)
    np.testing.assert_array_equal(answer.classes, of_code.classes_)
    alike(answer.probability(10), proba[:, 1])
    with pytest.raises(ValueError, match=r"^coverage: .*0\.95, not 95"):
        of_code.predict_set(rents, coverage=95)


@pytest.mark.parametrize(
    "make",
    [
        lambda y: y.astype(bool),
        lambda y: np.array(["1.0", "1"])[y],  # the model would take them for one
        lambda y: np.array(["", "a"])[y],
        lambda y: np.array(["2020-01-02", "2021-01-02"], dtype="datetime64[D]")[y],
        lambda y: pd.Series(np.array(["no", "yes"])[y], dtype="category"),
    ],
)
def test_classes_may_come_as_many_things(make: Callable[[np.ndarray], Any]) -> None:
    X, y = parts()
    target = make(y)
    estimator = classes().fit(X, target)
    assert estimator.score(X, target) > 0.8
    np.testing.assert_array_equal(estimator.classes_, np.unique(np.asarray(target)))


def test_without_draws_there_is_the_mean_network_alone(fitted: tuple[Estimator, pd.DataFrame]) -> None:
    estimator, rows = copy.deepcopy(fitted[0]).set_params(samples=0), fitted[1]
    asks: list[Callable[[], object]] = [lambda: estimator.sample_functions(rows)]
    if isinstance(estimator, BBBRegressor):
        columns = columns_from_table(make_table(rows=30, seed=9), estimator.posterior_.schema)
        expected = estimator.posterior_.predict(columns, PredictOptions(samples=0)).mean
        np.testing.assert_array_equal(estimator.predict(rows), expected)
        asks += [lambda: estimator.predict(rows, return_std=True), lambda: estimator.predict_quantiles(rows)]
        asks.append(lambda: estimator.sample_functions(rows, samples=2.5))  # type: ignore[arg-type]
    else:
        np.testing.assert_allclose(estimator.predict_proba(rows).sum(axis=1), 1.0)
        asks.append(lambda: estimator.predict_set(rows))
    for ask in asks:
        with pytest.raises(ValueError, match=r"^samples: a whole number, at least 1"):
            ask()


def test_pipelines_searches_and_cross_validation_work() -> None:
    X, y = line()
    pipeline = make_pipeline(StandardScaler(), number())
    assert cross_val_score(pipeline, X, y, cv=3).min() > 0.5
    search = GridSearchCV(pipeline, {"bbbregressor__epochs": [1, 20]}, cv=2).fit(X, y)
    assert search.best_params_ == {"bbbregressor__epochs": 20}
    search = GridSearchCV(classes(), {"epochs": [1, 20]}, cv=2, scoring="neg_log_loss").fit(*parts(count=3))
    assert search.best_params_ == {"epochs": 20}


def test_copies_and_pickles_answer_alike(fitted: tuple[Estimator, pd.DataFrame], tmp_path: Path) -> None:
    estimator, rows = fitted
    joblib.dump(estimator, tmp_path / "fitted.joblib")
    for again in (
        copy.deepcopy(estimator),
        pickle.loads(pickle.dumps(estimator)),  # noqa: S301 - our own
        joblib.load(tmp_path / "fitted.joblib", mmap_mode="r"),
    ):
        alike(answers(again, rows), answers(estimator, rows))
    assert pickle.loads(pickle.dumps(number())).get_params() == number().get_params()  # noqa: S301 - our own


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there")
def test_a_pickle_from_a_gpu_is_read_without_one(of_rent: BBBRegressor, flats: pd.DataFrame) -> None:
    elsewhere = copy.deepcopy(of_rent)
    elsewhere.device = "cuda"
    again = pickle.loads(pickle.dumps(elsewhere))  # noqa: S301 - our own
    alike(again.predict(flats), of_rent.predict(flats))


def test_what_is_saved_is_a_checkpoint(fitted: tuple[Estimator, pd.DataFrame], tmp_path: Path) -> None:
    estimator, _ = fitted
    assert estimator.save(tmp_path, "flats") == tmp_path / "flats" / "1"
    second = estimator.save(str(tmp_path), "flats")
    assert second == tmp_path / "flats" / "2"
    again = Posterior.load(second)
    assert again.schema == estimator.posterior_.schema
    assert all(torch.equal(tensor, again.tensors[name]) for name, tensor in estimator.posterior_.tensors.items())
    with pytest.raises(CheckpointError, match="can't be the name"):
        estimator.save(tmp_path, "../flats")


def test_weights_and_groups_are_routed_through_a_pipeline_of_frames() -> None:
    X, y = line()
    groups, weights = np.arange(len(y)) % 6, np.linspace(0.5, 1.5, len(y))
    with config_context(enable_metadata_routing=True, transform_output="pandas"):
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        model = number(epochs=3).set_fit_request(sample_weight=True, groups=True)
        pipeline = make_pipeline(scaler, model.set_score_request(sample_weight=True))
        scores = cross_validate(
            pipeline,
            pd.DataFrame(X, columns=["a", "b", "c"]),
            y,
            cv=GroupKFold(2),
            params={"sample_weight": weights, "groups": groups},
            return_estimator=True,
        )
    (fitted, _) = scores["estimator"]
    assert fitted[-1].posterior_.spec.training["options"]["group"] == ["groups"]
    assert fitted[-1].posterior_.spec.training["options"]["weight"] == "sample_weight"
    assert list(fitted[-1].feature_names_in_) == ["a", "b", "c"]


def test_other_frames_are_fitted_as_those_of_pandas(of_rent: BBBRegressor) -> None:
    frame, y = frame_of(without="rent")
    again = clone(of_rent).set_params(columns=None).fit(pl.from_pandas(frame), y)
    assert again.posterior_.schema.features == of_rent.posterior_.schema.features
    alike(again.predict(pa.Table.from_pandas(frame)), of_rent.predict(frame))


def test_before_a_fit_there_is_no_answer(tmp_path: Path) -> None:
    asks: list[Callable[[], object]] = [
        lambda: number().predict_quantiles([[1.0]]),
        lambda: classes().predict_proba([[1.0]]),
        lambda: number().save(tmp_path, "line"),
    ]
    for ask in asks:
        with pytest.raises(NotFittedError):
            ask()
