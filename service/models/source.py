"""Where checkpoints come from: a directory or a storage.

A version is read by the thread that loads, never by a request for a prediction; nothing of it is kept on a local disk.
"""

from __future__ import annotations

import threading
import weakref
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import structlog

from murho.model.checkpoint.stores import CheckpointStore, describe_place, place_of
from murho.model.errors import MurhoError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from murho.model.checkpoint.checkpoint import CheckpointReference
    from murho.model.predictive.draw_cache import DrawCache
    from murho.service.engine.jobs import ModelLike

Stamp: TypeAlias = "Hashable"
"""Changes whenever the content of a version may have changed."""


class LoadingError(Exception):
    """A version can't be loaded: the reason, and whether it says nothing about the version, which is tried again."""

    def __init__(self, reason: str, *, passing: bool = False) -> None:
        super().__init__(reason)
        self.passing = passing


class CheckpointSource:
    """Checkpoints of a directory or a storage.

    Args:
        store: Where they are.
        device: auto, cpu or cuda.
        cache: Memory for the draws of all versions; None: each has a cache of its own.

    Attributes:
        place: The name of the place in messages.
    """

    def __init__(self, store: CheckpointStore, device: str, *, cache: DrawCache | None = None) -> None:
        self._store, self._device, self._cache = store, device, cache
        self.place = describe_place(place_of(store.place))
        self._loaded: weakref.WeakKeyDictionary[ModelLike, CheckpointReference] = weakref.WeakKeyDictionary()

    def list(self) -> list[CheckpointReference]:
        """Return every version of every checkpoint, by name, then by rising version."""
        return self._store.list()

    def stamp(self, reference: CheckpointReference) -> Stamp | None:
        """Return the stamp of one version; None while it is being written."""
        return self._store.stamp(reference)

    def prepare(self) -> None:
        """Load the compiled code that versions on a CPU share; it takes minutes at the first start of all."""
        from murho.model.predictive.compiled_engine import load  # here, because torch takes seconds to import
        from murho.model.runtime import resolve_device

        if resolve_device(self._device) == "cpu":
            load()

    def load(self, reference: CheckpointReference) -> ModelLike:
        """Load one version onto the device.

        Raises:
            StorageError: The storage can't be reached.
            CheckpointError: The version is damaged or of a newer format.
        """
        # Imported here, because torch takes seconds to import.
        from murho.model.checkpoint.posterior import Posterior
        from murho.model.runtime import resolve_device

        model = Posterior.of_stored(self._store.fetch(reference), resolve_device(self._device), cache=self._cache)
        self._loaded[model] = reference
        return model

    def load_warm(self, reference: CheckpointReference, seconds: float | None) -> ModelLike:
        """Load one version, checked and as fast at the first request as at the next.

        Raises:
            LoadingError: It can't be loaded, or takes longer.
        """
        try:
            self.prepare()  # not in the time of a version
            model = _within(seconds, lambda: self.load(reference))
            model.warm_up()  # here: the calling thread gets warm, too
        except LoadingError:
            raise
        except MurhoError as error:
            raise LoadingError(str(error), passing=isinstance(error, StorageError)) from error
        except Exception as error:
            log = structlog.get_logger("murho.registry")
            log.exception("checkpoint failed", model=reference.name, version=reference.version)
            raise LoadingError(f"loading failed unexpectedly with {type(error).__name__}: {error}") from error
        return model

    def reference_of(self, model: ModelLike) -> CheckpointReference | None:
        """Return where a model was loaded from."""
        return getattr(model, "reference", None) or self._loaded.get(model)

    def report_facts(self, model: ModelLike) -> dict[str, Any]:
        """Return the facts that a loaded version keeps for its report; empty if there are none that can be read."""
        from murho.model.report.facts import stored_facts  # here, because torch takes seconds to import

        reference = self.reference_of(model)
        return {} if reference is None else stored_facts(partial(self._store.read, reference))


def _within(seconds: float | None, work: Callable[[], ModelLike]) -> ModelLike:
    """Work in a thread of its own, with as many PyTorch threads as the calling one, and leave it when time is up.

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
