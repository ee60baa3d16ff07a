"""`BBBRegressor` and `BBBClassifier`: `murho train` as scikit-learn estimators, from encoding to calibrated answers.

Their ``save`` writes the same checkpoints as ``murho train``; ``murho serve`` can serve them.

The classes of a scikit-learn target are the distinct values of y, sorted, of any type. Their names in the model are
sorted texts in canonical form (`model.tables.cells`), in which 1, 1.0 and "1" are one. Distinct values must get
distinct names.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from murho.model.arrays import Array, Bools, Doubles
from murho.model.checkpoint.posterior import Posterior
from murho.model.checkpoint.spec import ModelSpec
from murho.model.checkpoint.stores import directory_at
from murho.model.errors import OptionError
from murho.model.predictive.prediction import DEFAULT_SAMPLES, PredictOptions
from murho.model.python.answers import (
    ClassDistribution,
    DataError,
    Distribution,
    NumberDistribution,
    ParameterError,
    probability_levels,
    require_whole,
)
from murho.model.python.answers import as_value_errors as _as_value_errors
from murho.model.python.interface import warn_of_left_out, with_declared_kinds
from murho.model.python.terminal_reporter import TerminalReporter
from murho.model.runtime import resolve_device
from murho.model.tables.cells import as_text
from murho.model.tables.formats import name_columns
from murho.model.tables.schema_inference import MOST_CLASSES
from murho.model.tables.table_files import is_frame, table_from_frame
from murho.model.training.candidates import Reporter
from murho.model.training.options import OptionText, TrainOptions, make_options, option_texts
from murho.model.training.prepared_table import OF_NUMBERS
from murho.model.training.train import train

RENAMED = {"seed": "random_state", "transform": "target_transform"}
"""Options with another name here: scikit-learn calls the seed ``random_state``, and ``transform`` is a method name."""
MOST_RANDOM_SEED = 2**31 - 1
OWN: dict[str, Any] = {"samples": DEFAULT_SAMPLES, "random_state": None, "device": "cpu", "verbose": False}
"""Parameters that only the estimator has, with defaults; ``random_state`` replaces the seed, with another default."""
DECIDED = frozenset({"seed", "task"})
"""Options that are no parameters: ``random_state`` stands for the seed, and the class of the estimator is the task."""
PLACE_OF_OPTIONS = re.compile(r"^( *)\[options of a training\]", re.MULTILINE)
"""The placeholder line in a docstring, for the descriptions of the options."""


as_value_errors = partial(_as_value_errors, RENAMED)
"""Errors as scikit-learn expects them, see `model.python.answers`."""

DistributionT = TypeVar("DistributionT", bound=Distribution)


class BBBEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """An estimator of the predictive distribution of a target; its kinds say what the target is.

    The parameters are as the user gave them: the fields of `TrainOptions`, and `OWN`.

    Attributes:
        _task: The task of the estimator, ``regression`` or ``classification``.
        _without: Options that mean nothing for this task, and so are no parameters.
        _options: Name of a parameter → the option that it stands for; without ``random_state``.

    Raises:
        TypeError: A parameter is unknown.
    """

    _task: ClassVar[str] = "auto"
    _without: ClassVar[frozenset[str]] = frozenset()
    _options: ClassVar[dict[str, OptionText]] = {}

    if TYPE_CHECKING:  # `_constructor` makes one for every class

        def __init__(self, **parameters: Any) -> None: ...

    def __init_subclass__(cls, **rest: Any) -> None:
        """Give the class its parameters, and insert their descriptions into its docstring."""
        super().__init_subclass__(**rest)
        left_out = DECIDED | cls._without
        cls._options = {RENAMED.get(text.name, text.name): text for text in option_texts() if text.name not in left_out}
        cls.__init__ = _constructor(  # type: ignore[method-assign]
            {name: text.default for name, text in cls._options.items()} | OWN
        )
        if cls.__doc__:  # None with python -OO
            wrapper = textwrap.TextWrapper(112, subsequent_indent="    ", break_on_hyphens=False)
            lines = [wrapper.fill(f"{name}: {' '.join(text.help.split())}") for name, text in cls._options.items()]
            # The indent depends on the version of Python: from 3.13 on the compiler removes it.
            cls.__doc__ = PLACE_OF_OPTIONS.sub(lambda place: textwrap.indent("\n".join(lines), place[1]), cls.__doc__)

    def train_options(self) -> TrainOptions:
        """Return the parameters as validated options.

        Raises:
            ParameterError: A parameter has a value that can't be used; the message names it.
        """
        values = {text.name: _plain(getattr(self, parameter)) for parameter, text in self._options.items()}
        values["columns"] = values["columns"] or {}
        # `quick` chooses what was not given; a parameter with its default counts as not given.
        defaults = TrainOptions.model_fields
        values = {name: value for name, value in values.items() if value != defaults[name].default}
        seed = self.random_state
        if not isinstance(seed, Integral):
            seed = check_random_state(seed).randint(MOST_RANDOM_SEED)
        with as_value_errors():
            return make_options(values | {"seed": int(seed), "task": self._task})

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
        return self.posterior_.save(directory_at(directory), name)

    @abstractmethod
    def _read_target(self, y: Any) -> pa.Array:
        """Return the target as a column of a table ``[N]``, after the checks of scikit-learn."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Fit networks to rows, calibrate their answers, and score them on held-out rows.

        Args:
            X: Features ``[N, columns]``: a data frame, or numbers with NaN for missing. N is at least 2.
            y: Targets ``[N]``: numbers that are not all the same; of a classifier at least two different classes. The
                name of a Series becomes the name of the target.
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
            with TerminalReporter() if self.verbose else Reporter() as reporter:
                trained = train(table, target, options, reporter=reporter, device=device)
        self.posterior_ = Posterior(trained.spec, trained.posterior.tensors, device=device)
        if trained.spec.training["interrupted"]:
            raise KeyboardInterrupt
        warn_of_left_out(trained.spec.schema, stacklevel=2)
        return self

    def _names(self) -> list[str]:
        """Return the names of the columns of X."""
        return [str(name) for name in getattr(self, "feature_names_in_", name_columns(self.n_features_in_))]

    def _table(self, X: Any, *, reset: bool) -> pa.Table:
        """X as a table. With ``reset``, later X must have the columns of this one."""
        least = 2 if reset else 1
        if not is_frame(X):
            rules = {"ensure_all_finite": "allow-nan", "ensure_min_samples": least}
            matrix = validate_data(self, X, reset=reset, **rules)
            return pa.table(dict(zip(self._names(), matrix.T.astype(np.float64, "C"), strict=True)))
        rows, columns = X.shape
        if rows < least or not columns:
            found = f"{rows} sample(s) and {columns} feature(s)"
            raise DataError(f"Found a data frame with {found} while at least {least} and 1 are required.")
        validate_data(self, X, reset=reset, skip_check_array=True)
        with as_value_errors():
            return table_from_frame(X, self._names())

    def _predict_rows(
        self, X: Any, kind: Callable[..., DistributionT], *more: Any, samples: int | None = None, least: int = 1
    ) -> DistributionT:
        """Return the distribution of the target for the rows of X, of at least so many draws."""
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
        """Return the state for a pickle, with the posterior as the content of ``model.json`` and arrays."""
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


def _constructor(defaults: Mapping[str, Any]) -> Callable[..., None]:
    """Return a constructor with parameters that have these defaults, all keyword-only."""
    signature = inspect.Signature(
        [
            inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD),
            *(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=at) for name, at in defaults.items()),
        ]
    )

    def __init__(self: BBBEstimator, **parameters: Any) -> None:  # noqa: N807 - it becomes the method
        # Stored unchanged, because `clone` compares them; `fit` validates them.
        signature.bind(self, **parameters)
        for name, default in defaults.items():
            setattr(self, name, parameters.get(name, default))

    # scikit-learn and `help` read the parameters here.
    __init__.__signature__ = signature  # type: ignore[attr-defined]  # mypy knows no attributes of functions
    return __init__


def target_name(y: Any, features: Sequence[str]) -> str:
    """Return the name of a Series, or ``y`` without one; underscores are added while a feature has that name."""
    name = getattr(y, "name", None)
    name = name if isinstance(name, str) and name.strip() else "y"
    while name in features:
        name += "_"
    return name


def _plain(value: Any) -> Any:
    """Return the value without numpy types; a search over parameters often takes its values from an array."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def _with_column(
    options: TrainOptions, table: pa.Table, values: Array, argument: str, names: tuple[str, ...]
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

    def predict(self, X: Any, return_std: bool = False, quantiles: ArrayLike | None = None) -> Any:
        """Return the mean of the predictive and, if asked for, its standard deviation and quantiles, both calibrated.

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
        asked = self._predict_rows(X, NumberDistribution, least=int(return_std or quantiles is not None))
        answer = asked.answer(percentiles=tuple((100.0 * levels).tolist()))
        parts = [answer.mean] + ([answer.std] if return_std else [])
        if quantiles is not None:
            parts.append(np.empty((len(answer), 0)) if answer.percentiles is None else answer.percentiles)
        return parts[0] if len(parts) == 1 else tuple(parts)

    def predict_quantiles(self, X: Any, quantiles: ArrayLike = (0.05, 0.5, 0.95)) -> Doubles:
        """Quantiles of the predictive; calibrated if the training table had enough rows (50).

        Args:
            X: Rows ``[B, columns]``, as in `fit`.
            quantiles: K levels, strictly between 0 and 1.

        Returns:
            ``[B, K]``, in the target's unit and in the order of the levels.

        Raises:
            ValueError: X or a level can't be used.
        """
        values: Doubles = self.predict(X, quantiles=quantiles)[1]
        return values

    def predict_dist(self, X: Any) -> NumberDistribution:
        """Return the predictive distribution of every row: ``mean``, ``std``, ``ppf``, ``cdf``, ``sample`` and more.

        Args:
            X: Rows ``[B, columns]``, as in `fit`.

        Raises:
            ValueError: X can't be used.
        """
        return self._predict_rows(X, NumberDistribution, least=0)

    def sample_functions(self, X: Any, samples: int | None = None) -> Doubles:
        """Return function values of draws from the posterior.

        Column k is one function, the same for all rows and calls, so differences between rows are meaningful.

        Args:
            X: Rows ``[B, columns]``, as in `fit`.
            samples: S; by default the parameter of the estimator.

        Returns:
            ``[B, S]``, in the target's unit, without observation noise.

        Raises:
            ValueError: X or ``samples`` can't be used.
        """
        return self._predict_rows(X, NumberDistribution, samples=samples).functions()

    def _read_target(self, y: Any) -> pa.Array:
        kind = getattr(getattr(y, "dtype", None), "kind", None) or np.asarray(y).dtype.kind
        if kind == "M":
            raise DataError("y holds dates, and a number must be predicted: give the days from a known date")
        if kind == "m":
            y = np.asarray(y) / np.timedelta64(1, "s")
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

    def predict(self, X: Any) -> Array:
        """Return the likeliest class of every row.

        Args:
            X: Rows ``[B, columns]``, as in `fit`.

        Returns:
            ``[B]``, values of y.

        Raises:
            ValueError: X can't be used.
        """
        return self.predict_dist(X).prediction

    def predict_proba(self, X: Any) -> Doubles:
        """Probabilities of the classes; calibrated if the training table had enough rows (50).

        Args:
            X: Rows ``[B, columns]``, as in `fit`.

        Returns:
            ``[B, C]``, in the order of ``classes_``.

        Raises:
            ValueError: X can't be used.
        """
        return self.predict_dist(X).probabilities

    def predict_log_proba(self, X: Any) -> Doubles:
        """Logarithm of `predict_proba`, ``[B, C]``."""
        return np.log(self.predict_proba(X))

    def predict_set(self, X: Any, coverage: float = 0.9) -> Bools:
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
        """Return the predictive distribution of every row: ``probabilities``, ``entropy``, ``prediction_set`` and more.

        Args:
            X: Rows ``[B, columns]``, as in `fit`.

        Raises:
            ValueError: X can't be used.
        """
        return self._distribution(X, least=0)

    def sample_functions(self, X: Any, samples: int | None = None) -> Doubles:
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
        return self._predict_rows(X, ClassDistribution, self.classes_, self._places, samples=samples, least=least)

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
        names: list[str] = []
        for value in classes.tolist():
            names.append(as_text(value).strip() or "(empty)")  # an empty text would be a missing cell
            while names[-1] in names[:-1]:
                names[-1] += " (2)"
        named = np.array(names, dtype=object)
        self.classes_, self._places = classes, named.argsort().argsort()
        return pa.array(named[codes], pa.string())
