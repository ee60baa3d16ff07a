"""`Posterior.predict` alone, without any service, in a process of its own that `benchmarks.processes` drives.

A request on stdin is ``{"model": directory, "columns": {…}, "samples": S, "seconds": s}``, or with ``"table"``, the
path of an Arrow file, in place of the columns. The answer is the median time of a call, ``{"seconds": …}``.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.peers.exchange import drive
from benchmarks.service_parts.posterior_rows import canonical, load
from murho.model.predictive.prediction import PredictOptions

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from murho.model.checkpoint.posterior import Posterior
    from murho.model.tables.schema import Columns, Schema

__all__ = ["offline_session"]

FEWEST_CALLS = 3


def offline_session(_: str) -> Generator[Mapping[str, Any], Any, None]:
    """The session for `drive`: checkpoints and columns are read once and kept."""
    posteriors: dict[str, Posterior] = {}
    asked = yield {"ready": True}
    while True:
        directory = asked["model"]
        if directory not in posteriors:
            posteriors[directory] = load(directory)
        posterior = posteriors[directory]
        columns, options = _columns(asked, posterior.schema), PredictOptions(samples=asked["samples"])
        posterior.predict(columns, options)
        taken: list[float] = []
        end = time.perf_counter() + asked["seconds"]
        while len(taken) < FEWEST_CALLS or time.perf_counter() < end:
            begin = time.perf_counter()
            posterior.predict(columns, options)
            taken.append(time.perf_counter() - begin)
        asked = yield {"seconds": float(np.median(taken))}


def _columns(asked: Mapping[str, Any], schema: Schema) -> Columns:
    if "table" not in asked:
        return canonical(schema, asked["columns"])
    with pa.memory_map(asked["table"]) as file:
        table = pa.ipc.open_stream(file).read_all()
    return {name: table.column(name).to_numpy() for name in table.column_names}


if __name__ == "__main__":
    # As in the service: a thread of its own computes, and the session gets the share of the processors that a server's
    # session gets (Linux shares them by session).
    os.setsid()
    thread = threading.Thread(target=drive, kwargs={"offline": offline_session})
    thread.start()
    thread.join()
