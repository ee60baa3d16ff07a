"""Ray itself: whether it is installed, and one to run on: the cluster that the environment names, or one made here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from murho.model.errors import OptionError
from murho.model.runtime import available_processors

LOCAL_STORE_BYTES = 2**28
"""Shared memory of a Ray made here: a few blocks of rows for each worker."""


def require_ray(part: str = "data") -> None:
    """Check that Ray is installed, with one of its parts.

    Args:
        part: ``data`` or ``serve``.

    Raises:
        OptionError: It is not; the message says how to install it.
    """
    try:
        import_module(f"ray.{part}")
    except ImportError as error:
        raise OptionError(f"this needs Ray; {error.name} isn't installed: run pip install 'murho[ray]'") from error


@contextmanager
def ray_running(workers: int | None = None) -> Iterator[None]:
    """Have a Ray during the block: the one that this process is connected to, the one that ``RAY_ADDRESS`` names, or
    one made on this machine, which ends with the block.

    Args:
        workers: For a Ray made here: the workers that it must have processors for.

    Raises:
        OptionError: Ray is not installed.
    """  # noqa: D205 - one sentence
    require_ray()
    import ray

    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "error")  # its C++ part writes to stderr
    if os.environ.get("RAY_ADDRESS"):
        ray.init(log_to_driver=False, logging_level="error")
    else:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent to Ray's makers
        ray.init(
            address="local",
            num_cpus=max(workers or 1, available_processors()),
            object_store_memory=LOCAL_STORE_BYTES,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="error",
        )
    try:
        yield
    finally:
        ray.shutdown()


def processors_of_ray() -> int:
    """Return the number of processors of the Ray that is running, at least 1."""
    import ray

    return max(1, int(ray.cluster_resources().get("CPU", 1)))
