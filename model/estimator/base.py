"""`BBBEstimator`: what both estimators share, from the table of X to checkpoints and pickles."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import check_is_fitted, validate_data

from murho.model.data.frames import is_frame, table_from_frame, table_from_matrix, target_name, unnamed
from murho.model.engines.prediction import PredictOptions
from murho.model.errors import CheckpointError, OptionError
from murho.model.estimator_parameters import DataError, TrainingParameters, as_value_errors
from murho.model.posterior.checkpoint import FACTS_FILE, find_checkpoint, read_stored, write_checkpoint
from murho.model.posterior.model_spec import ModelSpec
from murho.model.posterior.posterior import Posterior
from murho.model.python_interface.asked_rows import AskedRows
from murho.model.python_interface.given_data import warn_of_left_out, with_declared_kinds
from murho.model.runtime.devices import resolve_device, use_threads_for_fitting
from murho.model.storage.places import directory_at
from murho.model.training.train import train

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from torch import Tensor

__all__ = ["BBBEstimator"]


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
        return write_checkpoint(directory_at(directory), name, self.posterior_.spec, self._tensors)

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
        directory = Path(path)
        if not (directory / FACTS_FILE).exists():
            directory = find_checkpoint(directory.parent, directory.name)
        with as_value_errors():
            resolved = resolve_device(device)
        stored = read_stored(directory)
        spec = stored.spec
        if (spec.schema.target.classes is None) != (cls._task == "regression"):
            kind, other = ("numbers", "BBBRegressor") if cls._task != "regression" else ("classes", "BBBClassifier")
            raise CheckpointError(f"{directory} predicts {kind}: load it with {other}.from_checkpoint")
        features = [feature.name for feature in spec.schema.features]
        try:
            names = spec.records.get("estimator", {"columns": features, "named": True})
            columns, named = [str(name) for name in names["columns"]], bool(names["named"])
            estimator = cls(**cls.parameters_of(spec.training["options"]), device=device)
            estimator._read_record(names, spec)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{directory}: estimator or training.options is malformed: {error!r}") from error
        estimator.n_features_in_ = len(columns)
        if named:
            estimator.feature_names_in_ = np.array(columns, dtype=object)
        estimator._adopt(spec, stored.tensors, resolved)
        stored.require_answers(estimator.posterior_)
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
            options, table = self.with_weights(options, table, sample_weight)
            options, table = self.with_groups(options, table, groups)
            table = table.append_column(target, targets)
            with use_threads_for_fitting(device), self.reporter() as reporter:
                trained = train(table, target, options, reporter=reporter, device=device)
        record = {"columns": self._names(), "named": hasattr(self, "feature_names_in_"), **self._record()}
        spec = replace(trained.spec, records={**trained.spec.records, "estimator": record})
        # What is given to `fit` is no parameter of the estimator: a copy of it has no such column.
        of_fit: dict[str, Any] = {} if sample_weight is None else {"weight": None}
        of_fit |= {} if groups is None else {"group": []}
        if of_fit:
            spec = replace(spec, training={**spec.training, "options": {**spec.training["options"], **of_fit}})
        self._adopt(spec, trained.tensors, device)
        if spec.training["interrupted"]:
            raise KeyboardInterrupt
        warn_of_left_out(spec.schema, stacklevel=3)
        return self

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

    def _asked(self, X: Any, *, samples: int | None = None, least: int = 1) -> AskedRows:
        """The rows of X, to be asked about with at least so many draws."""
        check_is_fitted(self)
        count = self.sample_count(samples, least=least)
        table = self._table(X, reset=False)
        with as_value_errors():
            return AskedRows.of(self.posterior_, table, PredictOptions(count))

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
