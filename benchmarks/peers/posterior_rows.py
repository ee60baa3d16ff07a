"""A `Posterior` as the peers serve it: records or columns of plain values in, one answer a row out.

The peers' environments have no web server of Murho's, so that this stands on `murho.model` alone. As a script it is
`Posterior.predict` without any service: a request is a directory, columns, S and seconds, and
the answer the median time of a call.
"""

from __future__ import annotations

import os
import threading
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.peers.exchange import drive
from murho.model.checkpoint.posterior import Posterior
from murho.model.predictive.prediction import PredictOptions
from murho.model.runtime import use_threads_for_answering
from murho.model.tables.cells import parse_date
from murho.model.tables.schema import Columns, FeatureKind, Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ANSWERED = ("mean", "std", "epistemic_std", "aleatoric_std", "percentiles")
"""The numbers that Murho's answers have."""
FEWEST_CALLS = 3


@cache
def load(directory: str | Path) -> Posterior:
    """Load a checkpoint's version with as many threads as Murho's service takes."""
    use_threads_for_answering()
    posterior = Posterior.load(Path(directory))
    posterior.warm_up()
    return posterior


def canonical(schema: Schema, columns: Mapping[str, Sequence[Any]]) -> Columns:
    """Canonical columns ``[B]`` of plain values."""
    made = {}
    for feature in schema.features:
        cells = columns[feature.name]
        if feature.kind is FeatureKind.DATE:
            cells = [None if cell is None else parse_date(cell) for cell in cells]
        text = feature.kind is FeatureKind.CATEGORICAL
        made[feature.name] = np.empty(len(cells), dtype=object if text else np.float64)
        made[feature.name][:] = cells
    return made


def session(_: object) -> tuple[None, Callable[[Any], float]]:
    """Return the session for `drive`."""

    def answer(request: tuple[str, Any, int, float]) -> float:
        directory, asked, samples, seconds = request
        posterior, options = load(directory), PredictOptions(samples=samples)
        columns = canonical(posterior.schema, asked)
        posterior.predict(columns, options)
        taken: list[float] = []
        end = time.perf_counter() + seconds
        while len(taken) < FEWEST_CALLS or time.perf_counter() < end:
            begin = time.perf_counter()
            posterior.predict(columns, options)
            taken.append(time.perf_counter() - begin)
        return float(np.median(taken))

    return None, answer


if __name__ == "__main__":
    # As in the service: a thread of its own computes, and the session gets the share of the processors that a server's
    # session gets (Linux shares them by session).
    os.setsid()
    thread = threading.Thread(target=drive, kwargs={"offline": session})
    thread.start()
    thread.join()
