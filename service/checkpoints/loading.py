"""Loading one version: into memory, checked and warm; and what a failure says about the version."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import structlog

from murho.model.errors import MurhoError, StorageError

if TYPE_CHECKING:
    from murho.model.checkpoint.checkpoint import CheckpointReference
    from murho.service.checkpoints.source import CheckpointSource
    from murho.service.scheduling.jobs import ModelLike

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


def load_warm(source: CheckpointSource, reference: CheckpointReference) -> ModelLike:
    """Returns a version, checked and as fast at the first request as at the next.

    Raises:
        LoadingError: It can't be loaded.
    """
    try:
        model = source.load(reference)
        model.warm_up()
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


def _short(error: BaseException | None) -> bool:
    """Returns whether an error says that the machine lacks something; PyTorch's error of full memory has that name."""
    full = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return full or (isinstance(error, OSError) and error.errno in SHORTAGES)
