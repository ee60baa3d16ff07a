"""The command `murho doctor`: what is wrong with this installation."""

import importlib
import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Literal

import typer

from murho.cli.serve import CheckpointsSetting, DeviceSetting, HostSetting, PortSetting, configuration_of
from murho.cli.shared import JsonOption, print_json
from murho.model.errors import MurhoError

if TYPE_CHECKING:
    from murho.service.settings import Settings

CHARTS, COMPILED = "pip install '.[charts]' in a clone of Murho", "pip install '.[compiled]' in a clone of Murho"
MARKS = {"ok": "ok      ", "note": "note    ", "problem": "PROBLEM "}


def doctor(
    checkpoints: CheckpointsSetting = None,
    device: DeviceSetting = None,
    host: HostSetting = None,
    port: PortSetting = None,
    json: JsonOption = False,
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
        print_json({"ok": not problems, "findings": findings})
    else:
        typer.echo(f"{problems} problem{'' if problems == 1 else 's'}" if problems else "all is well")
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
    """Run all checks, one after the other; a check that fails is a problem, and the next ones follow."""
    for name, check in CHECKS.items():
        try:
            yield from check(settings)
        except MurhoError as error:
            yield Finding(name, "problem", str(error))
        except Exception as error:
            yield Finding(name, "problem", f"the check failed: {type(error).__name__}: {error}")


def _versions(_: "Settings") -> Iterator[Finding]:
    yield Finding("python", "ok", platform.python_version())  # pip installs Murho for none that is too old
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

    device = resolve_device(settings.device)
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
    from murho.model.checkpoint.posterior import Posterior
    from murho.model.checkpoint.stores import describe_place, is_url, store_at

    found, sound = store_at(settings.checkpoints).list(), 0
    for reference in found:
        problem = reference.problem
        if problem is None and not is_url(settings.checkpoints):  # from a storage nothing is fetched
            try:
                Posterior.load(reference.path, engine="torch")
            except MurhoError as error:
                problem = str(error)
        if problem is None:
            sound += 1
        else:
            yield Finding(f"checkpoint {reference.name}/{reference.version}".rstrip("/"), "problem", problem)
    place = describe_place(settings.checkpoints)
    told = f"{sound} of {len(found)} versions in {place} can be used"
    none = f"there are none in {place}: murho train FILE --target COLUMN makes one"
    yield Finding("checkpoints", "ok" if sound else "note", told if found else none)


def _port(settings: "Settings") -> Iterator[Finding]:
    from murho.service.process import listen

    listen(settings.host, settings.port).close()
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
