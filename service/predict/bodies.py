"""A body as it arrives: collected in chunks of a good size, and joined where that holds nobody up."""

from __future__ import annotations

import asyncio

__all__ = ["BodyChunks"]

CHUNK_BYTES = 2**16
LARGE_BYTES = 2**20
"""From this size on, `bytes.join` releases the interpreter's lock, so that a thread can do it beside the event loop."""


class BodyChunks:
    """The chunks of one body. Tiny ones are put together: each `bytes` takes some memory of its own."""

    def __init__(self) -> None:
        self.size = 0
        self._chunks: list[bytes] = []
        self._small = bytearray()

    def add(self, chunk: bytes) -> None:
        """Adds what has arrived."""
        self.size += len(chunk)
        if len(chunk) >= CHUNK_BYTES and not self._small:
            self._chunks.append(chunk)
            return
        self._small += chunk
        if len(self._small) >= CHUNK_BYTES:
            self._flush()

    async def whole(self) -> bytes:
        """Returns the body. The chunks are gone afterwards."""
        if not self._chunks:
            return bytes(self._small)
        self._flush()
        chunks, self._chunks = self._chunks, []
        if self.size < LARGE_BYTES:
            return b"".join(chunks)
        return await asyncio.to_thread(b"".join, chunks)

    def _flush(self) -> None:
        self._chunks.append(bytes(self._small))
        self._small.clear()
