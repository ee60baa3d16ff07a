"""Peers of `benchmarks.tabular` on the splits of `benchmarks.shift`, beside Murho split by split.

A peer gets a split as `benchmarks.peer_runs` gives it the shuffled ones: the same inner rows for early stopping and for
its conformal correction, 99 levels. The better of its raw and its conformal answer counts, Murho's calibrated one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.comparison import kinds_of
from benchmarks.datasets import SETS, read_set
from benchmarks.environments import environment
from benchmarks.fits import Job, fit_all
from benchmarks.peer_runs import QuantileTrials, start
from benchmarks.peers import peers_of
from benchmarks.results import table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["PEERS", "Beside", "measure_peer", "peer_reports", "render_beside"]

PEERS = peers_of("table")
BEHIND = 1.1
"""Ratio of the CRPS from which a split is counted as behind."""


def peer_reports(
    name: str, jobs: Sequence[Job], data: Path, kept: Path, *, cache: Path, workers: int
) -> dict[str, Any]:
    """Reports of a peer on splits: job's name → the scores of `benchmarks.peer_runs.score`, with ``seconds``.

    Args:
        name: A peer of `benchmarks.tabular`.
        jobs: The splits.
        data: The data directory.
        kept: Directory of the saved reports; they are used again like Murho's, if the peer's packages are the same.
        cache: Directory of the peers' environments.
        workers: Number of fits at a time.

    Returns:
        The reports, without splits of more training rows than the peer's `most_rows`.
    """
    peer = PEERS[name]
    environment(peer.library.module, peer.library.packages, cache=cache)  # before several processes would make it
    options = {"requirements": peer.requirements}
    taken = [
        replace(job, options=options)
        for job in jobs
        if peer.most_rows is None or len(job.split.training) <= peer.most_rows
    ]
    measured = partial(measure_peer, name=name, cache=cache)
    return fit_all(taken, data, kept / name, workers=workers, measured=measured, line=_line)


def measure_peer(job: Job, data: Path, *, name: str, cache: Path) -> dict[str, Any]:
    """Fits a peer to a job's training rows and scores its test rows."""
    dataset = SETS[job.dataset]
    trials = QuantileTrials.of(read_set(dataset, data), dataset, [job.split])
    with start(PEERS[name], f"{name} on {job.name}", cache) as process:
        reply = process.ask({"task": trials.task(0)})
    return trials.scores(0, reply["answer"]) | {"seconds": round(reply["seconds"], 2)}


def _line(report: Mapping[str, Any]) -> str:
    return f"RMSE {report['rmse']:.4g}, CRPS {_lowest_crps(report):.4g}"


def _lowest_crps(report: Mapping[str, Any]) -> float:
    return min(float(report[kind]["crps"]) for kind in kinds_of([report]))


@dataclass(frozen=True, slots=True)
class Beside:
    """CRPS of Murho and of a peer on one split."""

    split: str
    murho: float
    peer: float

    @classmethod
    def of(cls, split: str, murho: Mapping[str, Any], peer: Mapping[str, Any]) -> Beside:
        """From a report of `benchmarks.fits.measure` and one of `measure_peer`."""
        return cls(split, float(murho["quantiles"]["calibrated"]["crps"]), _lowest_crps(peer))

    @property
    def ratio(self) -> float:
        """Murho's CRPS over the peer's."""
        return self.murho / self.peer


def render_beside(name: str, splits: Sequence[Beside]) -> str:
    """One line per split, then the geometric mean of the ratios and how many splits are more than 10 % behind."""
    rows = [[each.split, f"{each.murho:.4g}", f"{each.peer:.4g}", f"{each.ratio:.2f}"] for each in splits]
    ratios = np.array([each.ratio for each in splits])
    behind = int((ratios > BEHIND).sum())
    return (
        f"{table(['CRPS', 'Murho', PEERS[name].title, 'ratio'], rows)}\n\n"
        f"geometric mean of the ratios {np.exp(np.log(ratios).mean()):.2f}; Murho is more than "
        f"{100 * (BEHIND - 1):.0f} % behind on {behind} of {len(splits)} splits, at worst {ratios.max():.2f} times"
    )
