"""The protocol between a benchmark and the script of a system: requests on stdin, answers on stdout, as lines of JSON.

A script is started with the name of a benchmark and a task in JSON on its command line. When it is ready, it prints a
first line. Then it answers each line on stdin with a line on stdout, and ends when stdin is closed. So the processes of
many systems can take turns on one machine: between requests, a process only waits.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence
    from typing import TypeAlias

    Session: TypeAlias = Callable[[str], Generator[Mapping[str, Any], Any, None]]
    """Takes the task; yields the first line when it is ready, then the answer to each request that it is sent."""

__all__ = ["drive", "peak_memory"]

STATUS = Path("/proc/self/status")


def drive(arguments: Sequence[str] | None = None, **sessions: Session) -> None:
    """Runs a script, after all its imports.

    Args:
        arguments: Name of a benchmark and task; by default those of the command line.
        sessions: Name of a benchmark → session, made by `step_session`, `engine_session` or `table_session`.
    """
    benchmark, task = sys.argv[1:] if arguments is None else arguments
    session = sessions[benchmark](task)
    _say(next(session))
    for line in sys.stdin:
        _say(session.send(json.loads(line)))


def _say(answer: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def peak_memory() -> int:
    """Peak resident memory of this process, bytes.

    On Linux it is not ``ru_maxrss``, which a process inherits, so that it would be at least the parent's.
    """
    if STATUS.exists():
        for line in STATUS.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    import resource  # not on Windows

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
