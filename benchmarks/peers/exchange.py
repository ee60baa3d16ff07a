"""How a process of another environment is asked and answers: a line of JSON each way.

A script is started with the name of a benchmark and a task in JSON on its command line. It sets itself up, and says so
in a line on stdout. Then it answers each line on stdin with a line on stdout, and ends when stdin does. So the
processes of many systems can take turns on one machine: one that is not asked only waits.
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
    """Takes the task; yields what is said when ready, then for every request that it is sent the answer."""

__all__ = ["drive", "peak_memory"]

STATUS = Path("/proc/self/status")


def drive(arguments: Sequence[str] | None = None, **sessions: Session) -> None:
    """Runs a script; everything that it needs has been imported.

    Args:
        arguments: Name of a benchmark and task; those of the command line by default.
        sessions: Name of a benchmark → what to do. `step_session`, `engine_session` and `table_session`, each beside
            its task, make one.
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
    """The most memory that this process has had resident, bytes.

    On Linux not ``ru_maxrss``: a process inherits it, so that it is at least that of the parent.
    """
    if STATUS.exists():
        for line in STATUS.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    import resource  # not on Windows

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
