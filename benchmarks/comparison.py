"""Murho with its defaults beside peers, over the same splits of tables, by a score that is better when lower.

A report of a split has ``raw`` and ``calibrated``, each the scores of that answer by name, or None. Murho counts with
its calibrated answer, which is its default, a peer with the better of its two. Peers' scores are read from
``benchmarks/peers/results.jsonl``; missing ones are measured, each peer in an environment of its own.

All peers hold back the same 15 % of the training rows, for early stopping and for the conformal correction of numbers
or the calibration of classes, Beta calibration for two and matrix scaling for more (`probmetrics`).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow.compute as pc

from benchmarks.datasets import SETS, DataSet, Split, add_data, numeric, read_set, split_jobs, split_task, splits
from benchmarks.peers import CALIBRATOR, PEERS, RESULTS, Peer, peers_of
from benchmarks.peers.tables import Answer, Features, Predictive, TableTask
from benchmarks.processes import SystemProcess, add_cache
from benchmarks.results import Kept, Main, Report, add_counts, add_names, command, mean_and_error, shown, table
from benchmarks.runner import Cell, Job, Task, add_fits, fits_of, grouped, reports_of
from benchmarks.scores import LEVELS, class_report, conformal_quantiles, normal_quantiles, quantile_scores

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray

    from benchmarks.peers import Benchmark
    from murho.model.arrays import Bools, Doubles, Ints

    Runs: TypeAlias = Mapping[str, Sequence[Report]]
    """System → reports of its splits."""

MURHO = "Murho"
INNER_SHARE = 0.15


@dataclass(frozen=True, slots=True)
class Comparison:
    """A benchmark of Murho beside peers.

    Attributes:
        about: Docstring of its module.
        benchmark: Whose peers.
        datasets: The sets.
        score: What is compared.
        columns: Of a set's table besides it: title → cell of reports whose ``scores`` are those of one answer.
        remarks: Adds lines below the summary, from set → system → reports.
        make: Makes the task of a fit, see `benchmarks.datasets.split_jobs`.
        kind: Begins the names of the fits.
    """

    about: str | None
    benchmark: Benchmark
    datasets: Mapping[str, DataSet]
    score: str
    columns: Mapping[str, Cell]
    remarks: Callable[[Mapping[str, Runs]], str]
    make: Callable[[Path, str, Split, Mapping[str, Any]], Task] = split_task
    kind: str = ""

    def add(self, parser: argparse.ArgumentParser) -> None:
        """Add the options."""
        peers = peers_of(self.benchmark)
        add_data(parser, self.datasets)
        add_fits(parser)
        add_counts(parser, splits=(5, "the first N splits"))
        add_names(parser, peers=peers)
        parser.add_argument("--only-peers", action="store_true", help="do not fit Murho")
        parser.add_argument("--kept-peers", action="store_true", help="show peers' kept scores; run no peer")
        add_cache(parser)

    def run(self, options: argparse.Namespace) -> Report:
        """Measure and print."""
        runs = {
            name: {peer: found for peer in options.peers if (found := self._peer(peer, name, options))}
            for name in options.sets
        }
        if not options.only_peers:
            fits = fits_of(split_jobs(options, self.make, self.kind), options)
            runs = {name: {MURHO: fits[name], **runs[name]} for name in options.sets}
        runs = {name: of_set for name, of_set in runs.items() if of_set}
        for name, of_set in runs.items():
            print(f"{self.render_set(name, of_set)}\n")
        print("* the answer that is compared; ± standard error over splits, or over the test rows of a single one\n")
        print(self.render_summary(runs))
        return {"runs": runs, "verdicts": {name: standing(of_set, self.score) for name, of_set in runs.items()}}

    def _peer(self, peer: str, name: str, options: argparse.Namespace) -> list[Report]:
        """Kept and measured reports; none unless all splits have one, because means over others do not compare."""
        kept, about = Kept(RESULTS), peers_of(self.benchmark)[peer]
        names = [f"{name}-{number:02d}" for number in range(options.splits)]
        found = [kept.get(f"{peer}-{each}", about.requirements) for each in names]
        known = [report for report in found if report is not None]
        if options.kept_peers or not about.script or len(known) == len(names):
            if 0 < len(known) < len(names):
                print(f"left out {peer} on {name}: {len(known)} of {len(names)} splits are kept", file=sys.stderr)
            return known if len(known) == len(names) else []
        jobs = [
            peer_job(peer, each, options.data, name, split, options.cache, number)
            for number, (each, split) in enumerate(zip(names, splits(self.datasets[name], options.splits), strict=True))
        ]
        wanted = [job for job in jobs if job is not None]
        reports = reports_of(wanted, kept, workers=1)
        return [reports[job.name] for job in wanted]

    def render_set(self, name: str, runs: Runs) -> str:
        """Return the table of a set: one line per system and answer, the lowest score first."""
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
    """Return standard error of a mean score: over the splits, or over the test rows of the only one, if it was kept."""
    if len(reports) > 1:
        return mean_and_error([report[kind][score] for report in reports])[1]
    of_rows: float | None = reports[0][kind].get(f"{score}_error")
    return of_rows


def kinds_of(reports: Sequence[Report]) -> list[str]:
    """Return the answers that all reports have."""
    return [kind for kind in ("raw", "calibrated") if all(report[kind] is not None for report in reports)]


def _mean(reports: Sequence[Report], kind: str, score: str) -> float:
    return float(np.mean([report[kind][score] for report in reports]))


def peer_job(
    name: str, split_name: str, data: Path, dataset: str, split: Split, cache: Path, seed: int = 0
) -> Job | None:
    """Return the measurement of a peer on a split; None for a peer without a script or with more rows than it takes."""
    peer = next(peer for peer in PEERS if peer.name == name)
    if not peer.script or (peer.most_rows is not None and len(split.training) > peer.most_rows):
        return None
    arguments = (peer, data, dataset, split, cache, seed)
    return Job(f"{name}-{split_name}", name, measure_peer, arguments, peer.requirements)


def measure_peer(peer: Peer, data: Path, dataset: str, split: Split, cache: Path, seed: int) -> Report:
    """Fit a peer to a split's training rows and score its test rows; ``seed`` is the number of the split."""
    table, target = read_set(SETS[dataset], data), SETS[dataset].target
    classes = peer.benchmark == "classes"
    if classes:
        split = known_rows(table, target, split)
    task, truth = task_of(table, target, split, seed, classes=classes)
    with SystemProcess(peer, None, cache=cache) as process:
        reply = process.ask(task)
    answer: Answer = reply["answer"]
    report: Report = {"rows": len(truth), "seconds": round(reply["seconds"], 2)}
    if not classes:
        return report | number_scores(answer, task.target[task.inner], truth)
    with SystemProcess(CALIBRATOR, None, cache=cache) as process:
        calibrated = process.ask((answer.inner, task.target[task.inner], answer.base))["answer"]
    return report | {"raw": class_report(answer.raw, truth), "calibrated": class_report(calibrated, truth)}


def known_rows(table: pa.Table, target: str, split: Split) -> Split:
    """Return the split without test rows of a class that no training row has, which no system can name."""
    known = pc.unique(table[target].take(split.training))
    return Split(split.training, split.test[np.asarray(pc.is_in(table[target].take(split.test), value_set=known))])


def task_of(
    table: pa.Table, target: str, split: Split, seed: int, *, classes: bool = False
) -> tuple[TableTask, NDArray[Any]]:
    """Return the task of a split, and the targets of its test rows: numbers, or numbers of classes."""
    cells = np.array([str(cell) for cell in table[target].to_pylist()])
    values: NDArray[Any] = np.unique(cells[split.training], return_inverse=True)[1] if classes else cells.astype(float)
    truth: NDArray[Any]
    if classes:
        training, truth = values.reshape(-1), np.searchsorted(np.unique(cells[split.training]), cells[split.test])
    else:
        training, truth = values[split.training], values[split.test]
    features, levels = features_of(table, target), np.array(LEVELS) / 100.0
    inner = inner_rows(training if classes else np.zeros(0, dtype=np.int64), len(training), seed)
    return TableTask(features.take(split.training), training, inner, features.take(split.test), levels, seed), truth


def features_of(table: pa.Table, target: str) -> Features:
    """Features for peers: a column of numbers and missing cells is numeric, any other is categorical.

    Args:
        table: Text columns, as `model.tables.table_files.read_table` reads a CSV file.
        target: Name of the target column.
    """
    numbers, codes = [], []
    for name in table.column_names:
        if name == target:
            continue
        cells = table[name].to_pylist()
        if (column := numeric(cells)) is not None:
            numbers.append(column)
        else:
            known = {cell: code for code, cell in enumerate(sorted({cell for cell in cells if cell}))}
            codes.append([known.get(cell, -1) for cell in cells])
    rows = table.num_rows
    return Features(
        np.array(numbers, dtype=np.float64).reshape(len(numbers), rows).T,
        np.array(codes, dtype=np.int64).reshape(len(codes), rows).T,
    )


def inner_rows(labels: Ints, rows: int, split: int) -> Bools:
    """Mask of the training rows that are held back, ``[N]``: 15 % of them, the same for every peer.

    One row of each class is never held back; without classes, labels are empty.
    """
    order = np.random.default_rng([split, rows]).permutation(rows)
    first: Any = np.unique(labels[order], return_index=True)[1] if len(labels) else []
    held_back = np.zeros(rows, dtype=bool)
    held_back[np.delete(order, first)[: round(INNER_SHARE * rows)]] = True
    return held_back


def number_scores(answer: Answer, inner_truth: Doubles, truth: Doubles) -> Report:
    """Scores of an answer of numbers.

    Returns:
        ``rmse``; ``raw`` and ``calibrated``, each the scores of `quantile_scores`, ``raw`` None for a peer without a
        distribution of its own.
    """
    raw: Predictive | None = answer.raw
    base, held_back = answer.base, answer.inner
    if base.std is not None:
        errors = (inner_truth - held_back.mean) / held_back.std
        repeated = np.repeat(errors[:, None], len(LEVELS), axis=1)
        corrected = conformal_quantiles(repeated, base.mean[:, None], base.std[:, None])
    else:
        corrected = conformal_quantiles(inner_truth[:, None] - held_back.quantiles, base.quantiles)
    mean = base.mean if raw is None else raw.mean
    report: Report = {
        "rmse": float(np.sqrt(np.mean((truth - mean) ** 2))),
        "raw": None,
        "calibrated": quantile_scores(corrected, truth),
    }
    if raw is not None and raw.quantiles is not None:
        report["raw"] = quantile_scores(raw.quantiles, truth)
    elif raw is not None and raw.std is not None:
        report["raw"] = quantile_scores(normal_quantiles(raw.mean, raw.std), truth)
    return report
