"""The seam of formats whose tables are read and written a block of rows at a time, in bounded memory."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from murho.model.errors import Problem, TableError
from murho.service.errors import BadInputError
from murho.service.tables.table_inputs import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from murho.model.predictive.prediction import PredictOptions
    from murho.model.tables.schema import Schema
    from murho.service.predict.codec import Answered
    from murho.service.predict.inputs import Inputs
    from murho.service.settings import Settings

__all__ = ["BLOCK_BYTES", "AskedInBlocks", "BlockCodec", "block_rows", "errors_of_bodies"]

BLOCK_BYTES = 2**20
BLOCK_ROWS = 2**13


@dataclass(frozen=True, slots=True)
class AskedInBlocks:
    """What a request asks for whose rows are read a block at a time.

    Attributes:
        rows: Number of all rows.
        blocks: The rows in order; each step reads one block, or raises what is wrong with it.
        options: The options, with the defaults filled in.
        timeout: Seconds in which the answer is wanted; None: as the service has it.
    """

    rows: int
    blocks: Iterator[Inputs]
    options: PredictOptions
    timeout: float | None


class BlockCodec(Protocol):
    """Reads and writes tables of one media type a block at a time."""

    def read(
        self, body: memoryview, query: Mapping[str, str], schema: Schema, settings: Settings
    ) -> AskedInBlocks | None:
        """Returns the rows and the options of a request; None if this body can only be read as a whole.

        Args:
            body: The whole body, not compressed. It is read as the blocks are.
            query: The query parameters.
            schema: The features of the model.
            settings: The limits.

        Raises:
            BadInputError: An option or the names of the columns can't be used.
            TooLargeError: The request is above a limit.
        """
        ...

    def encode(self, answered: Answered, *, first: bool) -> bytes:
        """Returns the answer for one block of rows, `[B]`; `first`: for the first block."""
        ...

    def ends(self, answered: Answered) -> tuple[bytes, bytes]:
        """Returns what comes before the first block and after the last.

        Args:
            answered: The answer for some block, with the warnings of all.
        """
        ...


def block_rows(schema: Schema) -> int:
    """Returns the rows of a block: about `BLOCK_BYTES` of features, and `BLOCK_ROWS` at most."""
    return min(BLOCK_ROWS, max(16, BLOCK_BYTES // (8 * len(schema.features))))


@contextmanager
def errors_of_bodies() -> Iterator[None]:
    """Raises what is wrong with a table as bad input.

    Raises:
        BadInputError: In place of a `TableError`.
    """
    try:
        yield
    except TableError as error:
        raise BadInputError([Problem("/inputs", sentence(error))]) from None
