"""Helpers of all tests: run a command in this process, and make a directory once for all workers of pytest-xdist."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from filelock import FileLock

from murho import command_line
from murho.cli.output_files import csv_writer, parquet_writer
from murho.model.checkpoint.checkpoint import SEAL, seal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ROOT = Path(__file__).parents[1]
"""The repository."""


def call_murho(*arguments: object, cwd: Path | None = None, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command in this process, by `murho.command_line.main`, and check its exit code.

    A new process would first import PyTorch for seconds. Tests that need one use `tests.e2e.support.murho`.
    """
    words = ["murho", *map(str, arguments)]
    output, errors = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="") for _ in range(2))
    with (
        contextlib.chdir(cwd or Path.cwd()),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
        mock.patch.object(sys, "argv", words),
        pytest.raises(SystemExit) as ended,
    ):
        command_line.main()
    returned, texts = ended.value.code or 0, []
    for stream in (output, errors):
        stream.seek(0)
        texts.append(stream.read())
    assert returned == code, "".join(texts)
    return subprocess.CompletedProcess(words, int(returned), *texts)


def free_port() -> int:
    """Return a port of loopback that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
    return port


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return a directory that the first worker of pytest-xdist makes; the other workers wait for it.

    Args:
        factory: The factory of this worker.
        name: Name of the directory, unique among all calls.
        make: Fills the directory, which exists and is empty.
    """
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # each worker has a directory of its own in the directory of the run
    directory, finished = base / name, base / f"{name}.made"
    with FileLock(base / f"{name}.lock"):
        if not finished.exists():
            shutil.rmtree(directory, ignore_errors=True)  # left by a worker that failed
            directory.mkdir()
            make(directory)
            finished.touch()
    return directory


def sealed_again(edited: str) -> bytes:
    """Return the text of an edited ``model.json`` with a seal that fits, so that what else is checked is seen."""
    return seal({key: value for key, value in json.loads(edited).items() if key != SEAL})


def write_table(path: Path, columns: Mapping[str, Any]) -> None:
    """Write columns as CSV, or as Parquet, as `murho predict` writes its answers."""
    writer = parquet_writer(path) if path.suffix == ".parquet" else csv_writer(path)
    with writer as write:
        write(pa.table({name: _array(values) for name, values in columns.items()}))


def _array(values: Any) -> Any:
    # pyarrow refuses strided views, such as one column of a matrix.
    return pa.array(np.ascontiguousarray(values)) if isinstance(values, np.ndarray) else values
