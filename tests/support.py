"""Commands in this process, and what is made once for all processes that share the tests among them."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pytest
from filelock import FileLock

from murho import command_line

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ROOT", "call_murho", "made_once"]

ROOT = Path(__file__).parents[1]
"""The repository."""


def call_murho(
    *arguments: object, cwd: Path | None = None, code: int = 0
) -> subprocess.CompletedProcess[str]:
    """Runs a command here, from `murho.command_line.main` on, and checks its exit code.

    A process of its own imports PyTorch for seconds first: `tests.e2e.support.murho` starts one, for the tests to
    which the process matters.
    """
    words = ["murho", *map(str, arguments)]
    output, errors = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(cwd or Path.cwd()),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
        mock.patch.object(sys, "argv", words),
        pytest.raises(SystemExit) as ended,
    ):
        command_line.main()
    returned = ended.value.code or 0
    assert returned == code, output.getvalue() + errors.getvalue()
    return subprocess.CompletedProcess(words, int(returned), output.getvalue(), errors.getvalue())


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A directory that is made by the first worker of pytest-xdist that comes here; the others wait for it.

    Args:
        factory: Of this worker.
        name: Of the directory, one for each thing made.
        make: Fills the directory, which is there and empty.
    """
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # each worker has a directory of its own in that of the run
    directory, made = base / name, base / f"{name}.made"
    with FileLock(base / f"{name}.lock"):
        if not made.exists():
            shutil.rmtree(directory, ignore_errors=True)  # what a worker left whose attempt failed
            directory.mkdir()
            make(directory)
            made.touch()
    return directory
