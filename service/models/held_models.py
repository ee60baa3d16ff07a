"""From a name to a model in memory: what requests ask for, and how they wait where it must be loaded first."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from murho.service.errors import ClientGoneError, DeadlineError, NotReadyError, QueueFullError
from murho.service.models.loading import LoadingError
from murho.service.models.on_demand import ListedVersion, Served
from murho.service.models.registry import title_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from murho.service.engine.jobs import ModelLike
    from murho.service.engine.scheduler import Scheduler
    from murho.service.engine.waiting import Receive
    from murho.service.models.model_cache import Held
    from murho.service.models.registry import Registry, Snapshot
    from murho.service.models.watcher import Watcher

__all__ = ["Models"]

Result = TypeVar("Result")


class Models:
    """The models as requests see them. Used in the event loop.

    Args:
        registry: Has what is served.
        watcher: Is told of versions that can't be loaded.
        scheduler: Its bound holds for those who wait here and there together.
        seconds: The most seconds to wait.
    """

    def __init__(self, registry: Registry, watcher: Watcher, scheduler: Scheduler, seconds: float) -> None:
        self._registry, self._watcher, self._scheduler, self._seconds = registry, watcher, scheduler, seconds
        self._waiting = 0

    async def find(self, name: str, version: str | None = None) -> ModelLike:
        """Returns a model by name, its highest version by default.

        Raises:
            MurhoError: As `Snapshot.find` and `hold` do.
        """

        def choose(snapshot: Snapshot) -> Served:
            return snapshot.find(name, version)

        served = choose(self._registry.snapshot)
        if not isinstance(served, ListedVersion):
            return served
        held = await self.hold(served, choose, self._scheduler.clock() + self._seconds)
        held.release()
        return held.model

    async def hold(
        self,
        version: ListedVersion,
        choose: Callable[[Snapshot], Served],
        deadline: float,
        receive: Receive | None = None,
    ) -> Held:
        """Returns a version in memory, in use until `release`; waits while it is loaded.

        Where it can't be loaded it is refused, and what the snapshot has then is taken.

        Args:
            version: The version.
            choose: Finds it in a snapshot.
            deadline: Time on the scheduler's clock after which it is no longer wanted.
            receive: Tells whether the client is gone, once the body is read; None: nobody can go.

        Raises:
            UnknownModelError: It is refused, and nothing takes its place; the message has the reason.
            QueueFullError: Too many requests wait.
            DeadlineError: The deadline came first.
            ClientGoneError: The client closed the connection.
            NotReadyError: The place of the checkpoints can't be reached, memory or files are short, or the service
                stops.
        """
        while True:
            held = version.memory.use(version) or await self._loaded(version, deadline, receive)
            if not isinstance(held, LoadingError):
                return held
            found: Served = version
            if not held.passing and not held.short:
                await self._wait(version, self._watcher.refuse(version, str(held)), deadline, receive)
                found = choose(self._registry.snapshot)
            if found is version or not isinstance(found, ListedVersion):  # or the place is gone for the moment
                title = title_of(version.name, version.version)
                raise NotReadyError(f"{title} can't be loaded now: {held}. Try again later.", retry_after=5)
            version = found

    async def _loaded(self, version: ListedVersion, deadline: float, receive: Receive | None) -> Held | LoadingError:
        """Returns a version once it is loaded, or why it can't be."""
        cache, pending = version.memory, self._scheduler.pending
        if self._waiting + pending >= self._scheduler.max_pending:
            raise QueueFullError(
                f"{self._waiting} requests wait for models to be loaded and {pending} for an answer, which is all that "
                "this service takes on. Try again later.",
                retry_after=max(1, min(3600, round(cache.seconds_left))),
            )
        load = cache.ask(version)
        self._waiting += 1
        try:
            return await self._wait(version, load.future, deadline, receive)
        except LoadingError as error:
            return error
        except BaseException:
            cache.give_up(load)
            raise
        finally:
            self._waiting -= 1

    async def _wait(
        self, version: ListedVersion, future: Future[Result], deadline: float, receive: Receive | None
    ) -> Result:
        inner = asyncio.wrap_future(future)
        inner.add_done_callback(_retrieved)
        gone = None if receive is None else asyncio.ensure_future(_gone(receive))
        begin = self._scheduler.clock()
        try:
            both = {each for each in (inner, gone) if each is not None}
            await asyncio.wait(both, timeout=max(0.0, deadline - begin), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if gone is not None:
                gone.cancel()
        if inner.done():
            return inner.result()
        if gone is not None and gone.done():
            raise ClientGoneError("The client closed the connection before the answer.")
        title, waited = title_of(version.name, version.version), self._scheduler.clock() - begin
        raise DeadlineError(
            f"There was no answer in time: {title} isn't loaded after {waited:.2g} seconds, with {self._waiting} "
            "requests waiting for models. Try again later, or raise MURHO_LOADED_MODELS if that is often so."
        )


async def _gone(receive: Receive) -> None:
    """Ends once the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _retrieved(future: asyncio.Future[Any]) -> None:
    """Takes note of an error for which nobody waits any more; asyncio would write it to the log."""
    if not future.cancelled():
        future.exception()
