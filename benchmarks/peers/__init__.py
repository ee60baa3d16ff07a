"""The peers of Murho: a registry of the libraries that it is compared with, and one script per library.

A script runs in its library's own environment, in a process of its own that `benchmarks.processes` starts. It may
import that environment's packages, numpy and, from this package, `exchange` and the tasks (`tables`, `networks`). It
uses the library as in the library's documentation. ``murho_fit`` and ``murho_predictions`` are Murho's side of a
comparison, in Murho's environment.

A new library is a script that ends with ``drive(…)``, which gets a session for each benchmark (`networks.step_session`
and `engine_session`, `tables.table_session`), and an entry of `PEERS`. ``--systems NAME``, or ``--only-peers --peers
NAME``, runs it alone; the latter adds to ``results.jsonl``: commit that file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    Benchmark: TypeAlias = Literal["step", "engine", "table", "classes", "bandit"]
    """`benchmarks.steps`, `.engine`, `.tabular`, `.classification` or `.mushroom`."""

__all__ = ["CALIBRATOR", "PEERS", "RESULTS", "Peer", "peers_of"]

RESULTS = Path(__file__).resolve().parent / "results.jsonl"
"""Scores on tables, a line a peer and split; committed, so that a comparison need not run the peers."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A library in a benchmark.

    Attributes:
        benchmark: The benchmark.
        name: Name on the benchmark's command line, and in results.
        title: Title in the benchmark's tables.
        script: Name of its script in this package, and of its environment; empty for a peer whose kept scores alone
            are shown: it was never the best, and its script is gone.
        packages: Pinned packages of the environment.
        stacked: Engine: whether it holds the hidden values of all draws at once.
        most_rows: Table: most training rows; larger sets are left out.
    """

    benchmark: str
    name: str
    title: str
    script: str = ""
    packages: tuple[str, ...] = ()
    stacked: bool = False
    most_rows: int | None = None

    @property
    def requirements(self) -> list[str]:
        """The pinned packages behind its scores."""
        return [*self.packages, *(CALIBRATOR.packages if self.benchmark == "classes" else ())]


NUMPY, TORCH, SKLEARN = "numpy==2.4.6", "torch==2.13.0", "scikit-learn==1.9.1"
CATBOOST = ("catboost", (NUMPY, "catboost==1.2.10"))
LIGHTGBM = ("lightgbm", (NUMPY, "lightgbm==4.7.0"))
NUMPYRO = ("numpyro", (NUMPY, "jax==0.10.2", "numpyro==0.22.0"))
TORCH_BNN = ("bayesian-torch==0.5.0", "torchbnn==1.2", "posteriors==0.1.3", "torchopt==0.7.3")
TORCH_LIBRARIES = ("torch_libraries", (NUMPY, TORCH, *TORCH_BNN))
PYTABKIT = (NUMPY, SKLEARN, TORCH, "pytorch-lightning==2.6.6", "pytabkit==1.7.3")
BDE = ("bde", (NUMPY, SKLEARN, "jax==0.10.2", "sklearn-contrib-bde==1.0.2"))
SCIKIT_LEARN = ("scikit_learn", (NUMPY, SKLEARN))
PROBMETRICS = (NUMPY, SKLEARN, TORCH, "numba==0.68.1", "betacal==1.1.0", "probmetrics==1.3.0")
CALIBRATOR = Peer("calibration", "probmetrics", "probmetrics", "probmetrics", PROBMETRICS)
"""What calibrates the probabilities of all peers with classes."""

PEERS = (
    Peer("step", "numpyro", "NumPyro SVI, jit", *NUMPYRO),
    Peer("step", "bayesian-torch", "bayesian-torch", *TORCH_LIBRARIES),
    Peer("step", "torchbnn", "torchbnn", *TORCH_LIBRARIES),
    Peer("step", "posteriors", "posteriors vi.diag", *TORCH_LIBRARIES),
    Peer("engine", "posteriors", "posteriors, vmap", *TORCH_LIBRARIES, stacked=True),
    Peer("engine", "numpyro", "NumPyro Predictive, jit", *NUMPYRO),
    Peer("engine", "bayesian-torch", "bayesian-torch", *TORCH_LIBRARIES),
    Peer("engine", "torchbnn", "torchbnn", *TORCH_LIBRARIES),
    Peer("table", "ngboost", "NGBoost, Normal", packages=(NUMPY, SKLEARN, "ngboost==0.5.11")),
    Peer("table", "catboost-uncertainty", "CatBoost, RMSEWithUncertainty", packages=CATBOOST[1]),
    Peer("table", "catboost-quantiles", "CatBoost, MultiQuantile", *CATBOOST),
    Peer("table", "lightgbm-quantiles", "LightGBM, quantiles", *LIGHTGBM),
    Peer("table", "histogram-boosting", "HistGradientBoosting, conformal", packages=SCIKIT_LEARN[1]),
    Peer("table", "gaussian-process", "exact GP, ARD RBF", *SCIKIT_LEARN, most_rows=2000),
    Peer("table", "deep-ensemble", "deep ensemble, 5 of 2 x 128", "deep_ensemble", (NUMPY, TORCH)),
    Peer("table", "bde", "Bayesian deep ensemble (bde)", *BDE, most_rows=2000),
    Peer("table", "diffgbm", "DiffGBM", packages=(NUMPY, SKLEARN, "lightgbm==4.7.0", "diffgbm==0.1.2")),
    Peer("table", "realmlp", "RealMLP, quantiles", packages=PYTABKIT),
    Peer("table", "tabm", "TabM, quantiles", packages=PYTABKIT),
    Peer("classes", "catboost-classes", "CatBoost", *CATBOOST),
    Peer("classes", "lightgbm-classes", "LightGBM", *LIGHTGBM),
    Peer("classes", "realmlp-classes", "RealMLP", packages=PYTABKIT),
    Peer("classes", "logistic-regression", "logistic regression", *SCIKIT_LEARN),
    Peer("bandit", "squarecb", "Vowpal Wabbit --squarecb", "vowpal_wabbit", (NUMPY, "vowpalwabbit==9.11.9")),
)
"""All peers, in the order of the tables."""


def peers_of(benchmark: Benchmark) -> dict[str, Peer]:
    """Return the peers of a benchmark, by name."""
    return {peer.name: peer for peer in PEERS if peer.benchmark == benchmark}
