"""A stand-in for a pool of processes, for tests that replace what the processes would do."""

from __future__ import annotations

from typing import Any

__all__ = ["PoolHere"]


class PoolHere:
    """Runs all calls in this process, where a test has replaced functions."""

    def __init__(self, *_: Any, **__: Any) -> None: ...
    def __enter__(self) -> PoolHere:
        return self

    def __exit__(self, *_: object) -> None: ...
    def map(self, *arguments: Any) -> Any:
        return map(*arguments)
