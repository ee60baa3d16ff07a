"""What all formats of tables share: rows are read a block at a time, whatever brought them, within the same limits.

Pointers to cells are those of JSON: of columns, `/inputs/Horsepower/3`, or of a matrix.
Compressed bytes can stand for any amount of memory: how much a table will take is found out before it is read, from
what the body declares, and the readers check that what they find is what was declared.

CSV and Arrow streams are answered a block at a time, too, so that memory is bounded whatever the rows. For any other
answer (`Codec.encode`), the blocks are put together first.
"""

from __future__ import annotations

import asyncio
import struct
from abc import abstractmethod
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain
from sys import getsizeof
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from murho.model.errors import MurhoError, TableError
from murho.model.tables.columns import canonical_column
from murho.model.tables.schema import Feature, FeatureKind, Schema, UnfamiliarValue, is_missing
from murho.service.errors import DeadlineError, TooLargeError, wrong
from murho.service.predict.answers import (
    MAX_WARNINGS,
    Answered,
    Asked,
    Codec,
    Encoded,
    Terms,
    fact_headers,
    response_of,
    warnings_of,
)
from murho.service.predict.in_flight import BYTES_PER_ROW_DRAW, InFlight
from murho.service.predict.memory import (
    Spool,
    SpooledResponse,
    accepted_coding,
    decompressed_pieces,
    is_plain,
    sent_pieces,
)
from murho.service.predict.options import PredictRequest, query_options
from murho.service.predict.rows import (
    ABSENT,
    Form,
    Inputs,
    Problems,
    check_rows,
    explain_cell,
    explain_unknown,
    pointer,
    shorten,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray
    from starlette.responses import Response

    from murho.model.arrays import Bools, Doubles
    from murho.model.predictive.prediction import PredictOptions
    from murho.service.settings import Settings

BLOCK_BYTES = 2**20
BLOCK_ROWS = 2**13
HELD = 2
"""What is unpacked at a time may take this many times the memory of the largest body."""
CELLS = 4
"""And this many times the columns of a table that is read as a whole."""
WORK = 16
"""And this many times all that is unpacked, one part after the other."""
SPARE_COLUMNS = 1000


class AskedInBlocks(NamedTuple):
    """What a request asks for whose rows are read a block at a time.

    Attributes:
        rows: Number of all rows, at least one.
        blocks: The rows in order; each step reads one block, or raises what is wrong with it.
        options: The options, with the defaults filled in.
        request: The options as they were sent.
    """

    rows: int
    blocks: Iterator[Inputs]
    options: PredictOptions
    request: PredictRequest


class TableCodec(Codec):
    """The codec of one format of tables; options come as query parameters. See `Codec`."""

    unpacks = True
    whole: str
    """What a body should be, for messages."""

    @abstractmethod
    def rows(self, body: memoryview, terms: Terms) -> tuple[int, Iterable[Inputs]]:
        """Returns the number of rows, and the rows in blocks, in order, each when it is asked for.

        What the library raises of a body that is broken is raised as it is.

        Raises:
            BadInputError, TableError: The body can't be used.
            TooLargeError: It is above a limit.
        """

    @abstractmethod
    def body(self, answered: Answered) -> Iterable[bytes]:
        """Returns the body of an answer, in pieces."""

    def encode(self, answered: Answered) -> Encoded:
        """Returns the answer; see `Codec.encode`."""
        return Encoded(self.body(answered), self.media_type, fact_headers(answered))

    def read(self, body: memoryview, terms: Terms) -> AskedInBlocks:
        """Returns the rows and the options of a request.

        Args:
            body: The whole body, not compressed. It is read as the blocks are.
            terms: How it is read.

        Raises:
            BadInputError: An option or the names of the columns can't be used.
            TooLargeError: The request is above a limit.
        """
        options, request = query_options(terms.query, terms.settings, terms.schema.target, terms.kind)
        with self._faults():
            rows, blocks = self.rows(body, terms)
        check_rows(rows, terms.settings.max_rows)
        if not rows:
            raise wrong("/inputs", "The table has no rows; at least one row is needed.")
        return AskedInBlocks(rows, self._checked(blocks, rows), options, request)

    def decode(self, body: bytes, terms: Terms) -> Asked:
        """Returns the rows as a whole, and the options of a request; see `Codec.decode`."""
        asked, schema, settings = self.read(memoryview(body), terms), terms.schema, terms.settings
        # Bits, and columns without values, take more than the body.
        check_size(8 * asked.rows * len(schema.features), CELLS, settings)
        columns = {
            feature.name: np.empty(asked.rows, object if feature.kind is FeatureKind.CATEGORICAL else np.float64)
            for feature in schema.features
        }
        row = texts = 0
        for block in asked.blocks:
            for name, column in block.columns.items():
                columns[name][row : row + block.count] = column
                if column.dtype == object:
                    texts += sum(map(getsizeof, set(column)))
            check_size(texts, HELD, settings)
            row += block.count
        return Asked(replace(block, columns=columns, count=row), asked.options, asked.request)

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """Raises what is wrong with a body as bad input."""
        try:
            yield
        except TableError as error:
            raise wrong("/inputs", _sentence(error)) from None
        except (MurhoError, MemoryError):
            raise
        except (pa.ArrowException, OSError, ValueError, struct.error) as error:  # as libraries say it of a broken body
            message = f"The body is not {self.whole}: {shorten(str(error), 1000)}."
            raise wrong("/inputs", message) from None

    def _checked(self, blocks: Iterable[Inputs], rows: int) -> Iterator[Inputs]:
        """Yields blocks, which should have so many rows together."""
        found = 0
        with self._faults():
            for block in blocks:
                found += block.count
                if found > rows:
                    break
                yield block
            if found != rows:
                raise TableError(f"the body is not {self.whole}: it does not have the {rows} rows that it announces")


class BlockCodec(TableCodec):
    """The codec of a format whose answers are written a block of rows at a time, too."""

    @abstractmethod
    def encode_block(self, answered: Answered, *, first: bool) -> bytes:
        """Returns the answer for one block of rows, `[B]`; `first`: for the first block."""

    def ends(self, answered: Answered) -> tuple[bytes, bytes]:  # noqa: ARG002 - see below
        """Returns what comes before the first block and after the last.

        Args:
            answered: The answer for some block, with the warnings of all.
        """
        return b"", b""

    def body(self, answered: Answered) -> Iterable[bytes]:
        """Returns the body of an answer; see `TableCodec.body`."""
        head, tail = self.ends(answered)
        return [head, self.encode_block(answered, first=True), tail]


def block_rows(schema: Schema) -> int:
    """Returns the rows of a block: about `BLOCK_BYTES` of features, and `BLOCK_ROWS` at most."""
    return min(BLOCK_ROWS, max(16, BLOCK_BYTES // (8 * len(schema.features))))


def most_columns(schema: Schema) -> int:
    """Returns the most columns that a table for a model may have: its own, and some more, which an error names."""
    return len(schema.features) + len(schema.left_out) + SPARE_COLUMNS


def check_size(taken: int, times: int, settings: Settings) -> None:
    """Checks the bytes that a table takes: `HELD` for what is in memory at a time, `WORK` for all of it.

    Raises:
        TooLargeError: They are more than so many times the largest body.
    """
    most = times * settings.max_body_bytes
    if taken > most:
        raise TooLargeError(
            f"The table takes {taken} bytes, more than this service reads at once ({most}). Send parts."
        )


def check_names(names: Sequence[str], schema: Schema) -> None:
    """Checks the columns of a table before their cells are read.

    The target and columns that training left out may be there; they are not read.

    Raises:
        BadInputError: A feature has no column, or a column is unknown or there twice.
        TooLargeError: There are more than `most_columns`.
    """
    if len(names) > most_columns(schema):
        raise TooLargeError(
            f"The table has {len(names)} columns; at most {most_columns(schema)} are read for this model."
        )
    problems = Problems()
    features = {feature.name: feature for feature in schema.features}
    known = features.keys() | {schema.target.name, *schema.left_out}
    seen: set[str] = set()
    for position, name in enumerate(names):
        if name in seen:
            message = "There is more than one column of this name. Names must differ."
            problems.add(0, position, pointer("inputs", name), message)
        elif name not in known:
            problems.add(0, position, pointer("inputs", name), explain_unknown(name, schema, problems))
        seen.add(name)
    for position, (name, feature) in enumerate(features.items(), start=len(names)):
        if name not in seen:
            problems.add(0, position, pointer("inputs", name), explain_cell(feature, ABSENT))
    problems.raise_any()


def inputs_of_tables(tables: Iterable[pa.Table], schema: Schema) -> Iterator[Inputs]:
    """Yields the rows of tables, whose names `check_names` has accepted, as canonical columns.

    Raises:
        BadInputError: A cell can't be used: the first of each column is named.
    """
    first = 0
    for table in tables:
        inputs = _inputs_of_table(table, schema, first)
        del table  # before the next one is unpacked
        first += inputs.count
        yield inputs


def _inputs_of_table(table: pa.Table, schema: Schema, first: int) -> Inputs:
    problems, columns = Problems(), dict[str, "NDArray[Any]"]()
    inputs = Inputs(Form.COLUMNS, columns, table.num_rows)
    for position, feature in enumerate(schema.features):
        where = partial(pointer, "inputs", feature.name)
        try:
            column = canonical_column(
                table.column(feature.name), feature.kind, feature.name, feature.reading, feature.words
            )
        except TableError as error:
            row = first + (error.row or 1) - 1
            place = where() if error.row is None else where(row)
            problems.add(row, position, place, _sentence(error.moved(first)))
            continue
        columns[feature.name] = column
        if not feature.accepts_missing and (absent := (is_missing(column).nonzero()[0] + first).tolist()):
            problems.add_rows(absent, position, where, partial(_explain_missing, feature))
    problems.raise_any()
    return inputs


def number_column(
    feature: Feature, values: NDArray[Any], position: int, where: Callable[[int], str], problems: Problems
) -> Doubles:
    """Returns numbers `[B]` of any type as the canonical column of a number or a boolean; NaN is a missing cell.

    Args:
        feature: The feature.
        values: The numbers.
        position: Of the feature among all.
        where: The pointer to the cell of a row.
        problems: Gets the rows whose number can't be used.
    """
    with np.errstate(invalid="ignore"):  # of NaNs that signal
        column = feature.without_codes(np.array(values, np.float64))
    refused = np.isinf(column)
    if not feature.accepts_missing:
        refused |= np.isnan(column)
    if feature.kind is FeatureKind.BOOLEAN:
        refused |= ~(np.isnan(column) | (column == 0.0) | (column == 1.0))
    problems.add_rows(refused.nonzero()[0].tolist(), position, where, partial(_explain_number, feature, column))
    return column


def number_columns(schema: Schema, matrix: NDArray[Any], where: Callable[[int, int], str]) -> dict[str, Doubles]:
    """Returns a matrix of numbers `[B, D]` of any type, the features in schema order, as canonical columns.

    A matrix of finite numbers is checked as a whole; only another one, or one with booleans, a column at a time.

    Args:
        schema: The features, all of them numbers or booleans.
        matrix: The numbers; NaN is a missing cell.
        where: The pointer to the cell of a feature's position and a row.

    Raises:
        BadInputError: A number can't be used.
    """
    with np.errstate(invalid="ignore"):  # of NaNs that signal
        rows = np.array(matrix.T, np.float64, order="C")
    columns = {feature.name: row for feature, row in zip(schema.features, rows, strict=True)}
    finite, problems = bool(np.isfinite(rows).all()), Problems()
    for position, feature in enumerate(schema.features):
        if not finite or feature.kind is FeatureKind.BOOLEAN or feature.missing_words:
            at = partial(where, position)
            columns[feature.name] = number_column(feature, columns[feature.name], position, at, problems)
    problems.raise_any()
    return columns


def _explain_number(feature: Feature, column: Doubles, row: int) -> str:
    if np.isnan(column[row]):
        return explain_cell(feature, None)
    expected = "0 or 1" if feature.kind is FeatureKind.BOOLEAN else "a finite number"
    return f"Expected {expected}, not {column[row]:g}."


def _explain_missing(feature: Feature, row: int) -> str:  # noqa: ARG001 - the same in every row
    return explain_cell(feature, None)


def _sentence(error: TableError) -> str:
    """Returns the message of an error of a table as a sentence of its own; a cell in it can be long."""
    return f"{str(error)[:1].upper()}{shorten(str(error)[1:], 1000)}."


async def answer_in_blocks(call: InFlight, reader: TableCodec, writer: BlockCodec, terms: Terms) -> Response:
    """Answers a request for predictions block by block.

    Each block is decoded, is a job of the scheduler, and is encoded, while the next one is decoded already. The answer
    is collected, in a file if it is large, and sent when its last block is there. So the status says the truth: what is
    wrong in any row, and a deadline that passes at any time, are answered as such, and 200 stands for a whole answer.

    Raises:
        MurhoError: There is no answer; `errors.problem_details` has the HTTP status.
    """
    parts = call.parts
    async with plain_body(call) as body:
        asked = await call.in_thread(partial(reader.read, body.view(), terms))
        options, record = call.computed(asked, asked.rows, writer)
        call.admit(asked.rows, options, asked.request.timeout)
        with ExitStack() as stack:
            answer = stack.enter_context(Spool(parts.spool_room))
            answered = await _through(call, asked, options, body, writer, answer, record=record)
            (head, tail), facts = writer.ends(answered), fact_headers(answered)
            accepted = accepted_coding(call.headers.get("accept-encoding", ""))
            if accepted is None:
                stack.pop_all()  # the response closes it
                return SpooledResponse(answer, facts, writer.media_type, head, tail)
            encoded = Encoded(chain([head], sent_pieces(answer), [tail]), writer.media_type, facts)
            room = parts.spool_room if answer.in_file else None
            return await call.in_thread(partial(response_of, encoded, accepted, room))


@asynccontextmanager
async def plain_body(call: InFlight) -> AsyncIterator[Spool]:
    """Have the body of a request collected, without its compression, and charged.

    Usual clients read nothing of an answer before they have sent all of their request.

    Raises:
        RateLimitError: The caller can't have it read now.
        MurhoError: See `InFlight.body` and `decompressed_pieces`.
    """
    parts, encoding = call.parts, call.headers.get("content-encoding", "")
    with Spool(parts.spool_room) as body, Spool(parts.spool_room) as unpacked:
        await call.body(body)
        if not is_plain(encoding):
            pieces = decompressed_pieces(body.view(), encoding, parts.settings.max_body_bytes)
            await call.in_thread(partial(_write_all, unpacked, pieces))
            body = unpacked
        call.charge(body.size / BYTES_PER_ROW_DRAW, reading=True)
        yield body


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
        return asyncio.ensure_future(call.in_thread(read))

    reading = begin()

    async def following() -> Inputs | None:
        nonlocal reading
        inputs = await reading
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
        await asyncio.gather(reading, return_exceptions=True)


def _write_all(spool: Spool, pieces: Iterator[bytes]) -> None:
    for piece in pieces:
        spool.write(piece)


async def _through(
    call: InFlight,
    asked: AskedInBlocks,
    options: PredictOptions,
    body: Spool,
    writer: BlockCodec,
    answer: Spool,
    *,
    record: bool,
) -> Answered:
    """Takes all blocks through decoding, computation and encoding; at any time at most one is in each.

    Args:
        call: The request.
        asked: What it asks for.
        options: What is computed, which may be more than is asked for.
        body: Where the rows come from.
        writer: Encodes the answer.
        answer: Gets it.
        record: Whether it is recorded.

    Returns:
        The answer for the last block, with `extrapolation` and the warnings of all.
    """
    in_thread, request = call.in_thread, asked.request
    outside: list[UnfamiliarValue] = []
    extrapolation: list[Bools] = []
    unrecorded: list[dict[str, str]] = []

    def write(answered: Answered) -> None:
        answer.write(writer.encode_block(answered, first=answer.size == 0))

    writing: asyncio.Future[None] | None = None
    try:
        async with reading_ahead(call, asked, body) as following:
            while (inputs := await following()) is not None:
                first, room = call.rows, MAX_WARNINGS + 1 - len(outside)
                found = await call.compute(inputs, options, most_outside=room)
                outside += [replace(value, row=value.row + first) for value in found.outside]
                if asked.request.ids is not None:
                    request = asked.request.model_copy(update={"ids": asked.request.ids[first : call.rows]})
                of_block, prediction, ids = Asked(inputs, asked.options, request), found.prediction, None
                extrapolation.append(prediction.extrapolation)
                if record:
                    ids, unkept = await call.recorded(of_block, prediction, adapted=options.adapted)
                    unrecorded = unrecorded or unkept
                answered = Answered(call.model, of_block, prediction, [], 0, ids, options.adapted)
                if writing is not None:
                    await writing
                writing = asyncio.ensure_future(in_thread(partial(write, answered)))
            if writing is not None:
                await writing
    finally:
        if writing is not None:
            await asyncio.gather(writing, return_exceptions=True)
    call.answered(asked.options)
    of_all = replace(answered.prediction, extrapolation=np.concatenate(extrapolation))
    return replace(answered, prediction=of_all, warnings=[*warnings_of(outside, answered.asked), *unrecorded])
