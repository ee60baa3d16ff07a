"""A `Posterior` as the peers serve it: records or columns of plain values in, one answer a row out.

The peers' environments have no web server of Murho's, so that this stands on `murho.model` alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.checkpoint.posterior import Posterior
from murho.model.predictive.prediction import PredictOptions
from murho.model.runtime import available_processors
from murho.model.tables.cells import parse_date
from murho.model.tables.schema import FeatureKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from murho.model.predictive.prediction import Prediction
    from murho.model.tables.schema import Columns, Feature, Schema

__all__ = ["canonical", "load", "predict_rows", "row_of"]


def load(directory: str | Path) -> Posterior:
    """Loads a checkpoint's version with as many threads as Murho's service takes."""
    import torch

    torch.set_num_threads(available_processors())
    posterior = Posterior.load(Path(directory))
    posterior.warm_up()
    return posterior


def canonical(schema: Schema, columns: Mapping[str, Sequence[Any]]) -> Columns:
    """Canonical columns ``[B]`` of plain values."""
    return {feature.name: _column(feature, columns[feature.name]) for feature in schema.features}


def _column(feature: Feature, cells: Sequence[Any]) -> NDArray[Any]:
    if feature.kind is FeatureKind.CATEGORICAL:
        column = np.empty(len(cells), dtype=object)
        column[:] = cells
        return column
    if feature.kind is FeatureKind.DATE:
        cells = [None if cell is None else parse_date(cell) for cell in cells]
    return np.array(cells, dtype=np.float64)


def predict_rows(posterior: Posterior, rows: Sequence[Mapping[str, Any]], samples: int) -> Prediction:
    """The prediction for records."""
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    answer: Prediction = posterior.predict(canonical(posterior.schema, columns), PredictOptions(samples=samples))
    return answer


def row_of(prediction: Prediction, row: int) -> dict[str, Any]:
    """The answer for one row of a prediction, with the numbers that Murho's answers have."""
    names = ("mean", "std", "epistemic_std", "aleatoric_std", "percentiles")
    return {name: [getattr(prediction, name)[row].tolist()] for name in names}
