"""The command `murho doctor`: says what is wrong with an installation. Exit code 1 if something is."""

import sys
from typing import Annotated

import typer

__all__ = ["doctor"]

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
    from murho.service.configuration import read_configuration
    from murho.service.doctor import Finding, Place, examine, summary_of

    options = {"checkpoints": checkpoints, "device": device, "host": host, "port": port}
    settings = read_configuration({name: value for name, value in options.items() if value is not None}).settings
    findings: list[Finding] = []
    for finding in examine(Place(settings.checkpoints, settings.device, settings.host, settings.port)):
        findings.append(finding)
        if not json:
            sys.stdout.write(f"{MARKS[finding.status]}{finding.check}: {finding.found}\n")
            sys.stdout.flush()
    problems = sum(finding.status == "problem" for finding in findings)
    if json:
        import orjson

        sys.stdout.write(orjson.dumps(summary_of(findings), option=orjson.OPT_INDENT_2).decode() + "\n")
    elif problems:
        sys.stdout.write(f"{problems} problem{'' if problems == 1 else 's'}\n")
    else:
        sys.stdout.write("all is well\n")
    if problems:
        raise typer.Exit(1)
