"""The protocol between a benchmark and the script of a system: pickles on stdin, answered by pickles on stdout.

A script is started with the names of a benchmark and of the peer. The first object that it gets is its task; when it is
ready it answers with an object, and then it answers each further one, until stdin is closed. So the processes of many
systems can take turns on one machine: between requests, a process only waits. Both sides have the same NumPy, and trust
each other.
"""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    Session: TypeAlias = Callable[[Any], tuple[Any, Callable[[Any], Any]]]
    """From the task to what is said when all is ready, and to what answers a request."""

STATUS = Path("/proc/self/status")


def drive(**sessions: Session) -> None:
    """Run a script, after all its imports.

    Args:
        sessions: Name of a benchmark → session.
    """
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print goes to stderr

    def say(answer: object) -> None:
        pickle.dump(answer, answers)
        answers.flush()

    ready, answer = sessions[sys.argv[1]](pickle.load(sys.stdin.buffer))  # noqa: S301 - from our own process
    say(ready)
    while True:
        try:
            request = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our own process
        except EOFError:
            return
        say(answer(request))


def peak_memory() -> int:
    """Peak resident memory of this process, bytes.

    On Linux it is not ``ru_maxrss``, which a process inherits, so that it would be at least the parent's.
    """
    if STATUS.exists():
        peaks = (
            line.split()[1] for line in STATUS.read_text(encoding="utf-8").splitlines() if line.startswith("VmHWM:")
        )
        return 1024 * int(next(peaks))
    import resource  # not on Windows

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
