"""The memory that one call of Murho's takes: a process that makes it, and says so.

Arguments: an `EngineTask`, B and S.
"""

from __future__ import annotations

import sys

import orjson
import torch

from benchmarks.engine_peers.exchange import EngineTask
from benchmarks.engine_peers.murho_posterior import posterior_of
from benchmarks.step_peers.exchange import peak_memory
from murho.model.engines.compiled.loader import load
from murho.model.engines.prediction import PredictOptions

__all__ = ["main"]


def main(text: str, batch: str, samples: str) -> None:
    """Writes ``bare`` and ``peak``, bytes: with rows and imports alone, and after the call."""
    task = EngineTask.from_json(text)
    torch.set_num_threads(task.threads)
    load()
    rows = task.rows(int(batch))
    bare = peak_memory()
    posterior_of(task).predict_encoded(rows, PredictOptions(samples=int(samples)))
    sys.stdout.write(orjson.dumps({"bare": bare, "peak": peak_memory()}).decode() + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
