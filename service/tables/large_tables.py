"""Large CSV and Arrow tables: read, computed and written a block of rows at a time, so that memory is bounded.

The body is collected first, in a file if it is large (`service.predict.spool`): usual clients read nothing of an answer
before they have sent all of their request. Then each block is decoded, is a job of the scheduler, and is encoded, while
the next one is decoded already. The answer is collected in a file, too, and sent when its last block is there. So the
status says the truth: what is wrong in any row, and a deadline that passes at any time, are answered as for a small
request, and 200 stands for a whole answer.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from murho.model.evaluation.recorded import with_grid
from murho.service.errors import ClientGoneError, DeadlineError
from murho.service.predict.answers import (
    MAX_WARNINGS,
    Answered,
    Asked,
    Encoded,
    Terms,
    fact_headers,
    require_place,
    warnings_of,
)
from murho.service.predict.in_flight import BYTES_PER_ROW_DRAW
from murho.service.predict.options import records
from murho.service.predict.spool import (
    Spool,
    SpooledResponse,
    accepted_coding,
    decompressed_pieces,
    is_plain,
    response_of,
    sent_pieces,
)
from murho.service.tables.blocks import BlockCodec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping

    from starlette.responses import Response

    from murho.model.tables.schema import UnfamiliarValue
    from murho.service.predict.answers import Codec
    from murho.service.predict.in_flight import InFlight
    from murho.service.predict.rows import Inputs
    from murho.service.tables.blocks import AskedInBlocks

__all__ = ["LARGE_BYTES", "answer_in_blocks", "may_be_large", "plain_body", "reading_ahead"]

LARGE_BYTES = 2**22
"""Larger bodies are taken in blocks."""
EXPANSION = 64
"""A compressed body that is so many times smaller may be large."""

Result = TypeVar("Result")


def may_be_large(headers: Mapping[str, str]) -> bool:
    """Returns whether the body behind these headers may be large."""
    announced = headers.get("content-length", "")
    large = LARGE_BYTES if is_plain(headers.get("content-encoding", "")) else LARGE_BYTES // EXPANSION
    return not announced.isdecimal() or int(announced) > large


async def answer_in_blocks(call: InFlight, body: Spool, reader: Codec, writer: Codec, terms: Terms) -> Response | None:
    """Answers a request for predictions block by block.

    Args:
        call: The request.
        body: Its body, collected.
        reader: Its codec.
        writer: The codec of the answer.
        terms: How it is read.

    Returns:
        The answer; None if this body is small, or can only be read as a whole.

    Raises:
        MurhoError: There is no answer; `errors.problem_details` has the HTTP status.
    """
    parts, headers = call.parts, call.headers
    async with plain_body(call, body, headers.get("content-encoding", "")) as body:
        if not isinstance(reader, BlockCodec) or not isinstance(writer, BlockCodec) or body.size <= LARGE_BYTES:
            return None
        asked = await parts.decoder.in_thread(partial(reader.read, body.view(), terms))
        writer.require_place(asked.options)
        require_place(asked.rows, asked.options, terms.schema, terms.settings)
        call.admit(asked.rows, asked.options, asked.request.timeout)
        with ExitStack() as stack:
            answer = stack.enter_context(Spool(parts.spool_room))
            answered = await _through(call, asked, body, writer, answer)
            (head, tail), facts = writer.ends(answered), fact_headers(answered)
            accepted = accepted_coding(headers.get("accept-encoding", ""))
            if accepted is None:
                stack.pop_all()  # the response closes it
                return SpooledResponse(answer, facts, writer.media_type, head, tail)
            encoded = Encoded(chain([head], sent_pieces(answer), [tail]), writer.media_type, facts)
            return await parts.decoder.in_thread(partial(response_of, encoded, accepted, parts.spool_room))


@asynccontextmanager
async def plain_body(call: InFlight, body: Spool, encoding: str) -> AsyncIterator[Spool]:
    """Have a body that was collected without its compression, and charge it.

    Raises:
        RateLimitError: The caller can't have it read now.
        MurhoError: See `decompressed_pieces`.
    """
    parts = call.parts
    with Spool(parts.spool_room) as plain:
        if is_plain(encoding):
            plain = body
        else:
            pieces = decompressed_pieces(body.view(), encoding, parts.settings.max_body_bytes)
            await parts.decoder.in_thread(partial(_write_all, plain, pieces))
        call.charge(plain.size / BYTES_PER_ROW_DRAW)
        yield plain


@asynccontextmanager
async def reading_ahead(
    call: InFlight, asked: AskedInBlocks, body: Spool | None = None
) -> AsyncIterator[Callable[[], Awaitable[Inputs | None]]]:
    """Have what awaits the next block, None after the last; the block behind it is read in a thread meanwhile.

    Args:
        call: The request, which ends where its client has gone.
        asked: What it asks for.
        body: Where the blocks come from; None: they are in memory.

    Raises:
        DeadlineError: There was no answer in time; it says for how many rows there was one.
        ClientGoneError: The client has closed the connection.
        MurhoError: What is wrong with a block.
    """

    def read() -> Inputs | None:
        if body is not None:
            body.forget_pages()
        return next(asked.blocks, None)

    def begin() -> asyncio.Task[Inputs | None]:
        return asyncio.ensure_future(call.parts.decoder.in_thread(read))

    reading = begin()
    # The scheduler watches the clients of slow jobs alone, and a block may be a quick one.
    leaving = asyncio.ensure_future(call.until_gone())

    async def following() -> Inputs | None:
        nonlocal reading
        inputs = await reading
        if leaving.done():
            raise ClientGoneError("The client closed the connection before the answer.")
        if inputs is not None:
            reading = begin()
        return inputs

    try:
        yield following
    except DeadlineError:
        raise DeadlineError(
            f"There was no answer in time: {call.rows} of {asked.rows} rows were computed. Send fewer rows, ask for "
            "fewer samples, or allow more time."
        ) from None
    finally:
        leaving.cancel()
        await asyncio.gather(leaving, reading, return_exceptions=True)


def _write_all(spool: Spool, pieces: Iterator[bytes]) -> None:
    for piece in pieces:
        spool.write(piece)


async def _through(call: InFlight, asked: AskedInBlocks, body: Spool, writer: BlockCodec, answer: Spool) -> Answered:
    """Takes all blocks through decoding, computation and encoding; at any time at most one is in each.

    Returns:
        The answer for the last block, with the warnings of all.
    """
    in_thread, model, target = call.parts.decoder.in_thread, call.model, call.model.schema.target
    outside: list[UnfamiliarValue] = []
    unrecorded: list[dict[str, str]] = []
    followed = call.followed(asked.options)

    def write(answered: Answered) -> None:
        answer.write(writer.encode_block(answered, first=answer.size == 0))

    writing = asyncio.ensure_future(in_thread(lambda: None))
    try:
        async with reading_ahead(call, asked, body) as following:
            while (inputs := await following()) is not None:
                record = records(asked.request, asked.options, call.parts.settings, inputs.count)
                options = with_grid(followed, target) if record else followed
                first, room = call.rows, MAX_WARNINGS + 1 - len(outside)
                found = await call.compute(inputs, options, most_outside=room)
                outside += [replace(value, row=value.row + first) for value in found.outside]
                names, of_block = (model.name, model.version), Asked(inputs, asked.options, asked.request)
                answered = Answered(names, target.name, of_block, found.prediction, [], 0, adapted=followed.adapted)
                if record:
                    answered = await call.recorded(answered)
                    unrecorded = unrecorded or answered.warnings
                await writing
                writing = asyncio.ensure_future(in_thread(partial(write, answered)))
            await writing
    finally:
        await asyncio.gather(writing, return_exceptions=True)
    call.answered(asked.options, warned=bool(outside))
    return replace(answered, warnings=[*warnings_of(outside, answered.asked), *unrecorded])
