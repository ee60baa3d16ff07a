"""The runner of all benchmarks of tables: fits, several at a time, each scored on rows that it has not seen, and kept.

A benchmark of tables is a file with functions that make a `Task`, a training and a test table, and with the columns of
what it prints. Each fit is a `Job`, which this module runs, keeps in ``OUTPUT/fits.jsonl`` and shows. A kept report is
used again if arguments, rows and the sources of ``model/`` are the same.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import orjson

from benchmarks.results import ROOT, Kept, Report, mean_and_error, positive, shown, table
from benchmarks.scores import COVERAGES, LEVELS, class_report, quantile_scores
from murho.model.evaluation.class_scores import row_log_loss
from murho.model.evaluation.judging import judge_columns
from murho.model.predictive.prediction import PredictOptions
from murho.model.runtime import at_most_threads
from murho.model.tables.schema_inference import columns_from_table, target_from_table
from murho.model.training.candidates import Reporter
from murho.model.training.options import make_options
from murho.model.training.train import Trained, train

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pyarrow as pa

    from murho.model.checkpoint.posterior import Posterior


@dataclass(frozen=True, slots=True)
class Task:
    """What a fit learns from and what it is asked.

    Attributes:
        training: The training table.
        test: Labelled rows to be scored on.
        target: Name of the target column.
        options: Of `murho train`; empty for the defaults.
        also: Measures something else of what was trained, for the report.
    """

    training: pa.Table
    test: pa.Table
    target: str
    options: Mapping[str, Any] = field(default_factory=dict)
    also: Callable[[Trained], Report] | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """One measurement.

    Attributes:
        name: Unique among all jobs that are kept in a file.
        line: Line of the printed table; jobs of the same line are averaged.
        function: A function of a module, which can be sent to another process, from the arguments to a report with
            ``seconds``.
        arguments: Its arguments.
        of: What a kept report must agree in.
    """

    name: str
    line: str
    function: Callable[..., Report]
    arguments: tuple[Any, ...]
    of: object


def fit_job(name: str, line: str, make: Callable[..., Task], *arguments: Any) -> Job:
    """Return a fit of Murho.

    Args:
        name: Unique name.
        line: Line of the printed table.
        make: A function of a module that makes the task; runs in the process of the fit.
        arguments: Its arguments; a path, where data are, is no part of what a kept report must agree in.
    """

    def form(value: object) -> object:
        return value.tolist() if isinstance(value, np.ndarray) else getattr(value, "__qualname__", None)

    about = orjson.dumps([sources(), make, arguments], default=form, option=orjson.OPT_SERIALIZE_NUMPY)
    return Job(name, line, measure, (make, *arguments), hashlib.sha256(about).hexdigest()[:16])


@cache
def sources() -> str:
    """Return a digest of the sources of ``model/``: a fit depends on no other part of Murho."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "model").rglob("*.py")):
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def measure(make: Callable[..., Task], *arguments: Any) -> Report:
    """Train on a task's training table and score its test table, on one thread.

    Returns:
        ``rows`` and ``training_rows``; ``seconds`` of the training; ``printed``, the held-out scores that `murho train`
        prints; ``raw`` and ``calibrated``, the scores of `benchmarks.scores` of both answers; of numbers also ``rmse``
        and, of the raw mixture, ``nll`` and ``crps`` in closed form, and ``served_crps``; of classes ``losses``, the
        calibrated log losses of the rows; and what the task measures besides.
    """
    task = make(*arguments)
    with at_most_threads(1):
        began = time.monotonic()
        trained = train(task.training, task.target, make_options(dict(task.options)), reporter=Reporter())
        seconds = round(time.monotonic() - began, 2)
        posterior = trained.posterior
        scores = _of_classes if posterior.schema.target.classes else _of_numbers
        report = {
            "rows": task.test.num_rows,
            "training_rows": task.training.num_rows,
            "seconds": seconds,
            "printed": {name: trained.spec.metrics.get(name) for name in ("rmse", "nll", "crps", "log_loss")},
            **scores(posterior, task.test, task.target),
        }
        return report | (task.also(trained) if task.also else {})


def _of_numbers(posterior: Posterior, test: pa.Table, target: str) -> Report:
    truth, columns = target_from_table(test, target), columns_from_table(test, posterior.schema)
    judged = judge_columns(posterior, columns, truth).report()
    scores = {"rmse": judged["rmse"], "nll": judged["nll"], "crps": judged["raw"]["crps"]}
    report: Report = scores | {"served_crps": judged["crps"]}
    for name in ("raw", "calibrated"):
        answer = posterior.predict(columns, PredictOptions(percentiles=LEVELS, calibrated=name == "calibrated"))
        report[name] = quantile_scores(np.asarray(answer.percentiles), truth)
    return report


def _of_classes(posterior: Posterior, test: pa.Table, target: str) -> Report:
    labels = np.searchsorted(posterior.schema.target.classes or (), [str(cell) for cell in test[target].to_pylist()])
    columns = columns_from_table(test, posterior.schema)
    raw, calibrated = (
        posterior.predict(columns, PredictOptions(percentiles=(), calibrated=served)).probabilities
        for served in (False, True)
    )
    reports = {"raw": class_report(raw, labels), "calibrated": class_report(calibrated, labels)}
    return {**reports, "losses": row_log_loss(calibrated, labels)}


def add_fits(parser: argparse.ArgumentParser) -> None:
    """Add ``--budget``, ``--jobs`` and ``--fresh``."""
    cores = os.cpu_count() or 1
    parser.add_argument("--budget", type=float, metavar="S", help="seconds of a fit (default: that of murho train)")
    parser.add_argument("--jobs", type=positive, default=cores, metavar="N", help="fits at a time (default: cores)")
    parser.add_argument("--fresh", action="store_true", help="ignore finished fits on disk")


def fits_of(jobs: Sequence[Job], options: argparse.Namespace) -> dict[str, list[Report]]:
    """Line of the table → reports of its jobs; with options of `add_fits`, kept in ``OUTPUT/fits.jsonl``."""
    reports = reports_of(jobs, Kept(options.output / "fits.jsonl"), workers=options.jobs, fresh=options.fresh)
    lines: dict[str, list[Report]] = defaultdict(list)
    for job in jobs:
        lines[job.line].append(reports[job.name])
    return dict(lines)


def reports_of(jobs: Sequence[Job], kept: Kept, *, workers: int, fresh: bool = False) -> dict[str, Report]:
    """Run jobs, several at a time, but for those that are kept; each is kept as soon as it is finished.

    Args:
        jobs: The jobs.
        kept: Where reports are kept.
        workers: Jobs at a time; with 1 all run in this process.
        fresh: Whether to ignore kept reports.

    Returns:
        Job's name → report.
    """
    found = {} if fresh else {job.name: report for job in jobs if (report := kept.get(job.name, job.of)) is not None}
    left = [job for job in jobs if job.name not in found]
    if found:
        _say(f"{len(found)} of {len(jobs)} are in {kept.path}")
    began = time.monotonic()
    for done, (job, report) in enumerate(_finished(left, workers), start=1):
        kept.put(job.name, job.of, report)
        found[job.name] = report
        minutes = (time.monotonic() - began) / done * (len(left) - done) / 60.0
        _say(f"{job.name}: {report['seconds']:.0f} s; {done} of {len(left)}, about {minutes:.0f} min left")
    return found


def _finished(jobs: Sequence[Job], workers: int) -> Iterable[tuple[Job, Report]]:
    if workers == 1 or len(jobs) < 2:
        for job in jobs:
            yield job, job.function(*job.arguments)
        return
    with ProcessPoolExecutor(min(workers, len(jobs)), mp_context=get_context("spawn")) as pool:
        running = {pool.submit(job.function, *job.arguments): job for job in jobs}
        try:
            for future in as_completed(running):
                yield running[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


Cell: TypeAlias = "Callable[[Sequence[Report]], str]"
"""The text of a cell from the reports of its line."""


def values(reports: Sequence[Report], path: str) -> list[float]:
    """Return a number of each report, by its keys with dots between them; without reports that lack it."""
    found: list[Any] = list(reports)
    for key in path.split("."):
        found = [each.get(key) if isinstance(each, dict) else None for each in found]
    return [float(each) for each in found if each is not None]


def mean(path: str, factor: float = 1.0) -> Cell:
    """Mean ± standard error over the reports."""

    def cell(reports: Sequence[Report]) -> str:
        known = values(reports, path)
        return shown(*(factor * each for each in mean_and_error(known))) if known else "-"

    return cell


def geometric(path: str, other: str) -> Cell:
    """Geometric mean of the ratios of two numbers."""

    def cell(reports: Sequence[Report]) -> str:
        ratios = np.divide(values(reports, path), values(reports, other))
        return f"{np.exp(np.log(ratios).mean()):.2f}"

    return cell


COVERAGE_CELLS: dict[str, Cell] = {f"{level} %": mean(f"calibrated.coverage.{level}", 100.0) for level in COVERAGES}
"""What calibrated bands cover, per cent."""


def grouped(first: str, columns: Mapping[str, Cell], lines: Mapping[str, Sequence[Report]]) -> str:
    """Return a table with a line for each group of reports.

    Args:
        first: Header of the first column, the names of the lines.
        columns: Header → what makes a cell of the reports.
        lines: Name → reports.
    """
    rows = [[name, str(len(of)), *(cell(of) for cell in columns.values())] for name, of in lines.items() if of]
    return table([first, "fits", *columns], rows)


def one_each(first: str, columns: Mapping[str, Cell], lines: Mapping[str, Report]) -> str:
    """Return `grouped` of a single report a line."""
    return grouped(first, columns, {name: [of] for name, of in lines.items()})
