"""`BBBRegressor`: `murho train` as a scikit-learn estimator, from encoding to calibrated bands.

`BBBRegressor.save` writes the same checkpoints as ``murho train``; ``murho serve`` can serve them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, overload
from warnings import warn

import numpy as np
import pyarrow as pa
import torch
from sklearn.base import RegressorMixin
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import check_is_fitted, validate_data

from murho.model.data.frames import is_frame, table_from_frame, table_from_matrix, target_name, unnamed
from murho.model.data.schema_inference import GROUPS, IGNORED, columns_from_table
from murho.model.engines.prediction import PredictOptions
from murho.model.errors import CheckpointError, OptionError
from murho.model.estimator_parameters import DataError, ParameterError, TrainingParameters, as_value_errors
from murho.model.posterior.checkpoint import FACTS_FILE, find_checkpoint, read_stored, write_checkpoint
from murho.model.posterior.model_spec import ModelSpec
from murho.model.posterior.posterior import Posterior
from murho.model.runtime.devices import resolve_device, use_threads_for_fitting
from murho.model.training.train import train

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray
    from torch import Tensor

    from murho.model.engines.prediction import Prediction

__all__ = ["BBBRegressor"]

HARMLESS = (IGNORED, GROUPS, "every cell is the same", "every cell is missing")
"""Reasons to leave out a column without a warning."""


class BBBRegressor(RegressorMixin, TrainingParameters):  # type: ignore[misc]  # scikit-learn has no types
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
        posterior_: The fitted `model.posterior.posterior.Posterior`. ``posterior_.facts`` has the content of
            ``model.json``, such as the held-out metrics and the schema.
        n_features_in_: Number of columns of X.
        feature_names_in_: Names of the columns of X, if X was a data frame and all its column names were strings.
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit networks to rows, calibrate their bands, and score them on held-out rows.

        Args:
            X: Features ``[N, columns]``: a data frame, or numbers with NaN for missing. N is at least 2.
            y: Targets ``[N]``, numbers, not all the same. The name of a Series becomes the name of the target.
            sample_weight: Weights of the rows, ``[N]``, from 0 on: how important each row is, see the parameter
                ``weight``, which names a column of X instead. None: all are equal.

        Returns:
            The estimator itself.

        Raises:
            ValueError: X, y or a parameter can't be used; the message says where and why.
            FitError: The fit became non-finite.
            KeyboardInterrupt: The fit was interrupted. The estimator is fitted, with the best parameters so far.
        """
        options = self.train_options()
        targets = validate_data(self, y=y, y_numeric=True)
        table = self._table(X, reset=True)
        check_consistent_length(table, targets)
        target = target_name(y, table.column_names)
        with as_value_errors():
            device = resolve_device(self.device)
            options = self.with_kinds(options, table)
            options, table = self.with_weights(options, table, sample_weight)
            table = table.append_column(target, pa.array(np.asarray(targets, dtype=np.float64)))
            with use_threads_for_fitting(device), self.reporter() as reporter:
                trained = train(table, target, options, reporter=reporter, device=device)
        names = {"columns": self._names(), "named": hasattr(self, "feature_names_in_")}
        spec = replace(trained.spec, records={**trained.spec.records, "estimator": names})
        if sample_weight is not None:  # given to `fit`, not to the estimator: a copy of it has no such column
            recorded = {**spec.training["options"], "weight": None}
            spec = replace(spec, training={**spec.training, "options": recorded})
        self._adopt(spec, trained.tensors, device)
        if spec.training["interrupted"]:
            raise KeyboardInterrupt
        for name, reason in self.posterior_.schema.left_out.items():
            if reason not in HARMLESS:
                warn(f"column {name!r} is no feature: {reason}", UserWarning, stacklevel=2)
        return self

    @overload
    def predict(self, X: Any, return_std: Literal[False] = False) -> NDArray[np.float64]: ...

    @overload
    def predict(self, X: Any, return_std: Literal[True]) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...

    def predict(
        self, X: Any, return_std: bool = False
    ) -> NDArray[np.float64] | tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The mean of the predictive and, with ``return_std``, its standard deviation, calibrated as the quantiles are.

        Args:
            X: Rows ``[B, columns]``, as in `fit`.
            return_std: Whether to return the standard deviation too.

        Returns:
            Mean ``[B]``, or mean and standard deviation, in the target's unit.

        Raises:
            ValueError: X can't be used, or ``return_std`` is true and ``samples`` is 0.
        """
        answer = self._answer(X, least=int(return_std))
        if answer.std is None or not return_std:
            return answer.mean
        return answer.mean, answer.std

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
        levels = np.asarray(quantiles, dtype=np.float64)
        if levels.ndim != 1 or not ((levels > 0.0) & (levels < 1.0)).all():
            raise ParameterError(f"quantiles: a list of levels strictly between 0 and 1, not {quantiles!r}")
        answer = self._answer(X, percentiles=tuple((100.0 * levels).tolist()))
        return np.empty((len(answer.mean), 0)) if answer.percentiles is None else answer.percentiles

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
        answer = self._answer(X, samples=samples, noise=False, draws=True)
        return np.empty((len(answer.mean), 0)) if answer.draws is None else answer.draws

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
        return write_checkpoint(Path(directory), name, self.posterior_.spec, self._tensors)

    @classmethod
    def from_checkpoint(cls, path: str | Path, *, device: str = "cpu") -> Self:
        """Load a fitted estimator from a checkpoint that `save` or ``murho train`` wrote.

        The parameters are those of the fit in the checkpoint, so a clone of the estimator fits in the same way.

        Args:
            path: ``NAME/VERSION``, or ``NAME`` for the latest version.
            device: Where to compute.

        Raises:
            CheckpointError: Something is missing or damaged; the message says what.
        """
        directory = Path(path)
        if not (directory / FACTS_FILE).exists():
            directory = find_checkpoint(directory.parent, directory.name)
        with as_value_errors():
            resolved = resolve_device(device)
        stored = read_stored(directory)
        spec = stored.spec
        features = [feature.name for feature in spec.schema.features]
        try:
            names = spec.records.get("estimator", {"columns": features, "named": True})
            columns, named = [str(name) for name in names["columns"]], bool(names["named"])
            estimator = cls(**cls.parameters_of(spec.training["options"]), device=device)
        except (AttributeError, KeyError, TypeError) as error:
            raise CheckpointError(f"{directory}: estimator or training.options is malformed: {error!r}") from error
        estimator.n_features_in_ = len(columns)
        if named:
            estimator.feature_names_in_ = np.array(columns, dtype=object)
        estimator._adopt(spec, stored.tensors, resolved)
        stored.require_answers(estimator.posterior_)
        return estimator

    def _adopt(self, spec: ModelSpec, tensors: Mapping[str, Tensor], device: str) -> None:
        self.posterior_ = Posterior(spec, tensors, device=device)
        self._tensors = dict(tensors)

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

    def _answer(self, X: Any, *, samples: int | None = None, least: int = 1, **options: Any) -> Prediction:
        check_is_fitted(self)
        count = self.sample_count(samples, least=least)
        table = self._table(X, reset=False)
        with as_value_errors():
            columns = columns_from_table(table, self.posterior_.schema)
        answer: Prediction = self.posterior_.predict(columns, PredictOptions(count, **({"percentiles": ()} | options)))
        return answer

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """The state for a pickle, with the posterior as the content of ``model.json`` and arrays."""
        state = dict(super().__getstate__())
        if "posterior_" in state:
            tensors = {name: tensor.numpy() for name, tensor in state.pop("_tensors").items()}
            state["_checkpoint"] = (state.pop("posterior_").facts, tensors)
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
        self._adopt(ModelSpec.from_json(facts), tensors, device)
