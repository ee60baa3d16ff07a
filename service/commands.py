"""The command `murho serve`. It imports the service only when it runs, so that `murho --help` answers at once."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from murho.service.registry import Snapshot
    from murho.service.settings import Settings

__all__ = ["serve"]


def serve(
    checkpoints: Annotated[
        Path | None, typer.Option(help="Directory of NAME/VERSION checkpoints.  [default: checkpoints]")
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; 0.0.0.0 for all.  [default: 127.0.0.1]")
    ] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 lets the system choose.  [default: 8000]")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda.  [default: auto]")] = None,
    default_model: Annotated[
        str | None, typer.Option(help="The model behind POST /predict; by default the only one.")
    ] = None,
    max_samples: Annotated[
        int | None, typer.Option(help="The most draws a request may ask for.  [default: 4096]")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="Threads of the computation; by default all processors there are.")
    ] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.  [default: info]")] = None,
) -> None:
    """Serve every checkpoint of a directory over HTTP.

    Every setting is also an environment variable, MURHO_ and its name in capitals; an option goes first.
    """
    settings = _settings(
        checkpoints=checkpoints,
        host=host,
        port=port,
        device=device,
        default_model=default_model,
        max_samples=max_samples,
        threads=threads,
        log_level=log_level,
    )
    if settings.device == "cuda":
        from murho.model.runtime.devices import resolve_device

        resolve_device(settings.device)

    from murho.service.server import address_of, listen, serve_until_stopped
    from murho.service.telemetry import configure_logging

    configure_logging(settings.log_level, settings.log_format)
    listening = listen(settings.host, settings.port)
    address = address_of(listening)
    _say(f"Murho serves the checkpoints of {settings.checkpoints.absolute()} on {address}, once loaded.")
    serve_until_stopped(settings, listening, lambda snapshot: _announce(snapshot, settings, address))
    _say("Stopped.")


def _settings(**given: Any) -> "Settings":
    """Returns the settings of the environment with the given ones on top.

    Raises:
        OptionError: One of them has a wrong value.
    """
    from pydantic import ValidationError

    from murho.model.errors import OptionError
    from murho.service.settings import Settings

    chosen = {name: value for name, value in given.items() if value is not None}
    try:
        return Settings(**chosen)
    except ValidationError as error:
        lines = []
        for item in error.errors(include_url=False):
            name = str(item["loc"][0])
            source = f"--{name.replace('_', '-')}" if name in chosen else f"MURHO_{name.upper()}"
            lines.append(f"{source} is {item['input']!r}: {item['msg'].replace('Input should', 'it should')}.")
        raise OptionError(" ".join(lines)) from None


def _announce(snapshot: "Snapshot", settings: "Settings", address: str) -> None:
    """Prints the served and refused checkpoints, and a request to try."""
    from murho.model.errors import MurhoError
    from murho.service.examples import curl_line

    for item in snapshot.refused:
        _say(f"Refused {item.name} {item.version}".rstrip() + f": {item.reason}")
    try:
        snapshot.require_models()
    except MurhoError as error:
        _say(f"Not ready: {error}")
        return
    try:
        first = snapshot.find_default(settings.default_model)
    except MurhoError as error:
        if settings.default_model is not None:
            _say(f"Warning: the default model isn't served. {error}")
        first = next(iter(snapshot.models.values())).latest
    served = ", ".join(
        f"{model.name} (version {model.latest.version}, predicts {model.latest.schema.target.name})"
        for model in snapshot.models.values()
    )
    _say(f"Ready: {served}. Try:\n\n  {curl_line(first, address)}\n")
    _say(f"API documentation: {address}/docs    What is served: {address}/")


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
