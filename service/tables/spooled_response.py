"""Large answers: encoded into a spool piece by piece, and sent from there once all of it is known.

So an answer is never in memory as a whole beside its arrays, a client that takes it slowly holds no memory, and what
goes wrong is known before the status is sent. Should it go wrong afterwards, the connection ends before the announced
length.
"""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import TYPE_CHECKING

from starlette.responses import Response

from murho.service.predict.compression import compressed, compressed_pieces
from murho.service.tables.spool import Spool

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from starlette.types import Receive, Scope, Send

    from murho.service.tables.spool import SpoolRoom

__all__ = ["SpooledResponse", "response_of", "sent_pieces"]

SENT_BYTES = 2**18


def response_of(
    pieces: Iterable[bytes], room: SpoolRoom | None, headers: Mapping[str, str], media_type: str, coding: str | None
) -> Response:
    """Returns an answer; where it is large, in a thread.

    Args:
        pieces: Its body.
        room: For a large answer; None for a small one, which stays in memory.
        headers: Its headers.
        media_type: Of the body before it is compressed.
        coding: gzip or deflate, to be compressed; None: as it is.

    Raises:
        QueueFullError: There is no room.
    """
    headers = dict(headers)
    if room is None:
        body = b"".join(pieces)
        if coding is not None and (small := compressed(body, coding)) is not None:
            body, headers["content-encoding"] = small, coding
        return Response(body, headers=headers, media_type=media_type)
    if coding is not None:
        pieces, headers["content-encoding"] = compressed_pieces(pieces, coding), coding
    spool = Spool(room)
    try:
        for piece in pieces:
            spool.write(piece)
    except BaseException:
        spool.close()
        raise
    return SpooledResponse(spool, headers, media_type)


class SpooledResponse(Response):
    """An answer with the bytes of a spool, which it closes when it is sent.

    Args:
        spool: Has all but the ends.
        headers: Its headers.
        media_type: Of the body.
        head: What comes before the spool.
        tail: What comes after it.
    """

    def __init__(
        self, spool: Spool, headers: Mapping[str, str], media_type: str, head: bytes = b"", tail: bytes = b""
    ) -> None:
        super().__init__(headers=headers, media_type=media_type)
        self._head, self._spool, self._tail = head, spool, tail
        self.headers["content-length"] = str(len(head) + spool.size + len(tail))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - as ASGI has it
        """Sends the answer."""
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            pieces = chain([self._head] if self._head else [], sent_pieces(self._spool))
            while piece := await asyncio.to_thread(next, pieces, b"") if self._spool.in_file else next(pieces, b""):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": self._tail, "more_body": False})
        finally:
            self._spool.close()


def sent_pieces(spool: Spool) -> Iterator[bytes]:
    """Yields what a spool has, without keeping it in memory."""
    view = spool.view()
    for start in range(0, len(view), SENT_BYTES):
        yield bytes(view[start : start + SENT_BYTES])
        spool.forget_pages()
