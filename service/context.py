"""The parts of one running service, its stages of shutting down, and what routes take and give."""

from dataclasses import dataclass
from operator import methodcaller
from typing import TYPE_CHECKING, Annotated, TypedDict, cast

import orjson
from fastapi import Depends, Request, Response

from murho.service.errors import NotReadyError, wrong
from murho.service.security import Caller, Security

if TYPE_CHECKING:
    from murho.service.engine.engine import Engine
    from murho.service.models.loader import Registry
    from murho.service.models.source import CheckpointSource
    from murho.service.models.watcher import Versions
    from murho.service.outcomes.adaptation import Bands
    from murho.service.outcomes.recorder import Recorder
    from murho.service.predict.budgets import ByteBudget
    from murho.service.predict.codec_threads import CodecThreads
    from murho.service.settings import Settings
    from murho.service.telemetry.metrics import Telemetry


@dataclass(slots=True)
class Lifecycle:
    """Counts the predictions in flight and refuses new ones at the end.

    Stopping has two steps. While the service *drains*, it reports that it isn't ready but still takes predictions, so
    that none is lost before the load balancer sends its requests elsewhere. Once it is *closing*, it takes no new
    predictions and waits for those in flight.

    Attributes:
        draining: Whether the service is about to stop, so that it is no longer ready.
        closing: Whether it refuses new predictions.
        in_flight: Number of predictions without an answer so far.
        unfinished: Whether an abandoned computation still runs after the service has stopped.
    """

    draining: bool = False
    closing: bool = False
    in_flight: int = 0
    unfinished: bool = False

    def require_not_draining(self) -> None:
        """Check that the service isn't about to stop.

        Raises:
            NotReadyError: The service is about to stop.
        """
        if self.draining:
            raise NotReadyError("The service is shutting down.")


@dataclass(frozen=True, slots=True)
class ServiceContext:
    """The parts of one application."""

    settings: "Settings"
    lifecycle: Lifecycle
    source: "CheckpointSource"
    engine: "Engine"
    registry: "Registry"
    telemetry: "Telemetry"
    security: Security
    codec_threads: "CodecThreads"
    versions: "Versions"
    request_budget: "ByteBudget"
    answer_budget: "ByteBudget"
    totals_budget: "ByteBudget"
    recorder: "Recorder | None" = None
    bands: "Bands | None" = None

    def require_ready(self) -> None:
        """Check that predictions are answered at full speed: loaded, warm, and not about to stop.

        Raises:
            NotReadyError: They are not.
        """
        self.lifecycle.require_not_draining()
        self.registry.snapshot.require_models()

    def require_recorder(self, where: str = "") -> "Recorder":
        """Return the recorder.

        Args:
            where: Pointer to what needs it.

        Raises:
            BadInputError: There is none.
        """
        if self.recorder is None:
            raise wrong(where, "This service keeps no predictions: it needs a store, `murho serve --store FILE`.")
        return self.recorder


class State(TypedDict):
    """The state that the application's lifespan hands to every request."""

    service: ServiceContext


async def _service(request: Request) -> ServiceContext:  # async: the framework runs plain functions in a thread
    return cast("State", request.scope["state"])["service"]


ContextDependency = Annotated[ServiceContext, Depends(_service)]


async def _admin(request: Request, service: ContextDependency) -> Caller:  # async: plain functions run in a thread
    caller: Caller = request.scope["state"]["caller"]
    service.security.require_admin(caller)
    return caller


AdminDependency = Annotated[Caller, Depends(_admin)]
"""Who sent the request, with a key that may load and unload models: other keys are answered 403."""


class JSONBytes(Response):
    """A JSON answer."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        """Return the bytes of the body."""
        # orjson takes arrays itself, but not those whose rows don't lie one after another.
        return orjson.dumps(content, methodcaller("tolist"), orjson.OPT_SERIALIZE_NUMPY)
