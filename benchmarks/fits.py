"""Fits of Murho on splits of tables: several at a time, each scored on its test rows and saved when it is finished.

An interrupted benchmark continues where it stopped: a saved report is used again if options, rows and the sources of
``model/`` are the same.
"""

from __future__ import annotations

import hashlib
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from benchmarks.datasets import SETS, read_set
from benchmarks.distributions import LEVELS, quantile_scores
from benchmarks.results import ROOT, write_json
from murho.model.evaluation.judging import judge_encoded
from murho.model.predictive.prediction import Prediction, PredictOptions
from murho.model.runtime import use_threads_for_fitting
from murho.model.tables.schema_inference import columns_from_table, target_from_table
from murho.model.training.candidates import Reporter
from murho.model.training.options import make_options
from murho.model.training.train import train

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray

    from benchmarks.datasets import Split
    from murho.model.checkpoint.posterior import Posterior
    from murho.model.encoding.encoder import Encoded

__all__ = ["Job", "fit_all", "judge_rows", "measure", "quantiles_of", "sources", "timed_fit"]


@dataclass(frozen=True, slots=True)
class Job:
    """One fit.

    Attributes:
        name: Name of the job, unique in its benchmark, and of its file.
        dataset: Key of `benchmarks.datasets.SETS`.
        split: Training and test rows.
        options: Arguments of `model.training.options.make_options`; empty for the defaults.
    """

    name: str
    dataset: str
    split: Split
    options: dict[str, Any]


def fit_all(
    jobs: Sequence[Job],
    data: Path,
    kept: Path,
    *,
    workers: int,
    fresh: bool = False,
    measured: Callable[[Job, Path], dict[str, Any]] | None = None,
    say: Callable[[str], None] | None = None,
    line: Callable[[Mapping[str, Any]], str] | None = None,
) -> dict[str, dict[str, Any]]:
    """Runs `measure` for each job, several at a time; a fit uses one thread.

    Args:
        jobs: The fits.
        data: The data directory.
        kept: Directory of the saved reports, one file each.
        workers: Number of fits at a time.
        fresh: Whether to ignore saved reports.
        measured: Replaces `measure`; a function of a module, so that it can be sent to another process.
        say: Called with a line for each finished fit; by default prints to stderr.
        line: A report in short; by default that of a report of `measure`.

    Returns:
        Job's name → report.
    """
    say = say or (lambda line: print(line, file=sys.stderr, flush=True))
    measured = measured or measure
    kept.mkdir(parents=True, exist_ok=True)
    reports = {} if fresh else {job.name: report for job in jobs if (report := _kept(job, kept)) is not None}
    left = [job for job in jobs if job.name not in reports]
    if reports:
        say(f"{len(reports)} of {len(jobs)} fits are on disk in {kept}; --fresh fits again")
    if not left:
        return reports
    began = time.monotonic()
    for done, (job, report) in enumerate(_measured(left, data, measured, workers), start=1):
        _keep(job, kept, report)
        reports[job.name] = report
        seconds = (time.monotonic() - began) / done * (len(left) - done)
        say(
            f"{job.name}: {(line or _line)(report)}, {report['seconds']:.0f} s; "
            f"{done} of {len(left)} fits, about {_duration(seconds)} left"
        )
    return reports


def _line(report: Mapping[str, Any]) -> str:
    return f"RMSE {report['rmse']:.4g}, CRPS {report['crps']:.4g}, NLL {report['nll']:.3f}"


def _measured(
    jobs: Sequence[Job], data: Path, measured: Callable[[Job, Path], dict[str, Any]], workers: int
) -> Iterator[tuple[Job, dict[str, Any]]]:
    """Yields jobs and reports as they finish; with one worker, all jobs run in this process."""
    if workers == 1:
        for job in jobs:
            yield job, measured(job, data)
        return
    with ProcessPoolExecutor(min(workers, len(jobs)), mp_context=get_context("spawn")) as pool:
        running = {pool.submit(measured, job, data): job for job in jobs}
        try:
            for future in as_completed(running):
                yield running[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def measure(job: Job, data: Path) -> dict[str, Any]:
    """Trains on a job's training rows and scores its test rows.

    Returns:
        The report of `judge_rows`, with ``seconds`` of the training and ``training_rows``.
    """
    dataset = SETS[job.dataset]
    table = read_set(dataset, data)
    training, test = (table.take(rows) for rows in (job.split.training, job.split.test))
    posterior, seconds = timed_fit(training, dataset.target, job.options)
    return judge_rows(posterior, test, dataset.target) | {
        "training_rows": training.num_rows,
        "seconds": seconds,
    }


def timed_fit(training: pa.Table, target: str, options: dict[str, Any]) -> tuple[Posterior, float]:
    """Fits on one thread; returns the posterior and the seconds of the fit."""
    began = time.monotonic()
    with use_threads_for_fitting("cpu"):
        posterior = train(training, target, make_options(options), reporter=Reporter()).posterior
    return posterior, round(time.monotonic() - began, 2)


def judge_rows(posterior: Posterior, test: pa.Table, target: str) -> dict[str, Any]:
    """Scores of labelled rows.

    Returns:
        `model.evaluation.numbers.JudgedNumbers.report`, with ``quantiles``: ``raw`` and ``calibrated``, each
        the scores of `benchmarks.distributions.quantile_scores`.
    """
    truth = target_from_table(test, target)
    with use_threads_for_fitting("cpu"):
        rows = posterior.encoder.encode(columns_from_table(test, posterior.schema))
        report = judge_encoded(posterior, rows, truth).report()
        report["quantiles"] = {
            "raw": quantile_scores(quantiles_of(posterior, rows, calibrated=False), truth),
            "calibrated": quantile_scores(quantiles_of(posterior, rows, calibrated=True), truth),
        }
    return report


def quantiles_of(posterior: Posterior, rows: Encoded, *, calibrated: bool) -> NDArray[np.float64]:
    """Percentiles at `benchmarks.distributions.LEVELS`, ``[B, K]``; raw if the posterior has no calibration."""
    answer: Prediction = posterior.predict_encoded(rows, PredictOptions(percentiles=LEVELS, calibrated=calibrated))
    if answer.percentiles is None:
        raise AssertionError("256 samples have percentiles")
    return answer.percentiles


def sources() -> str:
    """A digest of the sources of ``model/``, 16 hexadecimal digits: a fit depends on no other part of Murho."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "model").rglob("*.py")):
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _kept(job: Job, kept: Path) -> dict[str, Any] | None:
    try:
        document = orjson.loads((kept / f"{job.name}.json").read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return None
    if document.get("made_by") != _key(job):
        return None
    report: dict[str, Any] = document["report"]
    return report


def _keep(job: Job, kept: Path, report: dict[str, Any]) -> None:
    path = kept / f"{job.name}.json"
    temporary = path.with_suffix(".part")
    write_json(temporary, {"made_by": _key(job), "report": report})
    temporary.replace(path)


def _key(job: Job) -> dict[str, Any]:
    rows = hashlib.sha256(np.concatenate([job.split.training, [-1], job.split.test]).astype("<i8").tobytes())
    return {
        "sources": sources(),
        "options": orjson.loads(orjson.dumps(job.options)),
        "rows": rows.hexdigest()[:16],
    }


def _duration(seconds: float) -> str:
    return f"{seconds / 60.0:.0f} min" if seconds >= 90.0 else f"{seconds:.0f} s"
