"""Agents: the tools over stdin and stdout and over HTTP, asked by the protocol's own client."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from murho.service.security import Caller, digest_of
from tests.e2e.support import Service, serve
from tests.support import ROOT

CHECKPOINTS = ROOT / "tests" / "fixtures" / "checkpoints"
ROW = {"sqm": 80, "rooms": 3, "city": "Bern", "parking": "yes", "listed": "2024-08-04"}
KEY = "k" * 40


async def _ask_everything(client: Client) -> None:
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert list(tools) == ["list_models", "describe_model", "predict", "explain", "aggregate", "decide", "quality"]
    features = tools["predict"].input_schema["properties"]["rows"]["items"]["properties"]
    assert features["sqm"]["type"] == "number"
    assert features["sqm"]["description"] == "18.1 to 216.6 in training."
    assert features["rooms"]["type"] == ["number", "null"]
    assert features["city"]["examples"] == ["Basel", "Bern", "Genf", "Zug"]

    async def told(tool: str, **arguments: Any) -> dict[str, Any]:
        result = await client.call_tool(tool, arguments)
        assert not result.is_error, result.content
        document: dict[str, Any] = result.structured_content
        return document

    assert [model["name"] for model in (await told("list_models"))["models"]] == ["rents"]
    assert (await told("describe_model", model="rents"))["target"]["name"] == "rent"
    odd = ROW | {"sqm": 2000, "city": "Elsewhere"}
    answer = await told("predict", model="rents", rows=[ROW, odd], interval=0.8, threshold=1000)
    usual, unusual = answer["rows"]
    assert usual["interval"][0] < usual["mean"] < usual["interval"][1]
    assert 0.0 < usual["probability_above_threshold"] < 1.0
    assert not usual["unsure"]
    assert unusual["unsure"]
    assert "is above the training range" in " ".join(unusual["because"])
    many = (await told("predict", model="rents", rows=[odd] * 110))["rows"]  # more than warnings are listed of
    assert "the row is unlike the training rows" in many[-1]["because"]
    totals = await told("aggregate", model="rents", rows=[ROW, odd, ROW], by=["city"], statistic="mean")
    assert [(group["group"], group["rows"]) for group in totals["groups"]] == [(["Bern"], 2), (["Elsewhere"], 1)]

    places = [{"id": name, "inputs": {"city": name}, "cost": 5.0} for name in ("Bern", "Zug")]
    context = {name: cell for name, cell in ROW.items() if name != "city"}
    chosen = await told("decide", model="rents", contexts=[context], actions=places, policy="greedy", goal="min")
    (decision,) = chosen["decisions"]
    assert decision["action"] == min(decision["actions"], key=lambda each: each["mean"])["id"]
    assert sum(each["probability_best"] for each in decision["actions"]) == pytest.approx(1.0, abs=1e-4)
    quality = await told("quality", model="rents", window="24h")
    assert quality["versions"] == []
    assert (await told("quality", model="rents", by=None))["versions"] == []

    async def refused(tool: str, **arguments: Any) -> str:
        result = await client.call_tool(tool, arguments)
        assert result.is_error
        return str(result.content[0].text)  # type: ignore[union-attr]

    wrong = await refused("predict", model="rents", rows=[ROW | {"sqm": "many"}])
    assert re.fullmatch("/rows/0/sqm: Expected a number, .*", wrong)
    assert "elsewhere" in await refused("predict", model="elsewhere", rows=[ROW])
    assert "as list_models tells" in await refused("predict", model="../readyz", rows=[ROW])
    assert "Field required" in await refused("predict", rows=[ROW])
    assert "at most 20 items" in await refused("explain", model="rents", rows=[ROW] * 21)
    assert "train without --missing refuse" in await refused("explain", model="rents", rows=[ROW])
    assert "at most 200 items" in await refused("predict", model="rents", rows=[ROW] * 201)
    assert "not permitted" in await refused("predict", model="rents", rows=[ROW], samples=7)
    assert "/window" in await refused("quality", model="rents", window="soon")
    assert "Unknown tool" in await refused("drop_table")


def test_over_stdin_and_stdout(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment["MURHO_STORE"] = str(tmp_path / "murho.db")
    command = ["-m", "murho", "mcp", "--checkpoints", str(CHECKPOINTS), "--device", "cpu"]
    started = StdioServerParameters(command=sys.executable, args=command, env=environment)

    async def ask() -> None:
        async with Client(started) as client:
            await _ask_everything(client)

    anyio.run(ask)


def test_what_cells_do_is_explained_in_words(busy: Service) -> None:
    row = {"Weight": 3504.0, "Year": "1970-06-01", "Automatic": True, "Horsepower": 90.0, "Origin/plant": "USA"}

    async def ask() -> Any:
        async with Client(streamable_http_client(f"{busy.address}/mcp")) as client:
            return await client.call_tool("explain", {"model": "cars", "rows": [row]})

    result = anyio.run(ask)
    assert not result.is_error, result.content
    (number,) = result.structured_content["rows"]
    answer = httpx2.post(f"{busy.address}/models/cars/predict", json={"inputs": [row], "include": ["why"]}).json()
    assert number["mean"] == pytest.approx(answer["mean"][0], rel=1e-4)
    shares = dict(zip(answer["why"]["features"], answer["why"]["mean"][0], strict=True))
    assert len(number["cells"]) == 5
    for words in number["cells"]:
        name, share = re.fullmatch(r"(\S+) = .+: mean ([+-][0-9.e+-]+)( \S+)?, variance [+-][0-9]+%", words).group(1, 2)  # type: ignore[union-attr]
        assert float(share) == pytest.approx(shares[name], rel=0.01)


def test_over_http_behind_the_same_keys(tmp_path: Path) -> None:
    keys = Caller("agent", digest=digest_of(KEY.encode())).line()
    with serve(CHECKPOINTS, tmp_path / "log", api_keys=keys, store=str(tmp_path / "murho.db")) as service:

        async def connected(mode: Any) -> None:
            async with httpx2.AsyncClient(headers={"authorization": f"Bearer {KEY}"}, timeout=60) as http:
                transport = streamable_http_client(f"{service.address}/mcp", http_client=http)
                async with Client(transport, mode=mode) as client:
                    await _ask_everything(client)

        for mode in ("auto", "legacy"):
            anyio.run(connected, mode)
        key = {"x-api-key": KEY}
        wrong = httpx2.post(f"{service.address}/mcp", json={}, headers={"authorization": "Bearer nobody"})
        assert wrong.status_code == 401
        assert httpx2.get(f"{service.address}/mcp", headers=key).status_code == 405
        assert httpx2.post(f"{service.address}/mcp", content=b"{", headers=key).status_code < 500
