"""Loading one version: into memory, checked and warm, within a time; and what a failure says about the version."""

from __future__ import annotations

import errno
import math
import threading
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING

import structlog

from murho.model.errors import MurhoError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from murho.model.checkpoint.checkpoint import CheckpointReference
    from murho.service.engine.jobs import ModelLike
    from murho.service.models.source import CheckpointSource

__all__ = ["LoadingError", "load_warm"]

SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""What the machine lacks for the moment: files or memory."""


class LoadingError(MurhoError):
    """A version can't be loaded; the message is the reason.

    Attributes:
        passing: Whether it says nothing about the version, which is tried again.
        short: Whether the machine lacks memory or files for the moment.
    """

    def __init__(self, reason: str, *, passing: bool = False, short: bool = False) -> None:
        super().__init__(reason)
        self.passing, self.short = passing, short


def load_warm(source: CheckpointSource, reference: CheckpointReference, seconds: float = math.inf) -> ModelLike:
    """Returns a version, checked and as fast at the first request as at the next.

    Args:
        source: Where checkpoints come from.
        reference: The version.
        seconds: The most time that it may take; infinite: it is loaded in the calling thread.

    Raises:
        LoadingError: It can't be loaded, or takes longer.
    """
    load = partial(source.load, reference)
    try:
        model = load() if math.isinf(seconds) else _within(seconds, load)
        model.warm_up()  # here: the calling thread gets warm, too
    except MurhoError as error:
        raise LoadingError(
            str(error), passing=isinstance(error, StorageError), short=_short(error.__cause__)
        ) from error
    except Exception as error:
        log = structlog.get_logger("murho.registry")
        log.exception("checkpoint failed", model=reference.name, version=reference.version)
        reason = f"loading failed unexpectedly with {type(error).__name__}: {error}"
        raise LoadingError(reason, short=_short(error)) from error
    return model


def _within(seconds: float, work: Callable[[], ModelLike]) -> ModelLike:
    """Works in a thread of its own, with as many PyTorch threads as the calling one, and leaves it when time is up.

    A file system that does not answer can't be interrupted; other versions are served meanwhile.
    """
    import torch

    from murho.model.runtime import use_threads

    threads = torch.get_num_threads()
    result: Future[ModelLike] = Future()

    def run() -> None:
        try:
            use_threads(threads)
            result.set_result(work())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, name="loading", daemon=True).start()
    try:
        return result.result(seconds)
    except TimeoutError as error:
        if result.done():  # the error is the work's own
            raise
        raise LoadingError(f"it was not loaded within {seconds:g} seconds (setting load_timeout)") from error


def _short(error: BaseException | None) -> bool:
    """Returns whether an error says that the machine lacks something; PyTorch's error of full memory has that name."""
    full = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return full or (isinstance(error, OSError) and error.errno in SHORTAGES)
