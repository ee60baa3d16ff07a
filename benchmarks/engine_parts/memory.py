"""Memory that Murho's answers take: one call, and `murho predict` on a file of many rows."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.engine_parts.murho_posterior import spec_of, tensors_of
from benchmarks.peers.engine_task import COLUMNS
from benchmarks.processes import ProcessError, run_script
from murho.model.checkpoint.checkpoint import write_checkpoint

if TYPE_CHECKING:
    from benchmarks.peers.engine_task import EngineTask

__all__ = ["memory_of_a_call", "memory_of_a_file"]


def memory_of_a_call(task: EngineTask, batch: int, samples: int) -> int:
    """Peak memory of one call that makes its draws, in bytes above a process with the imports and the rows.

    Raises:
        ProcessError: The process failed.
    """
    memory = run_script("engine_parts.murho_memory", task.to_json(), str(batch), str(samples))
    return int(memory["peak"] - memory["bare"])


def memory_of_a_file(task: EngineTask, rows: int, samples: int) -> dict[str, float]:
    """Time and memory of `murho predict` from one Parquet file to another.

    Args:
        task: The network.
        rows: Rows of the file.
        samples: S.

    Returns:
        ``seconds`` of the whole command; ``rows_a_second``; ``memory``, bytes above the same command on a file of one
        row; ``peak``, bytes; ``input`` and ``output``, bytes of the two files; ``rows`` and ``samples``.

    Raises:
        ProcessError: The command failed.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_checkpoint(folder, "engine", spec_of(task), tensors_of(task))
        costs = []
        for count in (1, rows):
            given, answered = folder / f"rows-{count}.parquet", folder / "answers.parquet"
            values = task.rows(count)[:, :COLUMNS].astype("float64")
            pq.write_table(pa.table({f"x{number}": values[:, number] for number in range(COLUMNS)}), given)
            del values
            began = time.perf_counter()
            resources = run_script(
                "murho_command",
                *("predict", str(given), "--model", "engine", "--checkpoints", name, "--device", "cpu"),
                *("--samples", str(samples), "--output", str(answered)),
            )
            costs.append((time.perf_counter() - began, resources["peak"]))
            if (written := pq.read_metadata(answered).num_rows) != count:
                raise ProcessError(f"murho predict wrote {written} rows for {count}")
        (_, bare), (seconds, peak) = costs
        return {
            "rows": rows,
            "samples": samples,
            "seconds": seconds,
            "rows_a_second": rows / seconds,
            "memory": peak - bare,
            "peak": peak,
            "input": given.stat().st_size,
            "output": answered.stat().st_size,
        }
