"""`BBBRegressor` and `BBBClassifier`: `murho train` as scikit-learn estimators, from encoding to calibrated answers.

Their ``save`` writes the same checkpoints as ``murho train``; ``murho serve`` can serve them.

The classes of a scikit-learn target are the distinct values of y, sorted, of any type. Their names in the model are
sorted texts in canonical form (`model.tables.cells`), in which 1, 1.0 and "1" are one. Distinct values must get
distinct names.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np
import pyarrow as pa
import torch
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import check_consistent_length
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from murho.model.checkpoint.checkpoint import write_checkpoint
from murho.model.checkpoint.posterior import Posterior
from murho.model.checkpoint.spec import ModelSpec
from murho.model.checkpoint.stores import directory_at
from murho.model.errors import CheckpointError, OptionError
from murho.model.predictive.prediction import PredictOptions
from murho.model.python.answers import (
    ClassDistribution,
    DataError,
    Distribution,
    NumberDistribution,
    ParameterError,
    probability_levels,
    require_whole,
)
from murho.model.python.estimator_parameters import TrainingParameters, as_value_errors
from murho.model.python.interface import version_directory, warn_of_left_out, with_declared_kinds
from murho.model.python.progress import TerminalReporter
from murho.model.runtime import resolve_device, use_threads_for_fitting
from murho.model.tables.cells import canonical_category
from murho.model.tables.frames import is_frame, table_from_frame, table_from_matrix, target_name, unnamed
from murho.model.tables.schema_inference import MOST_CLASSES
from murho.model.training.candidates import Reporter
from murho.model.training.prepared_table import OF_NUMBERS
from murho.model.training.train import train

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import ArrayLike, NDArray

    from murho.model.training.options import TrainOptions

__all__ = [
    "BBBClassifier",
    "BBBEstimator",
    "BBBRegressor",
    "ClassLabels",
]


AS_JSON = "biuf"
"""Kinds of dtype whose values JSON keeps, beside text."""


@dataclass(frozen=True, eq=False)
class ClassLabels:
    """Values of C classes and their names in the model.

    Attributes:
        values: The classes of y, ``[C]``, sorted, of the dtype of y.
        names: The name of each in the model.
    """

    values: NDArray[Any]
    names: tuple[str, ...]

    @classmethod
    def of(cls, values: NDArray[Any]) -> Self:
        """Name the classes ``[C]``: by their canonical texts, numbered where two of them would be the same."""
        names: list[str] = []
        for value in values.tolist():
            name = text = _text(value)
            number = 1
            while name in names:
                number += 1
                name = f"{text} ({number})"
            names.append(name)
        return cls(values, tuple(names))

    @property
    def places(self) -> NDArray[np.intp]:
        """Index of each class among the model's classes, ``[C]``."""
        ranks: NDArray[np.intp] = np.argsort(np.argsort(np.array(self.names, dtype=object)))
        return ranks

    def to_json(self) -> dict[str, Any]:
        """As JSON; values that it can't keep are left out, and their names stand for them."""
        kind, values = self.values.dtype, self.values.tolist()
        if all(isinstance(value, str) for value in values):
            return {"values": values, "dtype": "object" if kind.kind == "O" else "str"}
        return {"values": values, "dtype": kind.str} if kind.kind in AS_JSON else {}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], classes: tuple[str, ...]) -> Self:
        """The inverse of `to_json`.

        Args:
            data: The JSON.
            classes: The model's classes, sorted.

        Raises:
            ValueError: The names of the values are not the classes of the model.
        """
        found = cls.of(np.array(data.get("values", classes), dtype=data.get("dtype")))
        if tuple(sorted(found.names)) != classes:
            raise ValueError("the classes of the estimator are not those of the model")
        return found


def _text(value: Any) -> str:
    try:
        text = canonical_category(value)
    except ValueError:
        text = str(value).strip()
    return text or "(empty)"  # an empty text would be a missing cell


Answers = TypeVar("Answers", bound=Distribution)


class BBBEstimator(TrainingParameters):
    """An estimator of the predictive distribution of a target; its kinds say what the target is."""

    def save(self, directory: str | Path, name: str) -> Path:
        """Write the fit as the next version of a checkpoint, for ``murho serve``, ``predict`` and ``evaluate``.

        Args:
            directory: Directory of checkpoints; created if it does not exist.
            name: Name of the checkpoint.

        Returns:
            The directory of the version, ``directory/name/version``.

        Raises:
            CheckpointError: The name is invalid, or the directory can't be written.
        """
        check_is_fitted(self)
        return write_checkpoint(directory_at(directory), name, self.posterior_.spec, self.posterior_.tensors)

    @classmethod
    def from_checkpoint(cls, path: str | Path, *, device: str = "cpu") -> Self:
        """Load a fitted estimator from a checkpoint that `save` or ``murho train`` wrote.

        The parameters are those of the fit in the checkpoint, so a clone of the estimator fits in the same way.

        Args:
            path: ``NAME/VERSION``, or ``NAME`` for the latest version.
            device: Where to compute.

        Raises:
            CheckpointError: Something is missing or damaged, or the target is of the other kind; the message says what.
        """
        directory = version_directory(Path(path))
        with as_value_errors():
            posterior = Posterior.load(directory, resolve_device(device))
        spec = posterior.spec
        if (spec.schema.target.classes is None) != (cls._task == "regression"):
            kind, other = ("numbers", "BBBRegressor") if cls._task != "regression" else ("classes", "BBBClassifier")
            raise CheckpointError(f"{directory} predicts {kind}: load it with {other}.from_checkpoint")
        features = [feature.name for feature in spec.schema.features]
        try:
            record = spec.records.get("estimator", {"columns": features, "named": True})
            columns, named = [str(name) for name in record["columns"]], bool(record["named"])
            estimator = cls(**cls.parameters_of(spec.training["options"]), device=device)
            estimator._read_record(record, spec)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{directory}: estimator or training.options is malformed: {error!r}") from error
        estimator.n_features_in_ = len(columns)
        if named:
            estimator.feature_names_in_ = np.array(columns, dtype=object)
        estimator.posterior_ = posterior
        return estimator

    @abstractmethod
    def _read_target(self, y: Any) -> pa.Array:
        """The target as a column of a table ``[N]``, after the checks of scikit-learn."""

    def _record(self) -> dict[str, Any]:
        """What the checkpoint must know of the target to become this estimator again."""
        return {}

    def _read_record(self, record: Mapping[str, Any], spec: ModelSpec) -> None:
        """The inverse of `_record`; a checkpoint of ``murho train`` has nothing of it."""

    def _fit(self, X: Any, y: Any, sample_weight: Any, groups: Any) -> Self:
        options = self.train_options()
        targets = self._read_target(y)
        table = self._table(X, reset=True)
        check_consistent_length(table, targets)
        target = target_name(y, table.column_names)
        with as_value_errors():
            device = resolve_device(self.device)
            options = with_declared_kinds(options, table)
            if sample_weight is not None:
                weights = np.asarray(sample_weight, dtype=np.float64)
                options, table = _with_column(options, table, weights, "sample_weight", ("weight",))
            if groups is not None:
                labels = np.array([str(value) for value in np.asarray(groups).tolist()])
                options, table = _with_column(options, table, labels, "groups", ("group", "time"))
            table = table.append_column(target, targets)
            with use_threads_for_fitting(device), TerminalReporter() if self.verbose else Reporter() as reporter:
                trained = train(table, target, options, reporter=reporter, device=device)
        record = {"columns": self._names(), "named": hasattr(self, "feature_names_in_"), **self._record()}
        spec = replace(trained.spec, records={**trained.spec.records, "estimator": record})
        # What is given to `fit` is no parameter of the estimator: a copy of it has no such column.
        of_fit: dict[str, Any] = {} if sample_weight is None else {"weight": None}
        of_fit |= {} if groups is None else {"group": []}
        if of_fit:
            spec = replace(spec, training={**spec.training, "options": {**spec.training["options"], **of_fit}})
        self.posterior_ = Posterior(spec, trained.posterior.tensors, device=device)
        if spec.training["interrupted"]:
            raise KeyboardInterrupt
        warn_of_left_out(spec.schema, stacklevel=3)
        return self

    def _names(self) -> list[str]:
        """The names of the columns of X."""
        return [str(name) for name in getattr(self, "feature_names_in_", unnamed(self.n_features_in_))]

    def _table(self, X: Any, *, reset: bool) -> pa.Table:
        """X as a table. With ``reset``, later X must have the columns of this one."""
        least = 2 if reset else 1
        if not is_frame(X):
            rules = {"ensure_all_finite": "allow-nan", "ensure_min_samples": least}
            return table_from_matrix(validate_data(self, X, reset=reset, **rules), self._names())
        rows, columns = X.shape
        if rows < least or not columns:
            found = f"{rows} sample(s) and {columns} feature(s)"
            raise DataError(f"Found a data frame with {found} while at least {least} and 1 are required.")
        validate_data(self, X, reset=reset, skip_check_array=True)
        with as_value_errors():
            return table_from_frame(X, self._names())

    def _asked(
        self, X: Any, kind: Callable[..., Answers], *more: Any, samples: int | None = None, least: int = 1
    ) -> Answers:
        """The distribution of the target for the rows of X, of at least so many draws."""
        check_is_fitted(self)
        count = require_whole(self.samples if samples is None else samples, "samples", least)
        table = self._table(X, reset=False)
        with as_value_errors():
            return kind(self.posterior_, table, PredictOptions(count), *more)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """The state for a pickle, with the posterior as the content of ``model.json`` and arrays."""
        state = dict(super().__getstate__())
        if "posterior_" in state:
            posterior = state.pop("posterior_")
            arrays = {name: tensor.numpy() for name, tensor in posterior.tensors.items()}
            state["_checkpoint"] = (posterior.facts, arrays)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        checkpoint = state.pop("_checkpoint", None)
        super().__setstate__(state)
        if checkpoint is None:
            return
        facts, arrays = checkpoint
        try:
            device = resolve_device(self.device)
        except OptionError:  # pickled with a GPU, and there is none here
            device = "cpu"
        # Copies: joblib maps files into memory read-only, and PyTorch warns about read-only arrays.
        tensors = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
        self.posterior_ = Posterior(ModelSpec.from_json(facts), tensors, device=device)


def _with_column(
    options: TrainOptions, table: pa.Table, values: NDArray[Any], argument: str, names: tuple[str, ...]
) -> tuple[TrainOptions, pa.Table]:
    """Options and table with values given to `fit` as one more column.

    Args:
        options: The options.
        table: Its rows, ``[N]``.
        values: ``[N]``.
        argument: The argument of `fit`, and the name of the column if the table has none of this name.
        names: The option that names such a column, then those that can't be combined with it.

    Raises:
        DataError: There is not one value for each row.
        ParameterError: A parameter says the same.
    """
    for name in names:
        if getattr(options, name):
            raise ParameterError(
                f"{name}: can't be combined with {argument}, which is given to fit: give one of the two"
            )
    if values.shape != (table.num_rows,):
        raise DataError(f"{argument}: one for each of the {table.num_rows} rows, not {values.shape}")
    column = argument
    while column in table.column_names:
        column += "_"
    named: Any = column if names[0] == "weight" else (column,)
    return options.model_copy(update={names[0]: named}), table.append_column(column, pa.array(values))


class BBBRegressor(RegressorMixin, BBBEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A Bayes-by-Backprop regressor: predictions with error bars, as a scikit-learn estimator.

    X may be numeric (the features are then named x0, x1, …) or a data frame of pandas, polars or pyarrow. Text,
    category, boolean and date columns of a data frame become features of these kinds. Missing values are allowed in
    columns with missing values in training. Constant columns are left out.

    Args:
        [options of a training]
        samples: Draws per prediction, S. 0 gives the mean of the mu-only network, without error bars.
        random_state: Seed of the split, the initial weights, the minibatches and the draws. An int s gives the same
            fit each time, equal to that of ``murho train --seed s``.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:1``.
        verbose: Whether to show the progress of a fit on stderr.

    Attributes:
        posterior_: The fitted `model.checkpoint.posterior.Posterior`. ``posterior_.facts`` has the content of
            ``model.json``, such as the held-out metrics and the schema.
        n_features_in_: Number of columns of X.
        feature_names_in_: Names of the columns of X, if X was a data frame and all its column names were strings.
    """

    _task: ClassVar[str] = "regression"

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Fit networks to rows, calibrate their bands, and score them on held-out rows.

        Args:
            X: Features ``[N, columns]``: a data frame, or numbers with NaN for missing. N is at least 2.
            y: Targets ``[N]``, numbers, not all the same. The name of a Series becomes the name of the target.
            sample_weight: Weights of the rows, ``[N]``, from 0 on: how important each row is, see the parameter
                ``weight``, which names a column of X instead. None: all are equal.
            groups: What each row belongs to, ``[N]``: rows of one group are held out together, see the parameter
                ``group``, which names a column of X instead. None: every row stands for itself.

        Returns:
            The estimator itself.

        Raises:
            ValueError: X, y or a parameter can't be used; the message says where and why.
            FitError: The fit became non-finite.
            KeyboardInterrupt: The fit was interrupted. The estimator is fitted, with the best parameters so far.
        """
        return self._fit(X, y, sample_weight, groups)

    def predict(self, X: Any, return_std: bool = False, quantiles: ArrayLike | None = None) -> Any:
        """The mean of the predictive and, if asked for, its standard deviation and quantiles, both calibrated.

        Args:
            X: Rows ``[B, columns]``, as in `fit`.
            return_std: Whether to return the standard deviation too.
            quantiles: K levels, strictly between 0 and 1; None: no quantiles.

        Returns:
            Mean ``[B]``, or a tuple of the mean, the standard deviation ``[B]`` if asked for, and the quantiles
            ``[B, K]`` if asked for; in the target's unit.

        Raises:
            ValueError: X or a level can't be used, or there are no draws for what is asked (``samples`` is 0).
        """
        levels = np.empty(0) if quantiles is None else probability_levels(quantiles, "quantiles")
        if levels.ndim != 1:
            raise ParameterError(f"quantiles: a list of levels strictly between 0 and 1, not {quantiles!r}")
        asked = self._asked(X, NumberDistribution, least=int(return_std or quantiles is not None))
        answer = asked.answer(percentiles=tuple((100.0 * levels).tolist()))
        parts = [answer.mean] + ([answer.std] if return_std else [])
        if quantiles is not None:
            parts.append(np.empty((len(answer), 0)) if answer.percentiles is None else answer.percentiles)
        return parts[0] if len(parts) == 1 else tuple(parts)

    def predict_quantiles(self, X: Any, quantiles: ArrayLike = (0.05, 0.5, 0.95)) -> NDArray[np.float64]:
        """Quantiles of the predictive; calibrated if the training table had enough rows (50).

        Args:
            X: Rows ``[B, columns]``, as in `fit`.
            quantiles: K levels, strictly between 0 and 1.

        Returns:
            ``[B, K]``, in the target's unit and in the order of the levels.

        Raises:
            ValueError: X or a level can't be used.
        """
        values: NDArray[np.float64] = self.predict(X, quantiles=quantiles)[1]
        return values

    def predict_dist(self, X: Any) -> NumberDistribution:
        """The predictive distribution of every row: ``mean``, ``std``, ``ppf``, ``cdf``, ``sample`` and more.

        Args:
            X: Rows ``[B, columns]``, as in `fit`.

        Raises:
            ValueError: X can't be used.
        """
        return self._asked(X, NumberDistribution, least=0)

    def sample_functions(self, X: Any, samples: int | None = None) -> NDArray[np.float64]:
        """Function values of draws from the posterior.

        Column k is one function, the same for all rows and calls, so differences between rows are meaningful.

        Args:
            X: Rows ``[B, columns]``, as in `fit`.
            samples: S; by default the parameter of the estimator.

        Returns:
            ``[B, S]``, in the target's unit, without observation noise.

        Raises:
            ValueError: X or ``samples`` can't be used.
        """
        return self._asked(X, NumberDistribution, samples=samples).functions()

    def _read_target(self, y: Any) -> pa.Array:
        try:
            return pa.array(np.asarray(validate_data(self, y=y, y_numeric=True), dtype=np.float64))
        except ValueError as error:
            if "could not convert string" not in str(error):
                raise
            raise DataError("y holds text: BBBRegressor predicts numbers, BBBClassifier predicts classes") from error


class BBBClassifier(ClassifierMixin, BBBEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A Bayes-by-Backprop classifier: calibrated probabilities and prediction sets, as a scikit-learn estimator.

    X is as in `BBBRegressor`. y may hold any values that can be sorted: text, whole numbers, truth values.

    Args:
        [options of a training]
        samples: Draws per prediction, S. 0 gives the probabilities of the mu-only network, which are not calibrated.
        random_state: Seed of the split, the initial weights, the minibatches and the draws. An int s gives the same
            fit each time, equal to that of ``murho train --seed s``.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:1``.
        verbose: Whether to show the progress of a fit on stderr.

    Attributes:
        classes_: The C classes: the distinct values of y, sorted.
        posterior_: The fitted `model.checkpoint.posterior.Posterior`, whose classes are texts.
            ``posterior_.facts`` has the content of ``model.json``, such as the held-out metrics and the schema.
        n_features_in_: Number of columns of X.
        feature_names_in_: Names of the columns of X, if X was a data frame and all its column names were strings.
    """

    _task: ClassVar[str] = "classification"
    _without: ClassVar[frozenset[str]] = frozenset(OF_NUMBERS)

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Fit networks to rows, calibrate their probabilities, and score them on held-out rows.

        Args:
            X: Features ``[N, columns]``: a data frame, or numbers with NaN for missing. N is at least 2.
            y: Classes ``[N]``, at least two different ones. The name of a Series becomes the name of the target.
            sample_weight: Weights of the rows, ``[N]``, from 0 on: how important each row is, see the parameter
                ``weight``, which names a column of X instead. None: all are equal.
            groups: What each row belongs to, ``[N]``: rows of one group are held out together, see the parameter
                ``group``, which names a column of X instead. None: every row stands for itself.

        Returns:
            The estimator itself.

        Raises:
            ValueError: X, y or a parameter can't be used; the message says where and why.
            FitError: The fit became non-finite.
            KeyboardInterrupt: The fit was interrupted. The estimator is fitted, with the best parameters so far.
        """
        return self._fit(X, y, sample_weight, groups)

    def predict(self, X: Any) -> NDArray[Any]:
        """The likeliest class of every row.

        Args:
            X: Rows ``[B, columns]``, as in `fit`.

        Returns:
            ``[B]``, values of y.

        Raises:
            ValueError: X can't be used.
        """
        return self.predict_dist(X).mode()

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities of the classes; calibrated if the training table had enough rows (50).

        Args:
            X: Rows ``[B, columns]``, as in `fit`.

        Returns:
            ``[B, C]``, in the order of ``classes_``.

        Raises:
            ValueError: X can't be used.
        """
        return self.predict_dist(X).probabilities

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """Logarithm of `predict_proba`, ``[B, C]``."""
        logarithms: NDArray[np.float64] = np.log(self.predict_proba(X))
        return logarithms

    def predict_set(self, X: Any, coverage: float = 0.9) -> NDArray[np.bool_]:
        """Prediction sets, which hold the class of a new row with a probability; never empty.

        Args:
            X: Rows ``[B, columns]``, as in `fit`.
            coverage: The probability, strictly between 0 and 1.

        Returns:
            Whether each class is in the set, ``[B, C]``, bool, in the order of ``classes_``.

        Raises:
            ValueError: X or ``coverage`` can't be used, or ``samples`` is 0.
        """
        return self._distribution(X).prediction_set(coverage)

    def predict_dist(self, X: Any) -> ClassDistribution:
        """The predictive distribution of every row: ``probabilities``, ``entropy``, ``prediction_set`` and more.

        Args:
            X: Rows ``[B, columns]``, as in `fit`.

        Raises:
            ValueError: X can't be used.
        """
        return self._distribution(X, least=0)

    def sample_functions(self, X: Any, samples: int | None = None) -> NDArray[np.float64]:
        """Probabilities of the classes under draws from the posterior.

        Draw k is one function, the same for all rows and calls, so differences between rows are meaningful.

        Args:
            X: Rows ``[B, columns]``, as in `fit`.
            samples: S; by default the parameter of the estimator.

        Returns:
            ``[B, S, C]``, with the mean `predict_proba` over draws.

        Raises:
            ValueError: X or ``samples`` can't be used.
        """
        return self._distribution(X, samples=samples).functions()

    def _distribution(self, X: Any, *, samples: int | None = None, least: int = 1) -> ClassDistribution:
        check_is_fitted(self)
        labels = self._labels
        return self._asked(X, ClassDistribution, labels.values, labels.places, samples=samples, least=least)

    def _read_target(self, y: Any) -> pa.Array:
        values = validate_data(self, y=y)
        if values.dtype == object and any(value is None for value in values):
            raise DataError("y: a class is missing; leave out rows without one")
        if values.dtype.kind in "fO":  # others are classes, and scikit-learn would warn of many before the error below
            check_classification_targets(values)
        classes, codes = np.unique(values, return_inverse=True)
        if not len(classes):
            raise DataError("y: found 0 sample(s): give a class for each row of X")
        if len(classes) < 2:
            raise DataError(f"y has one class, {classes.tolist()[0]!r}, in every row: give at least two classes")
        if len(classes) > MOST_CLASSES:
            raise DataError(
                f"y has {len(classes):,} different classes: at most {MOST_CLASSES:,} can be told apart; BBBRegressor "
                "predicts numbers"
            )
        self._set_labels(ClassLabels.of(classes))
        return pa.array(np.array(self._labels.names, dtype=object)[codes], pa.string())

    def _set_labels(self, labels: ClassLabels) -> None:
        self._labels, self.classes_ = labels, labels.values

    def _record(self) -> dict[str, Any]:
        return {"classes": self._labels.to_json()}

    def _read_record(self, record: Mapping[str, Any], spec: ModelSpec) -> None:
        classes = spec.schema.target.classes or ()
        self._set_labels(ClassLabels.from_json(record.get("classes", {}), classes))
