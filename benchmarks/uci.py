"""`python -m benchmarks.uci --data DIR`: accuracy on the standard UCI splits, beside published results.

Every split is trained from its training rows alone and scored on its test rows. Log-likelihood, RMSE and CRPS are of
the raw predictive, a mixture over draws. ± is the standard error over splits, of published rows as in their source.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from benchmarks.datasets import UCI, Split, add_data, split_jobs, split_task
from benchmarks.results import Report, add_counts, command, table
from benchmarks.runner import COVERAGE_CELLS, Task, add_fits, fits_of, grouped, mean

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from pathlib import Path

NETWORKS = ("defaults", "protocol")
PUBLISHED = {
    "energy": ("-1.01 ± 0.06 DVI", "-0.53 ± 0.08 WEv"),
    "naval": ("6.29 ± 0.04 DVI", "7.12 ± 0.04 GMVIP"),
    "power": ("-2.80 ± 0.00 DVI", "-2.67 ± 0.01 MCD2"),
    "protein": ("-2.84 ± 0.01 dDVI", "-2.63 ± 0.00 Ev"),
    "wine": ("(!) -0.90 ± 0.01 DVI", "(!) -0.89 ± 0.05 Ev"),
    "yacht": ("-0.47 ± 0.03 DVI", "-0.16 ± 0.24 WEv"),
}
"""Best published test log-likelihood of a mean-field posterior, and of any network; higher is better. Flow and
diffusion models and pretrained transformers are left out: their densities can follow wine's or protein's integers."""
SOURCES = """
(!) wine's target is whole grades; narrow components on them raise a density without bound, so that its log-likelihood
can't be compared with that of another model (its CRPS can)
DVI: Wu et al. 2019, deterministic variational inference, 1 x 50 (protein 1 x 100), heteroscedastic, empirical Bayes;
20 splits of its own, ± standard error; wine with 1588 rows. dDVI: the same with a diagonal covariance.
WEv: weighted evidential regression, splits of its own, ± standard deviation; quoted second-hand
GMVIP: generalised implicit processes, 2 x 10; 5 random 90/10 splits, ± standard deviation
MCD2: MC dropout, 2 x 50, 20,000 epochs (protein 10,000), Gal's files; the standard splits, ± standard error
Ev: deep evidential regression, Amini et al. 2020, ± standard error; quoted second-hand"""
COLUMNS = {
    "log-likelihood": mean("nll", -1.0),
    "CRPS": mean("crps"),
    **COVERAGE_CELLS,
}


def task(data: Path, name: str, split: Split, options: Mapping[str, Any]) -> Task:
    """Return a split for the published network."""
    return split_task(data, name, split, {**options, "hidden": [UCI[name].hidden], "activation": "relu", "skip": False})


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_data(parser, UCI)
    add_fits(parser)
    add_counts(parser, splits=(20, "the first N splits; protein has 5"))
    parser.add_argument("--network", choices=NETWORKS, default="defaults", help="or one hidden layer of 50 ReLU units")


def run(options: argparse.Namespace) -> Report:
    """Fit and print."""
    jobs = split_jobs(options) if options.network == "defaults" else split_jobs(options, task, "protocol-")
    lines = fits_of(jobs, options)
    print(grouped(f"UCI, {options.network}", COLUMNS, lines))
    published = [[name, *PUBLISHED[name]] for name in lines]
    print(f"\n{table(['log-likelihood', 'best mean-field published', 'best network published'], published)}\n{SOURCES}")
    return {"runs": lines}


main = command(__doc__, add, run)

if __name__ == "__main__":
    sys.exit(main())
