"""The memory that one call of Murho's takes: a process that makes it, and says so.

Arguments: an `EngineTask`, B and S.
"""

from __future__ import annotations

import sys

import orjson
import torch

from benchmarks.engine_parts.murho_posterior import posterior_of
from benchmarks.peers.engine_task import EngineTask
from benchmarks.peers.exchange import peak_memory
from murho.model.engines.compiled.loader import load
from murho.model.engines.prediction import PredictOptions

__all__ = ["main"]


def main(text: str, batch: str, samples: str) -> None:
    """Writes ``bare`` and ``peak``, bytes: with rows and imports alone, and after the call."""
    task = EngineTask.from_json(text)
    torch.set_num_threads(task.threads)
    rows = task.rows(int(batch))
    load()
    bare = peak_memory()
    posterior_of(task).predict_encoded(rows, PredictOptions(samples=int(samples)))
    sys.stdout.write(orjson.dumps({"bare": bare, "peak": peak_memory()}).decode() + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
