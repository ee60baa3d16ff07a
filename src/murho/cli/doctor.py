"""The command `murho doctor`: what is wrong with this installation."""

import importlib
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from murho.cli.serve import configuration_of
from murho.model.errors import CheckpointError, MurhoError

if TYPE_CHECKING:
    from collections.abc import Callable

    from murho.service.settings import Settings

__all__ = ["CHECKS", "Finding", "doctor", "examine"]

OLDEST_PYTHON = (3, 11)
CHARTS, COMPILED = "pip install '.[charts]' in a clone of Murho", "pip install '.[compiled]' in a clone of Murho"
MARKS = {"ok": "ok      ", "note": "note    ", "problem": "PROBLEM "}


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
    settings = configuration_of(locals()).settings
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
    from murho.model.checkpoint.directories import list_checkpoints
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
