from __future__ import annotations

import anyio
from hypothesis import given
from hypothesis import strategies as st

from murho.service.predict import bodies
from murho.service.predict.bodies import BodyChunks


@given(st.lists(st.tuples(st.binary(max_size=3), st.integers(0, 60_000)), max_size=30))
def test_a_body_is_what_arrived(parts: list[tuple[bytes, int]]) -> None:
    chunks, sent = BodyChunks(), b""
    for part, times in parts:
        chunks.add(part * times)
        sent += part * times
    assert chunks.size == len(sent)
    assert anyio.run(chunks.whole) == sent


def test_tiny_chunks_are_put_together() -> None:
    chunks = BodyChunks()
    for _ in range(200_000):
        chunks.add(b"x")
    assert len(chunks._chunks) == 200_000 // bodies.CHUNK_BYTES
    assert anyio.run(chunks.whole) == b"x" * 200_000
