"""The application: `create_app` puts the parts of one service together. There are no module globals."""

from __future__ import annotations

import asyncio
import gc
from contextlib import asynccontextmanager, suppress
from functools import partial
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from itertools import chain
from typing import TYPE_CHECKING

import structlog
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware.body_limit import RequestBodyLimitMiddleware

from murho.model.checkpoint.stores import store_at
from murho.model.errors import MurhoError
from murho.model.predictive.draw_cache import DrawCache
from murho.model.runtime import available_processors
from murho.service.context import Lifecycle, ServiceContext, State
from murho.service.engine.engine import Engine, LocalEngine
from murho.service.engine.freed_memory import FreedMemory
from murho.service.engine.jobs import compute
from murho.service.engine_process.remote import FrontEnd, RemoteEngine
from murho.service.errors import handle_error
from murho.service.http.middleware import AccessLog, FrontDoor, Paths, RequestLog, behind_proxies, share_with
from murho.service.models import routes as models
from murho.service.models.loader import Registry, Snapshot, Swap
from murho.service.models.source import CheckpointSource
from murho.service.models.watcher import Versions, Watcher
from murho.service.openapi import DESCRIPTION, install_openapi
from murho.service.outcomes import routes as outcomes
from murho.service.page import routes as page
from murho.service.predict import aggregate, counterfactual, decide
from murho.service.predict import routes as predict
from murho.service.predict.budgets import ByteBudget
from murho.service.predict.codec_threads import CodecThreads
from murho.service.predict.routes import PARQUET
from murho.service.protocols import invocations, mcp
from murho.service.protocols import v2_routes as v2
from murho.service.security import Security
from murho.service.settings import Settings, read_configuration
from murho.service.telemetry.log import Tracing
from murho.service.telemetry.metrics import Telemetry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.types import ASGIApp

    from murho.service.outcomes.adaptation import Bands
    from murho.service.outcomes.recorder import Recorder
    from murho.service.outcomes.types import Follower, Scored

ENDPOINTS = (
    predict.ENDPOINT,
    v2.INFER,
    invocations.INVOCATIONS,
    aggregate.ENDPOINT,
    decide.ENDPOINT,
    counterfactual.ENDPOINT,
)

IMPORTED_LATE = (
    "murho.service.models.descriptions",
    "murho.model.predictive.totals",
    "murho.model.predictive.decisions",
)
"""They need torch, which the service imports once it answers /healthz."""

# By then the requests in flight are answered: a computation still running belongs to a request that was given up.
CLOSE_SECONDS = 2.0


def create_app(
    settings: Settings | None = None,
    *,
    source: CheckpointSource | None = None,
    lifecycle: Lifecycle | None = None,
    on_loaded: Callable[[Snapshot], None] | None = None,
    front_end: FrontEnd | None = None,
) -> FastAPI:
    """Return an application that serves once it is started.

    Args:
        settings: The settings; by default read from the environment.
        source: Where checkpoints come from; by default the directory or the URL in the settings.
        lifecycle: Shared with the process that stops the application.
        on_loaded: Called once loading has ended, with the loaded checkpoints; and again when there were none and the
            first comes.
        front_end: This process as a front end of an engine process; None: the application has an engine of its own.
    """
    settings = settings or read_configuration({}).settings
    lifecycle = lifecycle or Lifecycle()
    draw_cache = DrawCache(settings.draws_bytes)
    source = source or CheckpointSource(store_at(settings.checkpoints), settings.device, cache=draw_cache)
    registry = Registry(source.place)
    telemetry = Telemetry(shared=front_end is not None)
    loaded = registry.snapshot  # the last one that an engine has shown: one that takes its place is no news

    def changed(swap: Swap) -> None:
        nonlocal loaded
        before, loaded = loaded, swap.after
        telemetry.show_served([(model.name, model.version) for model in loaded.served])
        telemetry.refused.set(sum(not item.waiting for item in loaded.refused))
        telemetry.listed.set(not loaded.unreachable)
        telemetry.ready.set(bool(loaded.models))
        if on_loaded is not None and loaded.loaded and (not before.loaded or (loaded.models and not before.models)):
            on_loaded(loaded)

    backend: _LocalBackend | RemoteEngine
    engine: Engine
    versions: Versions
    if front_end is None:
        backend = _LocalBackend(settings, source, registry, telemetry, lifecycle, changed)
        engine, versions, buckets = backend.engine, backend.watcher, None
    else:
        backend = engine = versions = RemoteEngine(front_end, settings, registry, telemetry.count_pass, changed)
        buckets = front_end.buckets
    telemetry.follow_pending(engine.admission)
    kept = None if settings.store is None else _recorder(settings.store, settings, telemetry, registry)
    recorder, bands = kept or (None, None)
    service = ServiceContext(
        settings=settings,
        lifecycle=lifecycle,
        source=source,
        engine=engine,
        registry=registry,
        telemetry=telemetry,
        security=Security(settings, buckets),
        codec_threads=CodecThreads(),
        versions=versions,
        request_budget=ByteBudget(settings.request_bytes),
        answer_budget=ByteBudget(settings.answer_bytes),
        totals_budget=ByteBudget(settings.answer_bytes, "Totals in flight"),
        recorder=recorder,
        bands=bands,
    )

    budgets = {"requests": service.request_budget, "answers": service.answer_budget, "totals": service.totals_budget}
    for kind, budget in budgets.items():
        telemetry.follow(telemetry.in_flight.labels(kind), partial(getattr, budget, "taken"))
    access_log, tracing = AccessLog(settings.log_level, settings.log_format), Tracing.of_environment()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[State]:
        await backend.start()
        if service.recorder is not None:
            service.recorder.start()
        memory = FreedMemory(draw_cache if front_end is None else None)
        following = () if bands is None else (bands.run(),)
        keeping = [asyncio.ensure_future(each) for each in (_keep_small(engine, memory), agents.run(), *following)]
        try:
            yield {"service": service}
        finally:
            for each in keeping:
                each.cancel()
            service.lifecycle.draining = service.lifecycle.closing = True
            service.codec_threads.close()
            PARQUET.close()
            service.lifecycle.unfinished = not backend.close(CLOSE_SECONDS)
            if service.recorder is not None:
                await asyncio.to_thread(service.recorder.close, CLOSE_SECONDS)
            access_log.flush()
            if tracing is not None:
                with suppress(TimeoutError):  # the collector may be gone
                    await asyncio.wait_for(asyncio.to_thread(tracing.close), CLOSE_SECONDS)

    app = FastAPI(
        title="Murho",
        summary="Predictions with error bars.",
        description=DESCRIPTION,
        version=version("murho"),
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # `Tracing` makes the spans
        exception_handlers={MurhoError: handle_error, HTTPException: handle_error, Exception: handle_error},
    )
    # From the last to the first that a request meets. FastAPI would put them behind layers of its own, which every
    # prediction would then pass for nothing.
    inner = RequestBodyLimitMiddleware(app.build_middleware_stack(), settings.max_body_bytes)
    direct = (*(endpoint.router() for endpoint in ENDPOINTS), models.machines_router)
    outer: ASGIApp = Paths(inner, service, chain.from_iterable(each.routes for each in direct))
    agents = mcp.AgentDoor(outer)
    if find_spec("mcp") is not None:
        app.router.routes.append(agents.route)
    if settings.cors_origins:
        outer = share_with(settings.cors_origins, outer)  # around the keys: a page asks whether it may without one
    if settings.trusted_proxies:
        outer = behind_proxies(settings.trusted_proxies, outer)
    front_door = FrontDoor(settings, keyless=not service.security.enabled)
    app.middleware_stack = RequestLog(outer, front_door, service.telemetry, service.lifecycle, access_log, tracing)
    for router in (*direct, models.router, outcomes.router, v2.router, page.router):
        app.include_router(router)
    install_openapi(app, service, ENDPOINTS)
    return app


class _LocalBackend:
    """The engine of an application that has its own, and the watcher that loads its checkpoints."""

    def __init__(
        self,
        settings: Settings,
        source: CheckpointSource,
        registry: Registry,
        telemetry: Telemetry,
        lifecycle: Lifecycle,
        changed: Callable[[Swap], None],
    ) -> None:
        self._threads, self._registry = settings.threads or available_processors(), registry
        self.engine = LocalEngine(
            compute,
            settings.max_pending,
            settings.max_pending_cost,
            max_standing_wait=settings.max_standing_wait,
            on_pass=telemetry.count_pass,
        )
        self.watcher = Watcher.of(
            settings,
            source,
            registry,
            telemetry.count_reload,
            stopping=lambda: lifecycle.closing,
            changed=changed,
        )

    async def start(self) -> None:
        """Start to load: in the thread that computes, which is warm then; later loading runs beside it."""
        self.engine.start(first=self._load)

    def close(self, seconds: float) -> bool:
        """End the threads; return whether they have ended."""
        computing = not self.engine.close(seconds)
        return self.watcher.close(seconds) and not computing

    def _load(self) -> None:
        try:
            from murho.model.runtime import use_threads  # here, because torch takes seconds to import

            use_threads(self._threads)  # PyTorch's, of this thread alone
            import_late()
            self.watcher.load_first()
            # What is loaded stays. Without it, each full collection of garbage would look through it, for 0.3 s.
            gc.collect()
            gc.freeze()
        except Exception as error:  # the thread must keep running, to report the reason
            structlog.get_logger("murho.app").exception("loading failed")
            if not self._registry.snapshot.loaded:
                self._registry.fail(f"loading failed with {type(error).__name__}: {error}")
        self.watcher.start()


def import_late() -> None:
    """Import what the event loop would import at the first request of its kind, and hold up everybody."""
    for name in (*IMPORTED_LATE, *(mcp.IMPORTED if find_spec("mcp") is not None else ())):
        import_module(name)


async def _keep_small(engine: Engine, memory: FreedMemory) -> None:
    """Give freed memory back to the system for as long as the service runs."""
    while True:
        await asyncio.sleep(1.0)
        await asyncio.to_thread(memory.look, engine.passes, pending=engine.admission.pending > 0)


def _recorder(
    store: str, settings: Settings, telemetry: Telemetry, registry: Registry
) -> tuple[Recorder, Bands | None]:
    """Return the recorder of a store, which is opened, and the bands that follow its outcomes, if they do.

    Raises:
        OptionError: It can't be.
    """
    from murho.service.outcomes.adaptation import AdaptationFollower, Bands
    from murho.service.outcomes.quality import AlarmFollower
    from murho.service.outcomes.recorder import Recorder  # here, as SQLAlchemy takes a while, and most have no store
    from murho.service.outcomes.store import Store

    def noticed(scored: Scored, raised: bool) -> None:
        inside = int(scored.inside.sum())
        telemetry.versions[scored.model, scored.version].count_outcomes(len(scored.inside), inside, alarm=raised)

    followers: list[Follower] = [AlarmFollower(noticed)]
    if settings.adapt != "off":
        followers.append(AdaptationFollower(settings.adapt))
    opened = Store(store, followers)
    bands = None if settings.adapt == "off" else Bands(opened, lambda: registry.snapshot.served)
    recorder = Recorder(opened, settings.record_bytes, keep_days=settings.store_days, store_bytes=settings.store_bytes)
    telemetry.follow(telemetry.in_flight.labels("recording"), lambda: recorder.waiting)
    return recorder, bands
