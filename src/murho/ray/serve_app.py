"""The service as a deployment of Ray Serve: ``serve run murho.ray:app checkpoints=/models``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray import serve

from murho.model.errors import OptionError
from murho.ray.pending_cost import METRIC
from murho.service.settings import Settings, read_configuration

if TYPE_CHECKING:
    from collections.abc import Callable

    from murho.ray.asgi import ReplicaApp

DEPLOYMENT = "Murho"
"""Name of the deployment, under which a configuration file of Ray Serve sets replicas and resources."""
OF_THE_SERVER = ("host", "port", "max_connections", "max_header_bytes", "max_headers", "max_target_bytes")
"""Settings of Murho's own server, in whose place Ray's proxy stands."""


class Replica:
    """What Ray asks of a replica beside requests. Ray adds ``app``, the `ReplicaApp`."""

    app: ReplicaApp

    def record_autoscaling_stats(self) -> dict[str, float]:
        """Return the cost that is pending, for `murho.ray.pending_cost.PendingCost`."""
        return {METRIC: float(self.app.service.engine.admission.pending_cost)}

    async def check_health(self) -> None:
        """Raise an error if the engine has work and shows no sign of life: Ray then replaces the replica."""
        service = self.app.service
        service.engine.require_alive(service.settings.engine_silence)


def _asgi_app(settings: Settings) -> Callable[[], ReplicaApp]:
    """Return a function that makes the application, in the replica."""

    def build() -> ReplicaApp:
        import ray

        from murho.model.runtime import let_threads_sleep
        from murho.ray.asgi import ReplicaApp
        from murho.service.telemetry.log import configure_logging

        let_threads_sleep()
        configure_logging(settings.log_level, settings.log_format)
        processors = ray.get_runtime_context().get_assigned_resources().get("CPU", 1.0)
        threads = settings.threads or max(1, int(processors))
        return ReplicaApp(settings.model_copy(update={"threads": threads}))

    return build


def app(args: dict[str, Any]) -> Any:
    """Build the application, as ``serve run``, ``serve deploy`` and ``serve build`` call it.

    Args:
        args: Settings of the service by name, such as ``{"checkpoints": "/models", "max_samples": 1024}``. Others come
            from the environment and the file that ``MURHO_CONFIG`` names, of the process that builds the application.

    Returns:
        A bound deployment.

    Raises:
        OptionError: A setting is unknown or wrong, or is one that Ray's proxy decides.
    """
    if wrong := [name for name in args if name in OF_THE_SERVER]:
        raise OptionError(f"{wrong[0]} is a setting of `murho serve`: here Ray's proxy listens, see docs/ray.md")
    if unknown := [name for name in args if name not in Settings.model_fields]:
        raise OptionError(
            f"{unknown[0]!r} is no setting of the service: `murho serve --show-settings` lists all of them"
        )
    settings = read_configuration(args).settings
    if isinstance(settings.checkpoints, Path):  # else an address of object storage
        settings = settings.model_copy(update={"checkpoints": settings.checkpoints.absolute()})
    ingress = serve.ingress(_asgi_app(settings))(Replica)
    return serve.deployment(
        name=DEPLOYMENT,
        # The service refuses what is too much itself, with 429 and when to come again.
        max_ongoing_requests=settings.max_pending + 1,
        graceful_shutdown_timeout_s=settings.drain_grace,
        ray_actor_options={"num_cpus": 1},
    )(ingress).bind()
