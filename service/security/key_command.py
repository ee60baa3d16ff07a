"""The command `murho key`: makes an API key, shows it once, and shows the line that stores it."""

import sys
from typing import Annotated

import typer

from murho.service.security.api_keys import StoredKey, check_name, digest_of, make_key

__all__ = ["key"]


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
    check_name(name)
    made = make_key()
    stored = StoredKey(name, digest_of(made.encode()), admin, requests, cost)
    sys.stderr.write("The key, for the caller. It is shown this once and stored nowhere:\n")
    sys.stderr.flush()
    sys.stdout.write(f"{made}\n")
    sys.stdout.flush()
    sys.stderr.write(
        "The line for the service, in the file of MURHO_API_KEYS_FILE, or in MURHO_API_KEYS (commas between):\n"
    )
    sys.stderr.flush()
    sys.stdout.write(f"{stored.line()}\n")
