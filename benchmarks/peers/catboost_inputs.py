"""What the two CatBoost peers share: their inputs and the options that its documentation recommends."""
# mypy: disable-error-code="import-not-found,import-untyped"

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from catboost import FeaturesData, Pool

if TYPE_CHECKING:
    from benchmarks.peers.table_task import Features

__all__ = ["OPTIONS", "pool"]

OPTIONS: dict[str, Any] = {
    "iterations": 2000,
    "learning_rate": 0.05,
    "thread_count": 1,
    "allow_writing_files": False,
    "verbose": False,
}


def pool(features: Features, target: np.ndarray | None = None) -> Pool:
    """Rows as CatBoost takes them: numbers with their gaps, categories as categories."""
    data = FeaturesData(
        num_feature_data=features.numbers.astype(np.float32) if features.numbers.shape[1] else None,
        cat_feature_data=features.categories.astype("S").astype(object)
        if features.categories.shape[1]
        else None,
    )
    return Pool(data, label=target)
