"""The commands `murho serve` and `murho key`. They import the service only when they run: help comes at once."""

import json
import os
import shlex
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from murho.model.errors import MurhoError

if TYPE_CHECKING:
    from murho.service.engine.jobs import ModelLike
    from murho.service.models.loader import Snapshot
    from murho.service.settings import Configuration, Settings


CheckpointsSetting = Annotated[
    str | None,
    typer.Option(
        help="Directory of NAME/VERSION checkpoints, or the URL of a storage: s3://BUCKET/PREFIX.  "
        "[default: checkpoints]"
    ),
]
DeviceSetting = Annotated[str | None, typer.Option(help="auto, cpu or cuda.  [default: auto]")]
HostSetting = Annotated[str | None, typer.Option(help="Address to listen on; 0.0.0.0 for all.  [default: 127.0.0.1]")]
PortSetting = Annotated[int | None, typer.Option(help="Port; 0 lets the system choose.  [default: 8000]")]


def serve(
    checkpoints: CheckpointsSetting = None,
    host: HostSetting = None,
    port: PortSetting = None,
    ssl_certfile: Annotated[Path | None, typer.Option(help="Certificate chain, PEM; the service speaks HTTPS.")] = None,
    ssl_keyfile: Annotated[Path | None, typer.Option(help="Its key, if it is in another file.")] = None,
    device: DeviceSetting = None,
    default_model: Annotated[
        str | None, typer.Option(help="The model behind POST /predict; by default the only one.")
    ] = None,
    max_samples: Annotated[
        int | None, typer.Option(help="The most draws a request may ask for.  [default: 4096]")
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option(help="Front ends on the port, beside the engine; auto: all processors but one.  [default: auto]"),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="Threads of the computation; by default all processors there are.")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(help="Keeps predictions and outcomes: a file, or postgresql+psycopg://…  [default: nothing is]"),
    ] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.  [default: info]")] = None,
    config: Annotated[Path | None, typer.Option(help="A TOML file with settings, such as deploy/murho.toml.")] = None,
    show_settings: Annotated[
        bool, typer.Option("--show-settings", help="Print all settings and where each comes from, and end.")
    ] = False,
) -> None:
    """Serve every checkpoint of a directory over HTTP.

    Every setting is also an environment variable, MURHO_ and its name in capitals, and a line of the TOML file that
    --config or MURHO_CONFIG names. An option goes first, then the environment, then the file.
    """
    configuration = configuration_of(locals(), config)
    if show_settings:
        sys.stdout.write("".join(f"{line}\n" for line in configuration.lines()))
        return
    settings = configuration.settings
    # The other way to look for a GPU would keep the engine, which is forked, from using it.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    if settings.device == "cuda":
        from murho.model.runtime import resolve_device

        resolve_device(settings.device)

    from murho.model.checkpoint.stores import describe_place, is_url
    from murho.service.process import address_of, listen_together, serve_until_stopped
    from murho.service.supervisor import POSSIBLE, Supervisor, front_ends_of
    from murho.service.telemetry.log import configure_logging

    configure_logging(settings.log_level, settings.log_format)
    if settings.store is not None:
        from murho.service.outcomes.store import Store

        Store(settings.store).close()  # what is wrong with it is said before anything else
    listening = listen_together(settings.host, settings.port, front_ends_of(settings) if POSSIBLE else 1)
    address = address_of(listening[0], "http" if settings.ssl_certfile is None else "https")
    place = str(settings.checkpoints)
    if not is_url(place) and not Path(place).is_dir():
        _say(f"warning: there is no directory {place}: nothing is served until it has checkpoints")
    _say(f"Murho serves the checkpoints of {describe_place(settings.checkpoints)} on {address}, once loaded.")

    def announce(snapshot: "Snapshot") -> None:
        _announce(snapshot, settings, address)

    if POSSIBLE:
        Supervisor(settings, listening, announce).run()
    else:
        serve_until_stopped(settings, listening[0], announce)
    _say("Stopped.")


def configuration_of(options: dict[str, Any], file: Path | None = None) -> "Configuration":
    """Return the settings, of which a command has some as options; an option that is None was not given."""
    from murho.service.settings import Settings, read_configuration

    given = {name: value for name, value in options.items() if name in Settings.model_fields and value is not None}
    return read_configuration(given, file)


def _announce(snapshot: "Snapshot", settings: "Settings", address: str) -> None:
    """Print the served and refused checkpoints, and a request to try."""
    from murho.service.models.loader import first_of
    from murho.service.predict.json_rows import example_row
    from murho.service.telemetry.log import escape_texts

    for item in snapshot.refused:
        _say(escape_texts(f"Refused {item.name} {item.version}".rstrip() + f": {item.reason}", lines=True))
    try:
        snapshot.require_models()
    except MurhoError as error:
        _say(f"Not ready: {error}")
        return
    tried = next(iter(snapshot.models.values())).latest
    try:
        tried = snapshot.find(settings.default_model)
    except MurhoError as error:
        if settings.default_model is not None:
            _say(f"Warning: the default model isn't served. {error}")
    served = first_of([_title(model.latest) for model in snapshot.models.values()])
    body = json.dumps({"inputs": [example_row(tried)]}, ensure_ascii=False)
    line = f"curl -s {address}/models/{tried.name}/predict -H 'content-type: application/json' -d {shlex.quote(body)}"
    _say(f"Ready: {served}. Try:\n\n  {line}\n")
    _say(f"API documentation: {address}/docs    Try the models: {address}/")


def _title(model: "ModelLike") -> str:
    return f"{model.name} (version {model.version}, predicts {model.schema.target.name})"


def _say(line: str) -> None:
    with suppress(OSError):  # a full disk, a closed pipe: the service serves all the same
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def key(
    caller: Annotated[str, typer.Argument(metavar="NAME", help="Whose key it is; the access log shows it.")],
    admin: Annotated[bool, typer.Option("--admin", help="It may load and unload models, and all else.")] = False,
    outcomes: Annotated[bool, typer.Option("--outcomes", help="It may record predictions and tell outcomes.")] = False,
    requests: Annotated[
        float | None, typer.Option(min=1e-6, help="Requests a second; by default those of the service's settings.")
    ] = None,
    cost: Annotated[
        float | None, typer.Option(min=1e-6, help="Row-draws a second; by default those of the service's settings.")
    ] = None,
) -> None:
    """Make an API key, and the line that lets a service accept it."""
    from murho.service.security import Caller, check_name, digest_of, make_key

    check_name(caller)
    made = make_key()
    stored = Caller(caller, admin, outcomes, requests, cost, digest_of(made.encode()))
    typer.echo("The key, for the caller. Shown once; not stored:", err=True)
    typer.echo(made)
    typer.echo(
        "The line for the service, in the file of MURHO_API_KEYS_FILE, or in MURHO_API_KEYS (commas between):", err=True
    )
    typer.echo(stored.line())
