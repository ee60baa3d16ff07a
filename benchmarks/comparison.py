"""Murho with its defaults beside peers, over the same splits of tables, by a score that is better when lower.

A report of a split has ``raw`` and ``calibrated``, each the scores of that answer by name, or None. Murho counts with
its calibrated answer, which is its default, a peer with the better of its two. Peers' scores are read from
``benchmarks/peers/results.jsonl``; missing ones are measured, each peer in an environment of its own.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.datasets import DataSet, Split, add_data, read_set, splits
from benchmarks.peer_runs import peer_job
from benchmarks.peers import RESULTS, peers_of
from benchmarks.processes import add_cache
from benchmarks.results import Kept, Main, Report, add_counts, add_names, command, mean_and_error, shown, table
from benchmarks.runner import Cell, add_fits, fits_of, grouped, reports_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from typing import TypeAlias

    from benchmarks.peers import Benchmark
    from benchmarks.runner import Job

    Runs: TypeAlias = Mapping[str, Sequence[Report]]
    """System → reports of its splits."""

__all__ = ["MURHO", "Comparison", "kinds_of", "standing"]

MURHO = "Murho"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A benchmark of Murho beside peers.

    Attributes:
        about: Docstring of its module.
        benchmark: Whose peers.
        datasets: The sets.
        score: What is compared.
        columns: Of a set's table besides it: title → cell of reports whose ``scores`` are those of one answer.
        fit: The job of a fit: from data directory, set, number of the split, split and options.
        remarks: Adds lines below the summary, from set → system → reports.
    """

    about: str | None
    benchmark: Benchmark
    datasets: Mapping[str, DataSet]
    score: str
    columns: Mapping[str, Cell]
    fit: Callable[[Path, str, int, Split, dict[str, Any]], Job]
    remarks: Callable[[Mapping[str, Runs]], str] = lambda _: ""

    def add(self, parser: argparse.ArgumentParser) -> None:
        """Adds the options."""
        peers = peers_of(self.benchmark)
        add_data(parser, self.datasets)
        add_fits(parser)
        add_counts(parser, splits=(5, "the first N splits"))
        add_names(parser, peers=peers)
        only = parser.add_mutually_exclusive_group()
        only.add_argument("--only-peers", action="store_true", help="do not fit Murho")
        only.add_argument("--only-murho", action="store_true", help="neither show nor run peers")
        parser.add_argument("--kept-peers", action="store_true", help="show peers' kept scores; run no peer")
        parser.add_argument("--rerun-peers", action="store_true", help="measure peers anew")
        add_cache(parser)

    def run(self, options: argparse.Namespace) -> Report:
        """Measures and prints."""
        runs: dict[str, dict[str, list[Report]]] = {name: {} for name in options.sets}
        if not options.only_murho:
            for name in options.sets:
                runs[name] = {peer: found for peer in options.peers if (found := self._peer(peer, name, options))}
        if not options.only_peers:
            own = {} if options.budget is None else {"budget": options.budget}
            jobs = [
                replace(self.fit(options.data, name, number, split, own), line=name)
                for name in options.sets
                for number, split in enumerate(self._splits(name, options))
            ]
            fits = fits_of(jobs, options)
            runs = {name: {MURHO: fits[name], **runs[name]} for name in options.sets}
        runs = {name: of_set for name, of_set in runs.items() if of_set}
        for name, of_set in runs.items():
            print(f"{self.render_set(name, of_set)}\n")
        print("* the answer that is compared; ± standard error over splits, or over the test rows of a single one\n")
        print(self.render_summary(runs))
        return {"runs": runs, "verdicts": {name: standing(of_set, self.score) for name, of_set in runs.items()}}

    def _splits(self, name: str, options: argparse.Namespace) -> list[Split]:
        dataset = self.datasets[name]
        rows = dataset.rows if options.only_peers and options.kept_peers else read_set(dataset, options.data).num_rows
        return splits(dataset, rows, options.splits)

    def _peer(self, peer: str, name: str, options: argparse.Namespace) -> list[Report]:
        """Kept and measured reports; none unless all splits have one, because means over others do not compare."""
        kept, about = Kept(RESULTS), peers_of(self.benchmark)[peer]
        names = [f"{name}-{number:02d}" for number in range(options.splits)]
        found = [] if options.rerun_peers else [kept.get(f"{peer}-{each}", about.requirements) for each in names]
        known = [report for report in found if report is not None]
        if options.kept_peers or not about.script or len(known) == len(names):
            if 0 < len(known) < len(names):
                print(f"left out {peer} on {name}: {len(known)} of {len(names)} splits are kept", file=sys.stderr)
            return known if len(known) == len(names) else []
        jobs = [
            peer_job(peer, each, options.data, name, split, options.cache, number)
            for number, (each, split) in enumerate(zip(names, self._splits(name, options), strict=True))
        ]
        wanted = [job for job in jobs if job is not None]
        reports = reports_of(wanted, kept, workers=1, fresh=options.rerun_peers)
        return [reports[job.name] for job in wanted]

    def render_set(self, name: str, runs: Runs) -> str:
        """The table of a set: one line per system and answer, the lowest score first."""
        verdict, lines = standing(runs, self.score), {}
        titles = {peer.name: peer.title for peer in peers_of(self.benchmark).values()}
        for system in sorted(runs, key=verdict[self.score].__getitem__):
            for kind in kinds_of(runs[system]):
                chosen = " *" if kind == verdict["answer"][system] else ""
                reports = [report | {"scores": report[kind]} for report in runs[system]]
                lines[f"{titles.get(system, system)}, {kind}{chosen}"] = reports

        def score(reports: Sequence[Report]) -> str:
            return shown(_mean(reports, "scores", self.score), error_of(reports, "scores", self.score))

        return grouped(name, {self.score: score, **self.columns}, lines)

    def render_summary(self, runs: Mapping[str, Runs]) -> str:
        """One line per set with the score of every system, the best peer, and Murho's distance to it."""
        systems = [
            each for each in (MURHO, *peers_of(self.benchmark)) if any(each in of_set for of_set in runs.values())
        ]
        verdicts = {name: standing(of_set, self.score) for name, of_set in runs.items()}
        rows = []
        for name, verdict in verdicts.items():
            scores = verdict[self.score]
            cells = [shown(scores[each], verdict["error"][each]) if each in scores else "-" for each in systems]
            behind, error = verdict.get("behind"), verdict.get("behind_error")
            distance = (
                "-" if behind is None else f"{behind:+.1f} %" if error is None else f"{behind:+.1f} ± {error:.1f} %"
            )
            rows.append([name, *cells, verdict["best_peer"] or "-", distance])
        lines = [table([self.score, *systems, "best peer", "Murho behind it"], rows)]
        compared = [verdict for verdict in verdicts.values() if "behind" in verdict]
        if compared:
            lines.append(
                f"\nMurho has the lowest {self.score} on {sum(each['behind'] <= 0.0 for each in compared)} of "
                f"{len(compared)} sets; at worst {max(each['behind'] for each in compared):+.1f} % from the best peer."
            )
        return "\n".join([*lines, self.remarks(runs)])

    @property
    def main(self) -> Main:
        """The command's ``main``."""
        return command(self.about, self.add, self.run)


def standing(runs: Runs, score: str) -> dict[str, Any]:
    """How the systems stand on a set.

    Args:
        runs: System → reports of its splits; `MURHO` may be missing.
        score: Name of the score.

    Returns:
        Under the name of the score, system → the mean that is compared; ``error``: system → its standard error, see
        `error_of`; ``answer``: system → ``raw`` or ``calibrated``, the answer of that mean; ``best_peer``. With Murho
        also ``behind``, by how many per cent its score is above the best peer's (negative: below), and
        ``behind_error``, the standard error of that over the splits, paired (None with one split).
    """
    means: dict[str, float] = {}
    error: dict[str, float | None] = {}
    answer: dict[str, str] = {}
    for system, reports in runs.items():
        kinds = ["calibrated"] if system == MURHO else kinds_of(reports)
        answer[system] = min(kinds, key=lambda kind: _mean(reports, kind, score))
        means[system] = _mean(reports, answer[system], score)
        error[system] = error_of(reports, answer[system], score)
    best = min((system for system in runs if system != MURHO), key=means.__getitem__, default=None)
    verdict: dict[str, Any] = {score: means, "error": error, "answer": answer, "best_peer": best}
    if best is not None and MURHO in runs:
        verdict["behind"] = 100.0 * (means[MURHO] / means[best] - 1.0)
        ours, theirs = (
            np.array([report[answer[system]][score] for report in runs[system]]) for system in (MURHO, best)
        )
        verdict["behind_error"] = None
        if len(ours) == len(theirs) > 1:
            # Of the mean of ours - r theirs over the mean of theirs, with r the ratio of the means.
            left = ours - ours.mean() / theirs.mean() * theirs
            verdict["behind_error"] = float(100.0 * mean_and_error(left)[1] / theirs.mean())
    return verdict


def error_of(reports: Sequence[Report], kind: str, score: str) -> float | None:
    """Standard error of a mean score: over the splits, or over the test rows of the only one, if it was kept."""
    if len(reports) > 1:
        return mean_and_error([report[kind][score] for report in reports])[1]
    of_rows: float | None = reports[0][kind].get(f"{score}_error")
    return of_rows


def kinds_of(reports: Sequence[Report]) -> list[str]:
    """The answers that all reports have."""
    return [kind for kind in ("raw", "calibrated") if all(report[kind] is not None for report in reports)]


def _mean(reports: Sequence[Report], kind: str, score: str) -> float:
    return float(np.mean([report[kind][score] for report in reports]))
