"""The commands `serve`, `mcp`, `key` and `doctor`. They import the service only when they run: help comes at once."""

import importlib
import json
import os
import platform
import shlex
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from murho.model.errors import CheckpointError, MurhoError, OptionError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from murho.service.engine.jobs import ModelLike
    from murho.service.models.registry import Snapshot
    from murho.service.parts import State
    from murho.service.settings import Configuration, Settings

__all__ = ["CHECKS", "Finding", "doctor", "examine", "key", "mcp", "serve"]

OLDEST_PYTHON = (3, 11)
CHARTS, COMPILED = "pip install '.[charts]' in a clone of Murho", "pip install '.[compiled]' in a clone of Murho"
MARKS = {"ok": "ok      ", "note": "note    ", "problem": "PROBLEM "}


def serve(
    checkpoints: Annotated[
        str | None,
        typer.Option(
            help="Directory of NAME/VERSION checkpoints, or the URL of a storage: s3://BUCKET/PREFIX.  "
            "[default: checkpoints]"
        ),
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; 0.0.0.0 for all.  [default: 127.0.0.1]")
    ] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 lets the system choose.  [default: 8000]")] = None,
    ssl_certfile: Annotated[Path | None, typer.Option(help="Certificate chain, PEM; the service speaks HTTPS.")] = None,
    ssl_keyfile: Annotated[Path | None, typer.Option(help="Its key, if it is in another file.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda.  [default: auto]")] = None,
    default_model: Annotated[
        str | None, typer.Option(help="The model behind POST /predict; by default the only one.")
    ] = None,
    max_samples: Annotated[
        int | None, typer.Option(help="The most draws a request may ask for.  [default: 4096]")
    ] = None,
    workers: Annotated[
        str | None, typer.Option(help="Processes on the port; auto: one for each processor.  [default: 1]")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="Threads of the computation; by default all processors there are.")
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
    configuration = _configuration(locals(), config)
    if show_settings:
        sys.stdout.write("".join(f"{line}\n" for line in configuration.lines()))
        return
    settings = configuration.settings
    if settings.device == "cuda":
        from murho.model.runtime import resolve_device

        resolve_device(settings.device)

    from murho.model.checkpoint.stores import shown_place
    from murho.service.process import address_of, listen, reserve, serve_until_stopped
    from murho.service.supervisor import Supervisor, count_of
    from murho.service.telemetry.log import configure_logging

    configure_logging(settings.log_level, settings.log_format)
    count = count_of(settings)
    listening = (listen if count == 1 else reserve)(settings.host, settings.port)
    address = address_of(listening, "http" if settings.ssl_certfile is None else "https")
    _say(f"Murho serves the checkpoints of {shown_place(settings.checkpoints)} on {address}, once loaded.")

    def announce(snapshot: "Snapshot") -> None:
        _announce(snapshot, settings, address)

    if count == 1:
        serve_until_stopped(settings, listening, announce)
    else:
        Supervisor(settings, count, listening, announce).run()
    _say("Stopped.")


def _configuration(options: dict[str, Any], file: Path | None = None) -> "Configuration":
    """Returns the settings, of which a command has some as options; an option that is None was not given."""
    from murho.service.settings import Settings, read_configuration

    given = {name: value for name, value in options.items() if name in Settings.model_fields and value is not None}
    return read_configuration(given, file)


def _announce(snapshot: "Snapshot", settings: "Settings", address: str) -> None:
    """Prints the served and refused checkpoints, and a request to try."""
    from murho.service.models.registry import first_of
    from murho.service.predict.rows import example_row
    from murho.service.telemetry.log import escaped

    for item in snapshot.refused:
        _say(escaped(f"Refused {item.name} {item.version}".rstrip() + f": {item.reason}", lines=True))
    try:
        snapshot.require_models()
    except MurhoError as error:
        _say(f"Not ready: {error}")
        return
    tried = next(iter(snapshot.models.values())).latest
    try:
        tried = snapshot.find_default(settings.default_model)
    except MurhoError as error:
        if settings.default_model is not None:
            _say(f"Warning: the default model isn't served. {error}")
    served = first_of([_served(model.latest) for model in snapshot.models.values()])
    body = json.dumps({"inputs": [example_row(tried)]}, ensure_ascii=False)
    line = f"curl -s {address}/models/{tried.name}/predict -H 'content-type: application/json' -d {shlex.quote(body)}"
    _say(f"Ready: {served}. Try:\n\n  {line}\n")
    _say(f"API documentation: {address}/docs    Try the models: {address}/")


def _served(model: "ModelLike") -> str:
    return f"{model.name} (version {model.version}, predicts {model.schema.target.name})"


def _say(line: str) -> None:
    with suppress(OSError):  # a full disk, a closed pipe: the service serves all the same
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def key(
    name: Annotated[str, typer.Argument(help="Whose key it is; the access log shows it.")],
    admin: Annotated[bool, typer.Option("--admin", help="It may load and unload models, too.")] = False,
    requests: Annotated[
        float | None, typer.Option(min=1e-6, help="Requests a second; by default those of the service's settings.")
    ] = None,
    cost: Annotated[
        float | None, typer.Option(min=1e-6, help="Row-draws a second; by default those of the service's settings.")
    ] = None,
) -> None:
    """Make an API key, and the line that lets a service accept it."""
    from murho.service.security import Caller, check_name, digest_of, make_key

    check_name(name)
    made = make_key()
    stored = Caller(name, admin, requests, cost, digest_of(made.encode()))
    typer.echo("The key, for the caller. It is shown this once and stored nowhere:", err=True)
    typer.echo(made)
    typer.echo(
        "The line for the service, in the file of MURHO_API_KEYS_FILE, or in MURHO_API_KEYS (commas between):", err=True
    )
    typer.echo(stored.line())


def mcp(
    checkpoints: Annotated[
        str | None, typer.Option(help="Directory of checkpoints, or the URL of a storage.  [default: checkpoints]")
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(help="A service to ask instead, such as http://127.0.0.1:8000; its key: MURHO_API_KEY."),
    ] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda.  [default: auto]")] = None,
) -> None:
    """Give an agent tools over stdin and stdout (Model Context Protocol): models, predictions, totals.

    An agent's configuration names this command: {"command": "murho", "args": ["mcp", "--checkpoints", "DIR"]}.
    """
    if find_spec("mcp") is None:
        raise OptionError("murho mcp needs the extra: pip install 'murho[mcp]'")
    if checkpoints is not None and url is not None:
        raise OptionError("--checkpoints and --url: give one of both")
    import asyncio

    from murho.service.telemetry.log import configure_logging

    given = {"checkpoints": checkpoints, "device": device, "log_level": "warning"}
    settings = _configuration(given).settings
    configure_logging(settings.log_level, settings.log_format)
    asyncio.run(_speak(settings, url))


async def _speak(settings: "Settings", url: str | None) -> None:
    """Answers an agent over stdin and stdout, from a service of its own or from the one at a URL."""
    import asyncio
    from contextlib import AsyncExitStack
    from functools import partial

    import httpx2
    from mcp.server.stdio import stdio_server

    from murho.service.app import create_app
    from murho.service.protocols.mcp import in_process, make_server
    from murho.service.security import Caller

    async with AsyncExitStack() as stack:
        connected: Callable[[], AbstractAsyncContextManager[httpx2.AsyncClient]]
        if url is not None:
            key = os.environ.get("MURHO_API_KEY")
            headers = {} if key is None else {"authorization": f"Bearer {key}"}
            connected = partial(httpx2.AsyncClient, base_url=url, headers=headers, timeout=settings.request_timeout)
        else:
            app = create_app(settings)
            state = cast("State", await stack.enter_async_context(app.router.lifespan_context(app)))
            while not state["parts"].registry.snapshot.loaded:
                await asyncio.sleep(0.05)
            connected = partial(in_process, app, {"state": {**state, "caller": Caller("stdio")}})
        server = make_server(connected)
        reading, writing = await stack.enter_async_context(stdio_server())
        await server.run(reading, writing, server.create_initialization_options())


def doctor(
    checkpoints: Annotated[
        str | None, typer.Option(help="Directory of checkpoints, or the URL of a storage.  [default: checkpoints]")
    ] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda.  [default: auto]")] = None,
    host: Annotated[str | None, typer.Option(help="Address of the service.  [default: 127.0.0.1]")] = None,
    port: Annotated[int | None, typer.Option(help="Port of the service.  [default: 8000]")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what is wrong with this installation: versions, device, threads, engine, checkpoints, port.

    What is not given is that of `murho serve`: from MURHO_ variables, the file of MURHO_CONFIG, or the default.
    """
    settings = _configuration(locals()).settings
    findings = []
    for finding in examine(settings):
        findings.append(finding)
        if not json:
            typer.echo(f"{MARKS[finding.status]}{finding.check}: {finding.found}")
    problems = sum(finding.status == "problem" for finding in findings)
    if json:
        import orjson

        said = {"ok": not problems, "findings": findings}
        typer.echo(orjson.dumps(said, option=orjson.OPT_INDENT_2).decode())
    elif problems:
        typer.echo(f"{problems} problem{'' if problems == 1 else 's'}")
    else:
        typer.echo("all is well")
    if problems:
        raise typer.Exit(1)


@dataclass(frozen=True)
class Finding:
    """What a check found.

    Attributes:
        check: What was looked at.
        status: ``ok``; ``note``, something that may be missed; ``problem``, something that does not work.
        found: What was found and, if it is wrong, what to do.
    """

    check: str
    status: Literal["ok", "note", "problem"]
    found: str


def examine(settings: "Settings") -> Iterator[Finding]:
    """Runs all checks, one after the other; a check that fails is a problem, and the next ones follow."""
    for name, check in CHECKS.items():
        try:
            yield from check(settings)
        except Exception as error:
            yield Finding(name, "problem", f"the check failed: {type(error).__name__}: {error}")


def _versions(_: "Settings") -> Iterator[Finding]:
    python, needed = platform.python_version(), ".".join(map(str, OLDEST_PYTHON))
    if sys.version_info >= OLDEST_PYTHON:
        yield Finding("python", "ok", python)
    else:
        yield Finding("python", "problem", f"{python}: Murho needs Python {needed} or newer")
    yield Finding("murho", "ok", metadata.version("murho"))
    for package in ("torch", "numpy"):
        try:
            importlib.import_module(package)
        except Exception as error:
            yield Finding(
                package, "problem", f"it can't be imported ({error}): install Murho again, such as make setup"
            )
        else:
            yield Finding(package, "ok", metadata.version(package))
    extras = (
        ("numba", "answers on a CPU take several times as long", COMPILED),
        ("vl-convert-python", "reports have no charts", CHARTS),
    )
    for package, without, install in extras:
        try:
            yield Finding(package, "ok", metadata.version(package))
        except metadata.PackageNotFoundError:
            yield Finding(package, "note", f"not installed: {without}; {install}")


def _device(settings: "Settings") -> Iterator[Finding]:
    import torch

    from murho.model.runtime import resolve_device

    try:
        device = resolve_device(settings.device)
    except MurhoError as error:
        yield Finding("device", "problem", str(error))
        return
    name = f" ({torch.cuda.get_device_name(device)})" if device.startswith("cuda") else ""
    yield Finding("device", "ok", f"{device}{name}")


def _threads(_: "Settings") -> Iterator[Finding]:
    from murho.model.runtime import available_processors

    count = available_processors()
    yield Finding("threads", "ok", f"{count}, one for each processor that this process may use")


def _engine(_: "Settings") -> Iterator[Finding]:
    try:
        from murho.model.compiling import code_folder
        from murho.model.predictive.compiled_engine import compile_kernels
    except ModuleNotFoundError:
        yield Finding("compiled engine", "note", f"Numba is not installed, PyTorch answers; {COMPILED}")
        return
    folder = code_folder()
    filled = folder is not None and any(folder.rglob("*.nbc"))
    try:
        kernels = compile_kernels()
    except Exception as error:
        yield Finding(
            "compiled engine", "problem", f"it can't be compiled here, PyTorch answers, more slowly: {error!r}"
        )
        return
    network = "" if kernels.forward_draws is not None else "; PyTorch computes the network, as this build has no MKL"
    yield Finding("compiled engine", "ok", f"it works{network}")
    if folder is None:
        yield Finding(
            "code cache", "note", "no folder is writable, so every start compiles for 20 s: set NUMBA_CACHE_DIR"
        )
    else:
        yield Finding("code cache", "ok", f"{folder}" + ("" if filled else " (filled just now)"))


def _checkpoints(settings: "Settings") -> Iterator[Finding]:
    from murho.model.checkpoint.checkpoint import list_checkpoints
    from murho.model.checkpoint.posterior import Posterior

    root = settings.checkpoints
    if isinstance(root, str):
        yield from _stored(root)
        return
    try:
        found = list_checkpoints(root)
    except CheckpointError as error:
        yield Finding("checkpoints", "problem", str(error))
        return
    if not found:
        there = "has no checkpoint" if root.is_dir() else "does not exist"
        yield Finding("checkpoints", "note", f"{root.absolute()} {there}: murho train FILE --target COLUMN makes one")
        return
    sound = 0
    for reference in found:
        where = f"{reference.name}/{reference.version}".rstrip("/")
        if reference.problem is not None:
            yield Finding(f"checkpoint {where}", "problem", reference.problem)
            continue
        try:
            Posterior.load(reference.path, engine="torch")
        except MurhoError as error:
            yield Finding(f"checkpoint {where}", "problem", str(error))
        else:
            sound += 1
    yield Finding("checkpoints", "ok", f"{sound} of {len(found)} versions in {root.absolute()} can be loaded")


def _stored(url: str) -> Iterator[Finding]:
    """What a storage lists; nothing is fetched from it."""
    from murho.model.checkpoint.stores import store_at

    try:
        found = store_at(url).list()
    except MurhoError as error:
        yield Finding("checkpoints", "problem", str(error))
        return
    for reference in found:
        if reference.problem is not None:
            yield Finding(f"checkpoint {reference.name}/{reference.version}", "problem", reference.problem)
    sound = sum(reference.problem is None for reference in found)
    advice = "" if found else ": murho train FILE --target COLUMN --checkpoints URL makes one"
    yield Finding("checkpoints", "ok" if sound else "note", f"{sound} complete versions in {url}{advice}")


def _port(settings: "Settings") -> Iterator[Finding]:
    from murho.service.process import listen

    try:
        listen(settings.host, settings.port).close()
    except MurhoError as error:
        yield Finding("port", "problem", str(error))
    else:
        yield Finding("port", "ok", f"{settings.port} of {settings.host} is free")


CHECKS: "dict[str, Callable[[Settings], Iterator[Finding]]]" = {
    "versions": _versions,
    "device": _device,
    "threads": _threads,
    "compiled engine": _engine,
    "checkpoints": _checkpoints,
    "port": _port,
}
"""Name of a check → what it yields. A new check is a function and a line here."""
