"""Fits of Murho on splits of tables with classes, scored on their test rows."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from benchmarks.class_runs import labelled, scores_of
from benchmarks.class_tables import CLASSES
from benchmarks.datasets import read_set
from benchmarks.fits import timed_fit
from murho.model.predictive.prediction import PredictOptions
from murho.model.runtime import use_threads_for_fitting
from murho.model.tables.schema_inference import columns_from_table

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pyarrow as pa

    from benchmarks.fits import Job

__all__ = ["filled_in", "line_of", "measure"]


def measure(job: Job, data: Path) -> dict[str, Any]:
    """Trains on a job's training rows and scores its test rows.

    Returns:
        ``rows``, ``training_rows``, ``seconds`` of the training, ``map``, the kind of calibration that was chosen, and
        ``raw`` and ``calibrated``, each the scores of `benchmarks.class_runs.scores_of`. Without a calibration both are
        the same.
    """
    dataset = CLASSES[job.dataset]
    table = read_set(dataset, data)
    split = labelled(table, dataset, job.split)
    training, test = (table.take(rows) for rows in (split.training, split.test))
    posterior, seconds = timed_fit(training, dataset.target, {"task": "classification", **job.options})
    if posterior.schema.target.classes != split.classes:
        raise AssertionError(f"the classes are {split.classes}, not {posterior.schema.target.classes}")
    calibration: Any = posterior.spec.calibration
    report: dict[str, Any] = {
        "rows": test.num_rows,
        "training_rows": training.num_rows,
        "seconds": seconds,
        "map": "none" if calibration is None else calibration.map.method,
    }
    with use_threads_for_fitting("cpu"):
        columns = columns_from_table(filled_in(test, training), posterior.schema)
        rows = posterior.encoder.encode(columns)
        for name in ("raw", "calibrated"):
            answer = posterior.predict_encoded(rows, PredictOptions(percentiles=(), calibrated=name == "calibrated"))
            report[name] = scores_of(answer.probabilities, split.truth)
    return report


def filled_in(test: pa.Table, training: pa.Table) -> pa.Table:
    """The test rows with the most frequent training cell where one is missing in a column that has none in training.

    Murho refuses such cells: it asks the user to fill them in. Peers take them as they are.
    """
    for place, name in enumerate(test.column_names):
        if test[name].null_count and not training[name].null_count:
            usual = Counter(training[name].to_pylist()).most_common(1)[0][0]
            test = test.set_column(place, name, test[name].fill_null(usual))
    return test


def line_of(report: Mapping[str, Any]) -> str:
    """A report in short."""
    raw, calibrated = (report[name]["log_loss"] for name in ("raw", "calibrated"))
    return f"log loss raw {raw:.4f} calibrated {calibrated:.4f} ({report['map']})"
