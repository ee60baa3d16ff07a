"""Where doubt comes from: the epistemic share of the predicted variance along each feature, and over the weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from murho.model.data.cells import format_date
from murho.model.data.columns import is_missing
from murho.model.data.schema import FeatureKind
from murho.model.engines.prediction import PredictOptions
from murho.model.fitting.training_data import select_rows
from murho.model.revision.signal_to_noise import HISTOGRAM_EDGES, extrapolation_inputs, held_weights, signal_to_noise

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray
    from torch import Tensor

    from murho.model.data.schema import Columns, Feature
    from murho.model.engines.class_prediction import ClassPrediction
    from murho.model.engines.prediction import Prediction
    from murho.model.posterior.model_spec import ModelSpec
    from murho.model.posterior.posterior import Posterior

__all__ = ["doubt_facts", "weight_facts"]

MOST_ROWS = 1_000
BINS = 10
MOST_CATEGORIES = 10


def doubt_facts(posterior: Posterior, columns: Columns, *, seed: int = 0) -> dict[str, Any]:
    """The epistemic share of the variance of what the posterior answers for some rows.

    Args:
        posterior: The posterior, as it is served.
        columns: Canonical columns of the rows, ``[n]`` each; at most 1,000 of them are used.
        seed: Seed of the choice of rows.

    Returns:
        ``rows`` used, the ``share`` of all of them, and ``features``: for each ``name``, ``kind``, ``unit``, and
        ``bins`` in order, each with ``from`` and ``to`` or ``category`` (None: missing), ``rows``, ``share``,
        ``epistemic_std`` and ``std`` (root mean squares, the target's unit), or of a classifier ``epistemic_entropy``
        and ``entropy`` (means, nats). ``of`` says of what the share is: ``variance`` or ``entropy``.
    """
    count = len(next(iter(columns.values())))
    if count > MOST_ROWS:
        columns = select_rows(columns, np.sort(np.random.default_rng(seed).choice(count, MOST_ROWS, replace=False)))
    answer = posterior.predict(columns, PredictOptions(percentiles=()))
    of_classes = posterior.schema.target.classes is not None
    squares = _entropies(answer) if of_classes else _variances(answer)
    return {
        "of": "entropy" if of_classes else "variance",
        "rows": len(squares),
        "share": _share(squares),
        "features": [
            {
                "name": feature.name,
                "kind": str(feature.kind),
                "unit": feature.unit,
                "bins": [
                    {
                        **place,
                        "rows": len(rows),
                        "share": _share(squares[rows]),
                        **_means(squares[rows], of_classes=of_classes),
                    }
                    for place, rows in _bins(feature, columns[feature.name])
                ],
            }
            for feature in posterior.schema.features
        ],
    }


def _variances(answer: Prediction) -> NDArray[np.float64]:
    """Epistemic and whole variance of every row, ``[n, 2]``."""
    epistemic, aleatoric = answer.epistemic_std, answer.aleatoric_std
    if epistemic is None or aleatoric is None:
        raise ValueError("an answer with draws has both parts of the standard deviation")
    return np.stack((epistemic**2, epistemic**2 + aleatoric**2), axis=1)


def _entropies(answer: ClassPrediction) -> NDArray[np.float64]:
    """Epistemic and whole entropy of every row, ``[n, 2]``."""
    if answer.entropy is None or answer.epistemic_entropy is None:
        raise ValueError("an answer with draws has both parts of the entropy")
    return np.stack((answer.epistemic_entropy, answer.entropy), axis=1)


def _means(parts: NDArray[np.float64], *, of_classes: bool) -> dict[str, float]:
    epistemic, total = (float(mean) for mean in parts.mean(axis=0))
    if of_classes:
        return {"epistemic_entropy": epistemic, "entropy": total}
    return {"epistemic_std": epistemic**0.5, "std": total**0.5}


def _share(squares: NDArray[np.float64]) -> float:
    epistemic, total = squares.sum(axis=0)
    return float(epistemic / total) if total > 0.0 else 0.0


def _bins(feature: Feature, column: NDArray[Any]) -> list[tuple[dict[str, Any], NDArray[np.int64]]]:
    """Bins of a feature with their rows: tenths of the rows, or categories; missing cells come last."""
    missing = is_missing(column)
    found: list[tuple[dict[str, Any], NDArray[np.int64]]] = []
    present = np.flatnonzero(~missing)
    if feature.kind in (FeatureKind.CATEGORICAL, FeatureKind.BOOLEAN):
        cells = [bool(cell) if feature.kind is FeatureKind.BOOLEAN else cell for cell in column[present]]
        numbers: dict[Any, list[int]] = {}
        for row, cell in zip(present.tolist(), cells, strict=True):
            numbers.setdefault(cell, []).append(row)
        largest = sorted(numbers.items(), key=lambda item: -len(item[1]))[:MOST_CATEGORIES]
        found = [({"category": cell}, np.array(rows)) for cell, rows in largest]
    elif len(present):
        values = column[present].astype(np.float64)
        edges = np.unique(np.quantile(values, np.linspace(0.0, 1.0, BINS + 1)))
        places = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, max(0, len(edges) - 2))
        for place in np.unique(places):
            inside = values[places == place]
            ends = [_shown(feature, end) for end in (inside.min(), inside.max())]
            found.append(({"from": ends[0], "to": ends[1]}, present[places == place]))
    if missing.any():
        found.append(({"category": None}, np.flatnonzero(missing)))
    return found


def _shown(feature: Feature, value: float) -> float | str:
    return format_date(float(value)) if feature.kind is FeatureKind.DATE else float(value)


def weight_facts(spec: ModelSpec, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """The signal-to-noise ratios ``|mu| / sigma`` of the weights (`model.revision.signal_to_noise`).

    Args:
        spec: The specification of the checkpoint.
        tensors: Its tensors by name, on the CPU.

    Returns:
        ``edges`` of the bins and ``counts`` in them; ``below_one``, the share of weights with a ratio below 1; and
        ``held``, the number of weights that are not counted: of inputs that are zero for every training row, and of
        inputs that their member does not read.
    """
    names = [f"layers.{index}.weight" for index in range(len(spec.architecture.layers))]
    inputs = extrapolation_inputs(spec.encoder)
    held = torch.cat([part.flatten() for part in held_weights(tensors, spec.architecture, inputs)])
    ratios = torch.cat([signal_to_noise(tensors[f"{n}.mu"], tensors[f"{n}.rho"]).flatten() for n in names])
    free = ratios[~held].numpy()
    logs = np.clip(np.log10(np.maximum(free, 1e-30)), HISTOGRAM_EDGES[0], HISTOGRAM_EDGES[-1])
    return {
        "edges": [float(f"{edge:.4g}") for edge in 10.0**HISTOGRAM_EDGES],
        "counts": np.histogram(logs, HISTOGRAM_EDGES)[0].tolist(),
        "below_one": float(np.mean(free < 1.0)) if len(free) else 0.0,
        "held": int(held.sum()),
    }
