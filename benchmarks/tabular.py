"""`python -m benchmarks.tabular --data DIR`: Murho with its defaults beside other probabilistic tabular models.

All systems have the same splits and give the same quantiles, from which `benchmarks.scores` estimates the CRPS.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.comparison import MURHO, Comparison, standing
from benchmarks.datasets import TABULAR
from benchmarks.runner import mean, values
from benchmarks.scores import COVERAGES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.comparison import Runs


def widths(runs: Mapping[str, Runs]) -> str:
    """Where Murho's calibrated 90 % bands are no wider than the best peer's."""
    ratios = {}
    for name, of_set in runs.items():
        best = standing(of_set, "crps")["best_peer"]
        if best is not None and MURHO in of_set:
            ours, theirs = (np.mean(values(of_set[system], "calibrated.width.90")) for system in (MURHO, best))
            ratios[name] = ours / theirs
    said = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
    return f"Widths of its calibrated 90 % bands to the best peer's: {said}." if said else ""


COMPARISON = Comparison(
    about=__doc__,
    benchmark="table",
    datasets=TABULAR,
    score="crps",
    columns={
        "RMSE": mean("rmse"),
        **{f"{level} %": mean(f"scores.coverage.{level}", 100.0) for level in COVERAGES},
        "width of 90 %": mean("scores.width.90"),
        "seconds": mean("seconds"),
    },
    remarks=widths,
)
main = COMPARISON.main

if __name__ == "__main__":
    sys.exit(main())
