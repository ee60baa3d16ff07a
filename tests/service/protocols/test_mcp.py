"""`POST /mcp` as a client without its library sends it."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

import httpx
import pytest

from tests.service.protocols.support import NUMBERS
from tests.service.support import AppClient, FakeModel, make_client, pointers

pytest.importorskip("mcp")


def called(client: AppClient, name: str, **arguments: Any) -> httpx.Response:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
    headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-06-18"}
    return client.post("/mcp", message, headers=headers)


def test_messages_are_bounded_and_not_echoed(client: AppClient) -> None:
    assert "mcp.server.streamable_http_manager" in sys.modules
    assert "cars" in called(client, "list_models").text
    for answer in (called(client, "x" * 200_000), called(client, "describe_model", model="x" * 200_000)):
        assert answer.status_code == 200
        assert len(answer.content) < 2_000
    assert pointers(called(client, "list_models", more="x" * 300_000), 413) == []


def test_texts_of_a_table_do_not_control_what_an_agent_shows() -> None:
    name = "weight\u202egk\x9b"
    schema = replace(NUMBERS, features=(replace(NUMBERS.features[0], name=name), *NUMBERS.features[1:]))
    with make_client(FakeModel("numbers", schema=schema)) as client:
        result = called(client, "describe_model", model="numbers").json()["result"]
    text = result["content"][0]["text"]
    assert r"weight\u202egk\u009b" in text
    assert not {"\u202e", "\x9b"} & set(text)
    assert json.loads(text) == result["structuredContent"]
    assert result["structuredContent"]["features"][0]["name"] == name  # exact: the agent sends it back


def test_messages_are_charged() -> None:
    with make_client(FakeModel(), row_draws_per_second=1_000.0) as client:
        assert called(client, "list_models").status_code == 200
        assert called(client, "list_models", more="x" * 200_000).status_code == 200
        assert pointers(called(client, "list_models", more="x" * 200_000), 429) == []
