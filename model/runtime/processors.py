"""How many processors this process may use, and how its threads wait for each other on them.

Affinity and the container's quota count, not the machine: a thread pool larger than the quota is throttled by the
kernel and answers many times slower.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

__all__ = ["available_processors", "let_threads_sleep"]

CONTROL_GROUPS = Path("/sys/fs/cgroup")


def available_processors(control_groups: Path = CONTROL_GROUPS) -> int:
    """Returns the processors that affinity and the control group's quota leave to this process, at least 1.

    Args:
        control_groups: Where control groups are mounted: version 2 is read first, then version 1.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    count = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    quota = _quota(control_groups)
    return count if quota is None else max(1, min(count, math.ceil(quota)))


def let_threads_sleep() -> None:
    """Makes the threads of OpenMP sleep while they wait for each other, unless the environment says otherwise.

    By default they spin. Where something else wants the processor too, the kernel then takes it from them for 4 ms at
    a time, in the middle of an operation that takes a tenth of that: two threads, 256 draws, a mixture as noise and one
    busy process beside them on two cores: one row 68 ms, sleeping 2.8; 1,000 rows 1,900 and 240. With nothing beside
    them sleeping takes 1.1 to 1.2 times as long.

    Is to be called before PyTorch is imported, whose OpenMP reads it once.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def _quota(control_groups: Path) -> float | None:
    """Returns the quota in processors, None where there is none."""
    try:
        limit, period = (control_groups / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            limit = (control_groups / "cpu" / "cpu.cfs_quota_us").read_text()
            period = (control_groups / "cpu" / "cpu.cfs_period_us").read_text()
        except OSError:
            return None
    try:
        quota = int(limit) / int(period)
    except (ValueError, ZeroDivisionError):
        return None
    return quota if quota > 0 else None
