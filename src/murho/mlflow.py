"""MLflow: a checkpoint as a model of the flavour ``python_function``, for registries, ``models serve`` and Spark.

``murho.mlflow.log_model("checkpoints/cars")`` puts the newest version into the active run, `save_model` writes it to a
directory. ``mlflow.pyfunc.load_model`` of it gets the columns of ``murho predict`` for a data frame, and takes
``params``: ``samples``, ``percentiles``, ``seed``. Nothing is pickled: the model is the checkpoint. Needs ``mlflow`` or
``mlflow-skinny``.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlflow
from mlflow.models import ModelSignature
from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema

from murho.model.checkpoint.posterior import Posterior
from murho.model.checkpoint.proof import typical_rows
from murho.model.predictive.prediction import DEFAULT_PERCENTILES, DEFAULT_SAMPLES, PredictOptions
from murho.model.python.answers import as_value_errors
from murho.model.python.interface import table_of, version_directory
from murho.model.python.table_scoring import answer_table, check_options, lists_as_text, written_columns
from murho.model.tables.columns import holds_text
from murho.model.tables.schema import Columns, FeatureKind
from murho.model.tables.schema_inference import columns_from_table

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


__all__ = ["log_model", "save_model", "signature_of"]

TYPES = {
    FeatureKind.NUMERIC: DataType.double,
    FeatureKind.BOOLEAN: DataType.boolean,
    FeatureKind.DATE: DataType.datetime,
    FeatureKind.CATEGORICAL: DataType.string,
}


def save_model(path: str | Path, model: str | Path, **more: Any) -> None:
    """Write a checkpoint as a model of MLflow.

    Args:
        path: The directory to write, which must not exist.
        model: The checkpoint, as `murho.load` takes it: its name, or a path that ends in NAME or NAME/VERSION.
        more: More arguments of ``mlflow.pyfunc.save_model``.

    Raises:
        CheckpointError: There is no such checkpoint, or it is damaged.
    """
    mlflow.pyfunc.save_model(str(path), **_arguments(model), **more)


def log_model(model: str | Path, name: str = "model", **more: Any) -> Any:
    """Log a checkpoint to the active run, or to a new one.

    Args:
        model: The checkpoint, see `save_model`.
        name: Name of the model in MLflow.
        more: More arguments of ``mlflow.pyfunc.log_model``, such as ``registered_model_name``.

    Returns:
        The ``ModelInfo`` of MLflow.

    Raises:
        CheckpointError: There is no such checkpoint, or it is damaged.
    """
    return mlflow.pyfunc.log_model(name=name, **_arguments(model), **more)


def signature_of(posterior: Posterior) -> ModelSignature:
    """Return the columns that a model takes and gives, and its parameters, with defaults.

    Args:
        posterior: The model.
    """
    schema = posterior.schema
    inputs = [
        ColSpec(TYPES[each.kind], each.name, required=not each.accepts_missing or each.kind is FeatureKind.NUMERIC)
        for each in schema.features
    ]
    answers = _predict_columns(posterior, typical_rows(schema), PredictOptions())
    outputs = [
        ColSpec(DataType.string if holds_text(column.type) else DataType.double, column.name)
        for column in answers.schema
    ]
    params = [
        ParamSpec("samples", DataType.long, DEFAULT_SAMPLES),
        ParamSpec("percentiles", DataType.double, [*map(float, DEFAULT_PERCENTILES)], shape=(-1,)),
        ParamSpec("seed", DataType.long, posterior.spec.default_seed),
    ]
    return ModelSignature(Schema(inputs), Schema(outputs), ParamSchema(params))


def _arguments(model: str | Path) -> dict[str, Any]:
    directory = version_directory(Path(model))
    posterior = Posterior.load(directory, engine="torch")
    return {
        "loader_module": __name__,
        "data_path": str(directory),
        "signature": signature_of(posterior),
        "pip_requirements": [f"murho=={version('murho')}", "pandas"],
        "metadata": {"name": directory.parent.name, "version": directory.name},
    }


class _Answers:
    """What MLflow calls.

    Args:
        posterior: The model.
    """

    def __init__(self, posterior: Posterior) -> None:
        self.posterior = posterior

    def predict(self, data: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Return the columns of ``murho predict`` for B rows.

        Args:
            data: The rows.
            params: ``samples``, ``percentiles``, ``seed``.

        Raises:
            ValueError: A row or a parameter can't be used; the message says where and why.
        """
        given = params or {}
        with as_value_errors():
            options = PredictOptions(
                int(given.get("samples", DEFAULT_SAMPLES)),
                tuple(map(float, given.get("percentiles", DEFAULT_PERCENTILES))),
                None if given.get("seed") is None else int(given["seed"]),
            )
            columns = columns_from_table(table_of(data), self.posterior.schema)
            return _predict_columns(self.posterior, columns, options).to_pandas()


def _predict_columns(posterior: Posterior, columns: Columns, options: PredictOptions) -> pa.Table:
    """Return the columns of ``murho predict``; lists, such as prediction sets, are text."""
    check_options(options)
    return lists_as_text(answer_table(written_columns(posterior.predict(columns, options), options)))


def _load_pyfunc(data_path: str) -> _Answers:
    """Load the model; MLflow calls it by this name."""
    return _Answers(Posterior.load(Path(data_path)))
