"""The command `murho mcp`: tools for agents, over stdin and stdout."""

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, cast

import typer

from murho.cli.serve import CheckpointsSetting, DeviceSetting, configuration_of
from murho.model.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from murho.service.context import State
    from murho.service.settings import Settings


def mcp(
    checkpoints: CheckpointsSetting = None,
    url: Annotated[
        str | None,
        typer.Option(help="A service to ask instead, such as http://127.0.0.1:8000; its key: MURHO_API_KEY."),
    ] = None,
    device: DeviceSetting = None,
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
    settings = configuration_of(given).settings
    configure_logging(settings.log_level, settings.log_format)
    asyncio.run(_speak(settings, url))


async def _speak(settings: "Settings", url: str | None) -> None:
    """Answer an agent over stdin and stdout, from a service of its own or from the one at a URL."""
    import asyncio
    from contextlib import AsyncExitStack
    from functools import partial

    import httpx2

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
            while not state["service"].registry.snapshot.loaded:
                await asyncio.sleep(0.05)
            connected = partial(in_process, app, {"state": {**state, "caller": Caller("stdio", outcomes=True)}})
        await make_server(connected).run_stdio_async()
