"""What Murho is compared with on tables, and the environment of each: packages pinned, scripts beside this file.

A script runs in its own environment, in a process of its own, and may import that environment's packages, numpy
and `benchmarks.peers.table_task` alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["ENVIRONMENTS", "PEERS", "RESULTS", "Peer"]

RESULTS = Path(__file__).resolve().parent / "results"
"""Their measured scores, one file a peer and set: committed, so that a table needs no peer."""

NUMPY = "numpy==2.4.6"
SCIKIT_LEARN = "scikit-learn==1.9.1"

ENVIRONMENTS: dict[str, tuple[str, ...]] = {
    "catboost": (NUMPY, "catboost==1.2.10"),
    "lightgbm": (NUMPY, "lightgbm==4.7.0"),
    "ngboost": (NUMPY, SCIKIT_LEARN, "ngboost==0.5.11"),
    "scikit-learn": (NUMPY, SCIKIT_LEARN),
    "torch": (NUMPY, "torch==2.13.0"),
}
"""Environment → what is installed into it."""


@dataclass(frozen=True, slots=True)
class Peer:
    """One of them.

    Attributes:
        title: How the tables call it.
        script: Module of this package.
        environment: Where the script runs, of `ENVIRONMENTS`.
        most_rows: Most training rows that it is given; sets with more go without it.
    """

    title: str
    script: str
    environment: str
    most_rows: int | None = None


PEERS: dict[str, Peer] = {
    "ngboost": Peer("NGBoost, Normal", "ngboost_normal", "ngboost"),
    "catboost-uncertainty": Peer("CatBoost, RMSEWithUncertainty", "catboost_uncertainty", "catboost"),
    "catboost-quantiles": Peer("CatBoost, MultiQuantile", "catboost_quantiles", "catboost"),
    "lightgbm-quantiles": Peer("LightGBM, quantiles", "lightgbm_quantiles", "lightgbm"),
    "histogram-boosting": Peer("HistGradientBoosting, conformal", "histogram_boosting", "scikit-learn"),
    "gaussian-process": Peer("exact GP, ARD RBF", "gaussian_process", "scikit-learn", most_rows=2000),
    "deep-ensemble": Peer("deep ensemble, 5 of 2 x 128", "deep_ensemble", "torch"),
}
"""Name on the command line and in file names → peer."""
