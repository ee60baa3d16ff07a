"""The peers of Murho: a registry of the libraries that it is compared with, and one script per library.

A script runs in its library's own environment, in a process of its own that `benchmarks.systems` starts. It may import
that environment's packages, numpy and, from this package, `exchange`, the tasks (`network_task`, `step_task`,
`engine_task`, `table_task`, `class_task`) and, if it uses PyTorch, `torch_parts`. It uses the library as in the
library's documentation.

The scripts ``murho_fit`` and ``murho_predictions`` are Murho's side of a comparison. They run in Murho's environment.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias

    Benchmark: TypeAlias = Literal["step", "engine", "table", "classes", "calibration", "bandit"]
    """`benchmarks.steps`, `benchmarks.engine`, `benchmarks.tabular`, `benchmarks.classification`, the calibration of
    the latter, or `benchmarks.mushroom`."""

__all__ = ["CALIBRATOR", "PEERS", "RESULTS", "Library", "Peer", "peers_of"]

RESULTS = Path(__file__).resolve().parent / "results"
"""Scores of the table benchmarks, one file per peer and set; committed, so that a comparison need not run the peers."""


@dataclass(frozen=True, slots=True)
class Library:
    """A library and its environment.

    Attributes:
        module: Name of its script in this package, and of its environment.
        packages: Pinned packages of the environment.
    """

    module: str
    packages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Peer:
    """A library in a benchmark.

    Attributes:
        benchmark: The benchmark.
        name: Name on the benchmark's command line, and in file names.
        title: Title in the benchmark's tables.
        library: The library whose script is run.
        options: Options of the script in addition to the common task, such as the variant.
        stacked: Engine: whether it holds the hidden values of all draws at once.
        keeps_draws: Engine: whether all its calls use the same draws, as Murho's do.
        most_rows: Table: most training rows; larger sets are left out.
        calibration: Classes: the library that calibrates its probabilities.
    """

    benchmark: Benchmark
    name: str
    title: str
    library: Library
    options: Mapping[str, Any] = field(default_factory=dict)
    stacked: bool = False
    keeps_draws: bool = False
    most_rows: int | None = None
    calibration: Library | None = None

    @property
    def requirements(self) -> list[str]:
        """The pinned packages behind its scores."""
        return [*self.library.packages, *(self.calibration.packages if self.calibration else ())]


NUMPY = "numpy==2.4.6"
TORCH = "torch==2.13.0"
SCIKIT_LEARN_ITSELF = "scikit-learn==1.9.1"

BAYESIAN_TORCH = Library("bayesian_torch", (NUMPY, TORCH, "bayesian-torch==0.5.0"))
BLITZ = Library("blitz", (NUMPY, TORCH, "blitz-bayesian-pytorch==0.2.8"))
CATBOOST = Library("catboost", (NUMPY, "catboost==1.2.10"))
DEEP_ENSEMBLE = Library("deep_ensemble", (NUMPY, TORCH))
DIFFGBM = Library("diffgbm", (NUMPY, SCIKIT_LEARN_ITSELF, "lightgbm==4.7.0", "diffgbm==0.1.2"))
LIGHTGBM = Library("lightgbm", (NUMPY, "lightgbm==4.7.0"))
NGBOOST = Library("ngboost", (NUMPY, SCIKIT_LEARN_ITSELF, "ngboost==0.5.11"))
NUMPYRO = Library("numpyro", (NUMPY, "jax==0.10.2", "numpyro==0.22.0"))
POSTERIORS = Library("posteriors", (NUMPY, TORCH, "posteriors==0.1.3", "torchopt==0.7.3"))
PROBMETRICS = Library(
    "probmetrics",
    (NUMPY, SCIKIT_LEARN_ITSELF, TORCH, "numba==0.68.1", "betacal==1.1.0", "probmetrics==1.3.0"),
)
PYRO = Library("pyro", (NUMPY, TORCH, "pyro-ppl==1.9.2"))
PYTABKIT = Library("pytabkit", (NUMPY, SCIKIT_LEARN_ITSELF, TORCH, "pytorch-lightning==2.6.6", "pytabkit==1.7.3"))
SCIKIT_LEARN = Library("scikit_learn", (NUMPY, SCIKIT_LEARN_ITSELF))
TFP = Library("tfp", (NUMPY, "tensorflow==2.21.0", "tf-keras==2.21.0", "tensorflow-probability==0.25.0"))
VOWPAL_WABBIT = Library("vowpal_wabbit", (NUMPY, "vowpalwabbit==9.11.9"))
TORCHBNN = Library("torchbnn", (NUMPY, TORCH, "torchbnn==1.2"))

PARALLEL = {"variant": "parallel"}

PEERS = (
    Peer("step", "pyro", "Pyro SVI", PYRO),
    Peer("step", "numpyro", "NumPyro SVI, jit", NUMPYRO),
    Peer("step", "bayesian-torch", "bayesian-torch", BAYESIAN_TORCH),
    Peer("step", "torchbnn", "torchbnn", TORCHBNN),
    Peer("step", "blitz", "blitz", BLITZ),
    Peer("step", "posteriors", "posteriors vi.diag", POSTERIORS),
    Peer("step", "tfp", "TFP, tf.function", TFP),
    Peer("engine", "posteriors", "posteriors, vmap", POSTERIORS, stacked=True),
    Peer("engine", "numpyro-parallel", "NumPyro Predictive, jit, parallel", NUMPYRO, PARALLEL, stacked=True),
    Peer("engine", "numpyro", "NumPyro Predictive, jit", NUMPYRO),
    Peer("engine", "pyro-parallel", "Pyro Predictive, parallel", PYRO, PARALLEL, stacked=True),
    Peer("engine", "pyro", "Pyro Predictive", PYRO),
    Peer("engine", "bayesian-torch", "bayesian-torch", BAYESIAN_TORCH),
    Peer("engine", "torchbnn", "torchbnn", TORCHBNN),
    Peer("engine", "blitz", "blitz, mfvi_forward", BLITZ),
    Peer("engine", "tfp", "TFP, tf.function", TFP),
    Peer("table", "ngboost", "NGBoost, Normal", NGBOOST),
    Peer("table", "catboost-uncertainty", "CatBoost, RMSEWithUncertainty", CATBOOST, {"variant": "uncertainty"}),
    Peer("table", "catboost-quantiles", "CatBoost, MultiQuantile", CATBOOST, {"variant": "quantiles"}),
    Peer("table", "lightgbm-quantiles", "LightGBM, quantiles", LIGHTGBM),
    Peer(
        "table",
        "histogram-boosting",
        "HistGradientBoosting, conformal",
        SCIKIT_LEARN,
        {"variant": "boosting"},
    ),
    Peer("table", "gaussian-process", "exact GP, ARD RBF", SCIKIT_LEARN, {"variant": "process"}, most_rows=2000),
    Peer("table", "deep-ensemble", "deep ensemble, 5 of 2 x 128", DEEP_ENSEMBLE),
    Peer("table", "diffgbm", "DiffGBM", DIFFGBM),
    Peer("table", "realmlp", "RealMLP, quantiles", PYTABKIT, {"variant": "realmlp"}),
    Peer("table", "tabm", "TabM, quantiles", PYTABKIT, {"variant": "tabm"}),
    Peer("classes", "catboost-classes", "CatBoost", CATBOOST, calibration=PROBMETRICS),
    Peer("classes", "lightgbm-classes", "LightGBM", LIGHTGBM, calibration=PROBMETRICS),
    Peer("classes", "realmlp-classes", "RealMLP", PYTABKIT, calibration=PROBMETRICS),
    Peer("classes", "logistic-regression", "logistic regression", SCIKIT_LEARN, calibration=PROBMETRICS),
    Peer("bandit", "squarecb", "Vowpal Wabbit --squarecb", VOWPAL_WABBIT, {"options": "-q ::"}),
)
"""All peers, in the order of the tables."""

CALIBRATOR = Peer("calibration", "probmetrics", "probmetrics", PROBMETRICS)
"""What calibrates the probabilities of all peers with classes."""


def peers_of(benchmark: Benchmark) -> dict[str, Peer]:
    """The peers of a benchmark, by name."""
    return {peer.name: peer for peer in PEERS if peer.benchmark == benchmark}
