from __future__ import annotations

import gzip
import json
import threading
from types import SimpleNamespace
from typing import Any

import anyio

from murho.service.predict.answers import Asked, Terms
from murho.service.predict.json_bodies import JSONCodec
from murho.service.predict.routes import SMALL_BODY_BYTES, Decoder
from murho.service.settings import Settings
from tests.service.support import ROW, SCHEMA


class Watched(JSONCodec):
    """Notes the thread that decodes."""

    thread = ""

    def decode(self, *arguments: Any, **more: Any) -> Asked:
        self.thread = threading.current_thread().name
        return super().decode(*arguments, **more)


def decode(body: bytes, encoding: str = "", *, unpacks: bool = False, **settings: Any) -> str:
    """Returns the name of the thread that has decoded a body."""
    reader, decoder = Watched(), Decoder()

    async def sent() -> bytes:
        return body

    async def ask() -> None:
        call: Any = SimpleNamespace(body=sent, headers={"content-encoding": encoding})
        await decoder.decode(call, reader.decode, Terms({}, SCHEMA, Settings(**settings)), unpacks=unpacks)

    try:
        anyio.run(ask)
    finally:
        decoder.close()
    return reader.thread


def body_of(rows: int, **options: Any) -> bytes:
    return json.dumps({"inputs": [ROW] * rows, **options}).encode()


def test_small_bodies_are_decoded_at_once_and_others_in_a_thread() -> None:
    small, large = body_of(1), body_of(500)
    assert len(small) < SMALL_BODY_BYTES < len(large)
    assert decode(small) == "MainThread"
    assert decode(large).startswith("codec")
    assert decode(gzip.compress(small), "gzip").startswith("codec")
    assert decode(small, "Identity") == "MainThread"
    assert decode(small, unpacks=True).startswith("codec")
