"""Where the parts of a large JSON document are, found without parsing it.

A parser makes an object of every value, and holds Python's global lock until the last one is made: 64 MB of ``[]`` are
20 million objects, gigabytes and seconds in which nothing else is answered. Here NumPy looks at a block of bytes at a
time: which are inside of strings, how deep the brackets are nested, and where the commas of one level are. Such blocks
release the lock and take a fixed amount of memory. The pieces between the commas are then parsed one by one.

Nothing here decides whether the document is valid: that is for the parser of the pieces. In a valid document all
positions are right. In others they are somewhere, and some piece, or what is left without the pieces, isn't valid.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["MAX_DEPTH", "Outline", "Split", "StructureError", "outline", "skip_blanks", "split"]

BLOCK_BYTES = 2**18
MAX_DEPTH = 32
"""A row is the third level of a request; its cells are no lists."""
QUOTE, COMMA = ord('"'), ord(",")
# "[" and "{" differ in one bit, and so do "]" and "}"; no other bytes become these with that bit set.
EITHER, OPENING, CLOSING = 0x20, b"{"[0], b"}"[0]
BLANKS = b" \t\n\r"


class StructureError(Exception):
    """The document's structure is broken, or beyond a limit; the message says how, for people."""


@dataclass(frozen=True, slots=True)
class Outline:
    """The parts of one object or list: its members or elements, by their positions in the document.

    Attributes:
        commas: Positions of the commas between its parts.
        containers: Positions of the brackets of those of its parts that are objects or lists, `(open, close)`.
    """

    commas: list[int]
    containers: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Split:
    """A list cut into pieces.

    Attributes:
        count: Number of elements.
        pieces: Start and end of each piece, without the commas between them; together they are the list.
    """

    count: int
    pieces: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class _Block:
    """What one block of bytes is.

    Attributes:
        start: Position of its first byte in the document.
        text: The bytes.
        outside: Whether each is outside of strings.
        depth: How deep each is nested, opening brackets included, closing ones not; one number if all are the same.
        opens, closes: Whether each is an opening or closing bracket; None if there are no brackets.
    """

    start: int
    text: NDArray[np.uint8]
    outside: NDArray[np.bool_]
    depth: NDArray[np.int32] | int
    opens: NDArray[np.bool_] | None
    closes: NDArray[np.bool_] | None

    def commas(self, level: int) -> NDArray[np.intp]:
        """Returns the positions of the commas at a depth."""
        found = (self.text == COMMA) & self.outside
        if isinstance(self.depth, int):
            if self.depth != level:
                return np.empty(0, np.intp)
        else:
            found &= self.depth == level
        positions: NDArray[np.intp] = found.nonzero()[0] + self.start
        return positions


def skip_blanks(body: bytes, start: int, stop: int) -> int:
    """Returns the position of the first byte that is no blank, or `stop`."""
    while start < stop:
        block = body[start : min(stop, start + BLOCK_BYTES)]
        rest = len(block.lstrip(BLANKS))
        if rest:
            return start + len(block) - rest
        start += len(block)
    return stop


def outline(body: bytes, start: int, stop: int, *, most: int) -> Outline:
    """Returns the parts of an object or list.

    Args:
        body: The document.
        start: The position after its opening bracket.
        stop: The position of its closing bracket, or a later one: what follows the bracket is passed over.
        most: The most parts.

    Raises:
        StructureError: There are more parts, brackets are nested too deep, or something isn't closed.
    """
    commas: list[int] = []
    opened: list[int] = []
    closed: list[int] = []
    for block in _blocks(body, start, stop):
        commas += block.commas(0).tolist()
        if block.opens is not None and block.closes is not None:
            opened += ((block.opens & (block.depth == 1)).nonzero()[0] + block.start).tolist()
            closed += ((block.closes & (block.depth == 0)).nonzero()[0] + block.start).tolist()
        if len(commas) > most or len(opened) > most:
            raise StructureError(f"it has more than {most} parts, where a few are expected")
    if len(opened) != len(closed):
        raise StructureError("a bracket or a quotation mark isn't closed")
    return Outline(commas, list(zip(opened, closed, strict=True)))


def split(body: bytes, start: int, stop: int, size: int) -> Split:
    """Returns the pieces of a list: as many elements each as `size` bytes hold, and at least one.

    Args:
        body: The document.
        start: The position after its opening bracket.
        stop: The position of its closing bracket.
        size: Bytes of a piece. A piece is longer than this only by what its last element is longer.

    Raises:
        StructureError: Brackets are nested too deep, or something isn't closed.
    """
    if skip_blanks(body, start, stop) == stop:
        return Split(0, [])
    cuts: list[int] = [start - 1]
    count = 1
    for block in _blocks(body, start, stop):
        commas = block.commas(0)
        count += len(commas)
        if len(commas):
            # Of the commas within each `size` bytes, the last one is a cut.
            stretches = (commas - start) // size
            last = np.append(stretches[1:] != stretches[:-1], True)
            ends = commas[last].tolist()
            if len(cuts) > 1 and (cuts[-1] - start) // size == stretches[0]:
                cuts.pop()
            cuts += ends
    cuts.append(stop)
    return Split(count, [(begin + 1, end) for begin, end in itertools.pairwise(cuts)])


def _blocks(body: bytes, start: int, stop: int) -> Iterator[_Block]:
    """Yields what the blocks of an object or list are, up to its closing bracket."""
    whole = np.frombuffer(body, np.uint8)
    inside, escaped, depth = False, False, 0
    for begin in range(start, stop, BLOCK_BYTES):
        end = min(stop, begin + BLOCK_BYTES)
        text = whole[begin:end]
        if escaped or body.find(b"\\", begin, end) >= 0:
            # From the left, two backslashes are one character, and so are one that is left and a quotation mark.
            plain = (b" " if escaped else b"") + body[begin + escaped : end].replace(b"\\\\", b"  ")
            escaped = plain.endswith(b"\\")
            text = np.frombuffer(plain.replace(b'\\"', b"  "), np.uint8)
        quotes = text == QUOTE
        within = np.bitwise_xor.accumulate(quotes)
        outside = within if inside else ~within
        inside = bool(within[-1]) ^ inside
        brackets = text | EITHER
        opens = (brackets == OPENING) & outside
        closes = (brackets == CLOSING) & outside
        if not opens.any() and not closes.any():
            yield _Block(begin, text, outside, depth, None, None)
            continue
        depths = np.cumsum(opens.view(np.int8) - closes.view(np.int8), dtype=np.int32)
        depths += depth
        after = int(depths[-1])
        ended = (depths < 0).nonzero()[0]
        if len(ended):  # the closing bracket of this object or list, and what follows it
            size = int(ended[0])
            text, outside, depths = text[:size], outside[:size], depths[:size]
            opens, closes = opens[:size], closes[:size]
        if len(depths) and int(depths.max()) > MAX_DEPTH:
            raise StructureError(f"it is nested more than {MAX_DEPTH} deep, where 3 levels are expected")
        yield _Block(begin, text, outside, depths, opens, closes)
        if len(ended):
            return
        depth = after
    if inside or depth:
        raise StructureError("a bracket or a quotation mark isn't closed")
