"""Many fits of Murho on parts of tables: several at a time, each judged on its test rows and kept on disk at once.

An interrupted benchmark goes on where it was: a kept fit counts as done if it was made with the same options by the
same sources of ``model/``.
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
from murho.model.data.schema_inference import columns_from_table, target_from_table
from murho.model.engines.prediction import PredictOptions
from murho.model.evaluation.evaluate import evaluate_rows
from murho.model.runtime.devices import use_threads_for_fitting
from murho.model.training.options import make_options
from murho.model.training.train import train

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray

    from benchmarks.datasets import Split
    from murho.model.fitting.fit_types import Epoch
    from murho.model.posterior.posterior import Posterior

__all__ = ["Job", "Silence", "fit_all", "judge_rows", "measure", "quantiles_of", "sources", "timed_fit"]


class Silence:
    """A reporter that says nothing."""

    def say(self, message: str) -> None:
        """Nothing."""

    def begin(self, title: str) -> None:
        """Nothing."""

    def epoch(self, epoch: Epoch) -> None:
        """Nothing."""

    def end(self) -> None:
        """Nothing."""


@dataclass(frozen=True, slots=True)
class Job:
    """One fit.

    Attributes:
        name: Unique in its benchmark, and a file name.
        dataset: Of `benchmarks.datasets.SETS`.
        split: Training and test rows.
        options: Of `model.training.options.make_options`; empty for the defaults.
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
) -> dict[str, dict[str, Any]]:
    """`measure` for each job, as many at a time as asked for: a fit uses one thread.

    Args:
        jobs: What to fit.
        data: The data directory.
        kept: Where finished fits are kept, a file each.
        workers: How many at a time.
        fresh: Whether to fit even what is kept.
        measured: Stands in for `measure`; a function of a module, so that it can be sent to another process.
        say: Is told of each finished fit; prints to stderr by default.

    Returns:
        Reports by name of the job.
    """
    say = say or (lambda line: print(line, file=sys.stderr, flush=True))
    measured = measured or measure
    kept.mkdir(parents=True, exist_ok=True)
    reports = {} if fresh else {job.name: report for job in jobs if (report := _kept(job, kept)) is not None}
    left = [job for job in jobs if job.name not in reports]
    if reports:
        say(f"{len(reports)} of {len(jobs)} fits are on disk in {kept}; --fresh makes them anew")
    if not left:
        return reports
    began = time.monotonic()
    for done, (job, report) in enumerate(_measured(left, data, measured, workers), start=1):
        _keep(job, kept, report)
        reports[job.name] = report
        seconds = (time.monotonic() - began) / done * (len(left) - done)
        say(
            f"{job.name}: RMSE {report['rmse']:.4g}, CRPS {report['crps']:.4g}, NLL {report['nll']:.3f}, "
            f"{report['seconds']:.0f} s; {done} of {len(left)} fits, about {_duration(seconds)} left"
        )
    return reports


def _measured(
    jobs: Sequence[Job], data: Path, measured: Callable[[Job, Path], dict[str, Any]], workers: int
) -> Iterator[tuple[Job, dict[str, Any]]]:
    """Jobs and reports as they finish; with one worker in this process, one after the other."""
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
    """Trains on a job's training rows and judges on its test rows.

    Returns:
        `judge_rows`, and ``seconds`` of the training, ``training_rows``.
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
    """A fit on one thread, and its seconds."""
    began = time.monotonic()
    with use_threads_for_fitting("cpu"):
        posterior = train(training, target, make_options(options), reporter=Silence()).posterior
    return posterior, round(time.monotonic() - began, 2)


def judge_rows(posterior: Posterior, test: pa.Table, target: str) -> dict[str, Any]:
    """Scores of labelled rows.

    Returns:
        What `model.evaluation.evaluate.evaluate_rows` reports; ``quantiles`` with ``raw`` and ``calibrated``, each as
        `benchmarks.distributions.quantile_scores` gives it.
    """
    truth = target_from_table(test, target)
    with use_threads_for_fitting("cpu"):
        rows = posterior.encoder.encode(columns_from_table(test, posterior.schema))
        report = evaluate_rows(posterior, rows, truth)
        report["quantiles"] = {
            "raw": quantile_scores(quantiles_of(posterior, rows, calibrated=False), truth),
            "calibrated": quantile_scores(quantiles_of(posterior, rows, calibrated=True), truth),
        }
    return report


def quantiles_of(posterior: Posterior, rows: NDArray[np.float32], *, calibrated: bool) -> NDArray[np.float64]:
    """Its percentiles at `benchmarks.distributions.LEVELS`, ``[B, K]``; uncalibrated if it has no calibration."""
    answer = posterior.predict_encoded(rows, PredictOptions(percentiles=LEVELS, calibrated=calibrated))
    if answer.percentiles is None:
        raise AssertionError("256 samples have percentiles")
    return answer.percentiles


def sources() -> str:
    """What ``model/`` is made of, as 16 hexadecimal digits: a fit depends on it, and on nothing else of Murho."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "model").rglob("*.py")):
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _kept(job: Job, kept: Path) -> dict[str, Any] | None:
    try:
        found = orjson.loads((kept / f"{job.name}.json").read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return None
    if found.get("made_by") != _key(job):
        return None
    report: dict[str, Any] = found["report"]
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
