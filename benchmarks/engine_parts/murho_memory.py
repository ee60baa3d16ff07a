"""A process that makes one call of Murho and prints its memory. Arguments: an `EngineTask` as JSON, B and S."""

from __future__ import annotations

import sys

import orjson
import torch

from benchmarks.engine_parts.murho_posterior import posterior_of
from benchmarks.peers.engine_task import EngineTask
from benchmarks.peers.exchange import peak_memory
from murho.model.encoding.encoder import Encoded
from murho.model.predictive.compiled_engine import load
from murho.model.predictive.prediction import PredictOptions

__all__ = ["main"]


def main(text: str, batch: str, samples: str) -> None:
    """Prints peak memory as JSON, bytes: ``bare``, with imports and rows alone, and ``peak``, after the call."""
    task = EngineTask.from_json(text)
    torch.set_num_threads(task.threads)
    rows = task.rows(int(batch))
    load()
    bare = peak_memory()
    posterior_of(task).predict_encoded(Encoded.like(rows), PredictOptions(samples=int(samples)))
    sys.stdout.write(orjson.dumps({"bare": bare, "peak": peak_memory()}).decode() + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
