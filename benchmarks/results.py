"""What all benchmarks share: a command with its options, tables as text, facts about the machine, JSON lines.

Every finished command adds a line to ``OUTPUT/results.jsonl``. Measurements that take long are kept one by one in a
`Kept`, another file of JSON lines, so that an interrupted command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import orjson
import torch

from murho.model.errors import MurhoError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_OUTPUT = ROOT / "benchmarks" / "results"

Report: TypeAlias = dict[str, Any]
"""What was measured: values that JSON has, and arrays."""


def command(
    about: str | None, add: Callable[[argparse.ArgumentParser], None], run: Callable[[argparse.Namespace], Report]
) -> Main:
    """Make the ``main`` of a benchmark.

    Args:
        about: Docstring of its module, which begins with `python -m benchmarks.NAME`; its first paragraph is shown by
            ``--help``.
        add: Adds its options to a parser, which has ``--output`` already.
        run: Measures and prints, given the options; what it returns becomes a line of ``results.jsonl``.

    Returns:
        A function of the command line's arguments (None: those of this process), which returns the exit status: 0, or 1
        after a message on stderr.
    """
    name = (about or "").partition("python -m benchmarks.")[2].partition("`")[0].partition(" ")[0]

    def main(arguments: Sequence[str] | None = None) -> int:
        parser = argparse.ArgumentParser(f"python -m benchmarks.{name}", description=(about or "").split("\n\n")[0])
        parser.add_argument(
            "--output", type=Path, default=DEFAULT_OUTPUT, metavar="DIR", help="of results (default benchmarks/results)"
        )
        add(parser)
        options = parser.parse_args(arguments)
        try:
            found = run(options)
            options.output.mkdir(parents=True, exist_ok=True)
            path = options.output / "results.jsonl"
            with path.open("ab") as file:
                file.write(json_bytes({"benchmark": name, **facts(), "options": vars(options), **found}) + b"\n")
        except (MurhoError, OSError) as error:
            print(f"python -m benchmarks.{name}: {error}", file=sys.stderr)
            return 1
        print(f"\nnumbers: the last line of {path}")
        return 0

    return main


class Main(Protocol):
    """The ``main`` of a benchmark."""

    def __call__(self, arguments: Sequence[str] | None = None) -> int:
        """From the command line's arguments (None: those of this process) to the exit status."""
        ...


class Kept:
    """Measurements in a file of JSON lines, each with a name and what it depends on; later lines replace earlier ones.

    Args:
        path: The file; it need not exist. A line that was cut short does not count.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines: dict[str, Report] = {}
        for line in path.read_bytes().splitlines() if path.exists() else ():
            try:
                kept = orjson.loads(line)
            except orjson.JSONDecodeError:
                continue
            self._lines[kept["name"]] = kept

    def get(self, name: str, of: object) -> Report | None:
        """Return the report of that name, if it depends on the same."""
        line = self._lines.get(name)
        return line["report"] if line is not None and line["of"] == orjson.loads(json_bytes(of)) else None

    def put(self, name: str, of: object, report: Report) -> None:
        """Add a report at once."""
        line = json_bytes({"name": name, "of": of, "facts": facts(), "report": report})
        self._lines[name] = orjson.loads(line)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        whole = not self.path.exists() or self.path.read_bytes()[-1:] in (b"", b"\n")
        with self.path.open("ab") as file:
            file.write(b"" if whole else b"\n")
            file.write(line + b"\n")


def json_bytes(data: object) -> bytes:
    """JSON on one line, arrays included; what has no form in JSON is its text."""

    def form(value: object) -> object:
        return value.tolist() if isinstance(value, np.ndarray) else str(value)

    return orjson.dumps(data, default=form, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a text table with aligned columns, the first to the left and the others to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(headers, *rows, strict=True)]
    lines = [headers, ["-" * width for width in widths], *rows]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def facts() -> Report:
    """Machine, versions and commit behind a measurement."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "machine": {"processor": _processor(), "cores": os.cpu_count(), "system": platform.platform()},
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


def _commit() -> str | None:
    """Return the commit of the working tree, with ``-dirty`` if files differ from it; None outside of git."""
    git = shutil.which("git")
    if git is None:
        return None
    # Without tags, so that the hash is the same in every clone.
    words = [git, "-C", str(ROOT), "describe", "--always", "--abbrev=40", "--dirty", "--exclude", "*"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip() or None  # noqa: S603 - fixed


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def positive(text: str) -> int:
    """Parse an integer of at least 1, for argparse."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"at least 1, not {value}")
    return value


def add_counts(parser: argparse.ArgumentParser, **options: tuple[int, str]) -> None:
    """Add options that take a number of at least 1: name → default, and what it is."""
    for name, (default, said) in options.items():
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, type=positive, default=default, metavar="N", help=f"{said} (default {default})")


def add_names(parser: argparse.ArgumentParser, **options: Collection[str]) -> None:
    """Add options that take some of the known names, by default all; the empty text gives none."""
    for name, known in options.items():
        said = f"some of {','.join(known)} (default all)"
        parser.add_argument(f"--{name}", type=some_of(known), default=list(known), metavar="NAMES", help=said)


def numbers(text: str) -> list[int]:
    """Parse integers of at least 1, such as ``32,1``, sorted and without repeats, for argparse."""
    return sorted({positive(number) for number in text.split(",")})


def some_of(known: Collection[str]) -> Callable[[str], list[str]]:
    """Return a parser of names, such as ``a,b``, for argparse; the empty text gives none."""

    def read(text: str) -> list[str]:
        names = [name.strip() for name in text.split(",") if name.strip()]
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        return names

    return read


def ratio(one: Sequence[float], other: Sequence[float]) -> float:
    """Median of the rounds' ratios; both of the same round saw the same other load on the machine."""
    return statistics.median(top / bottom for top, bottom in zip(one, other, strict=True))


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard error; the error of a single value is NaN."""
    array = np.asarray(values, dtype=np.float64)
    error = float(array.std(ddof=1) / np.sqrt(len(array))) if len(array) > 1 else float("nan")
    return float(array.mean()), error


def shown(mean: float, error: float | None = None) -> str:
    """Mean ± error as text, with four significant digits of the mean."""
    return f"{mean:.4g}" if error is None or np.isnan(error) else f"{mean:.4g} ± {error:.2g}"
