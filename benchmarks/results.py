"""Parts that all benchmarks share: tables as text, facts about the machine, JSON files, simple options."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["DEFAULT_OUTPUT", "ROOT", "facts", "parse_options", "table", "write_json"]

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_OUTPUT = ROOT / "benchmarks" / "results"


def parse_options(name: str, description: str, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parses the options of a regression benchmark.

    Args:
        name: Name of the module, for the usage line.
        description: Text for ``--help``.
        arguments: Arguments of the command line; by default those of this process.

    Returns:
        ``seed``, ``seeds`` and ``output``.
    """
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=description)
    parser.add_argument("--seed", type=_seed, default=0, help="seed of data, fit and draws (default 0)")
    parser.add_argument(
        "--seeds",
        type=int,
        choices=range(2, 101),
        metavar="N",
        help="fit with N seeds from --seed on, 2 to 100, and print the range of the answers instead",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=DEFAULT_OUTPUT,
        metavar="DIR",
        help="for the figure and the numbers (default benchmarks/results)",
    )
    return parser.parse_args(arguments)


def _seed(text: str) -> int:
    value = int(text)
    if not 0 <= value < 2**62:
        raise argparse.ArgumentTypeError(f"a seed lies between 0 and 2^62 - 1, not {value}")
    return value


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A text table with aligned columns, the first to the left and the others to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(headers, *rows, strict=True)]
    lines = [headers, ["-" * width for width in widths], *rows]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def facts() -> dict[str, Any]:
    """Machine, versions and commit behind a measurement."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "machine": {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "system": platform.platform(),
        },
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


def _commit() -> str | None:
    """The commit of the working tree, with ``-dirty`` if files differ from it; None outside of git."""
    git = shutil.which("git")
    if git is None:
        return None
    # Without tags, so that the hash is the same in every clone.
    command = [git, "-C", str(ROOT), "describe", "--always", "--abbrev=40", "--dirty", "--exclude", "*"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - fixed arguments
    return done.stdout.strip() or None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Writes numbers, arrays included, as indented JSON."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
    path.write_bytes(orjson.dumps(data, default=_strided, option=options))


def _strided(value: object) -> Any:
    """Converts arrays that are not contiguous, which orjson can't write."""
    if isinstance(value, np.ndarray):
        return np.ascontiguousarray(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")
