"""`python -m benchmarks.uci --data DIR`: accuracy on the standard UCI splits, beside published results.

Every split is trained from its training rows alone and scored on its test rows. Log-likelihood, RMSE and CRPS are of
the raw predictive, a mixture over draws. ± is the standard error over splits, of published rows as in their source.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from benchmarks.datasets import UCI, add_data, read_set, split_task, splits
from benchmarks.results import Report, command, positive, table
from benchmarks.runner import COVERAGE_CELLS, Job, add_fits, fit_job, fits_of, grouped, mean

if TYPE_CHECKING:
    import argparse

__all__ = ["PUBLISHED", "jobs_of", "main"]

NETWORKS = ("defaults", "protocol")
PUBLISHED = {
    "energy": ("-1.01 ± 0.06 DVI", "-0.53 ± 0.08 WEv"),
    "naval": ("6.29 ± 0.04 DVI", "7.12 ± 0.04 GMVIP"),
    "power": ("-2.80 ± 0.00 DVI", "-2.67 ± 0.01 MCD2"),
    "protein": ("-2.84 ± 0.01 dDVI", "-2.63 ± 0.00 Ev"),
    "wine (!)": ("-0.90 ± 0.01 DVI", "-0.89 ± 0.05 Ev"),
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


def jobs_of(options: argparse.Namespace) -> list[Job]:
    """A fit for each split."""
    jobs = []
    own: dict[str, Any] = {} if options.budget is None else {"budget": options.budget}
    if options.members is not None:
        own["members"] = options.members
    for name in options.sets:
        dataset = UCI[name]
        protocol = {"hidden": [dataset.hidden], "activation": "relu", "skip": False}
        given = own if options.network == "defaults" else protocol | own
        rows = read_set(dataset, options.data).num_rows
        line = next(each for each in PUBLISHED if each.partition(" ")[0] == name)
        for number, split in enumerate(splits(dataset, rows, options.splits or dataset.most_splits)):
            # The name says what differs, so that the comparison with peers takes the same fits.
            parts = [name, f"{number:02d}", options.network, *(f"{key}={own[key]}" for key in sorted(own))]
            jobs.append(fit_job("-".join(parts), line, split_task, options.data, name, split, given))
    return jobs


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_data(parser, UCI)
    add_fits(parser)
    parser.add_argument("--splits", type=positive, metavar="N", help="the first N splits (default 20; protein 5)")
    parser.add_argument("--network", choices=NETWORKS, default="defaults", help="or one hidden layer of 50 ReLU units")
    parser.add_argument("--members", type=positive, metavar="M", help="networks in a fit (default: as murho train)")


def run(options: argparse.Namespace) -> Report:
    """Fits and prints."""
    lines = fits_of(jobs_of(options), options)
    print(grouped(f"UCI, {options.network}", COLUMNS, lines))
    published = [[name, *PUBLISHED[name]] for name in lines]
    print(f"\n{table(['log-likelihood', 'best mean-field published', 'best network published'], published)}\n{SOURCES}")
    return {"runs": lines}


main = command(__doc__, add, run)

if __name__ == "__main__":
    sys.exit(main())
