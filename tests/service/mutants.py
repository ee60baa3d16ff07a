"""Mutants: good bodies of every format with faults in them, each made from its number alone.

A service reads a mutant or says what is wrong with it (`MurhoError`); any other exception is a finding. `make test`
takes some hundreds, ``tests/e2e/test_mutants.py`` the many. To see one again, or to look for more:

    python -m tests.service.mutants arrow --first 41234 --count 1
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import random
import resource
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from murho.model.errors import MurhoError
from murho.model.tables.schema import Schema
from murho.service.predict.answers import Terms
from murho.service.predict.budgets import decompress
from murho.service.predict.routes import reader_of
from murho.service.protocols.infer_requests import InferCodec
from murho.service.protocols.invocations import ScoringCodec
from murho.service.settings import Settings
from tests.service.bodies import ARROW, CSV, JSON, NPY, PARQUET, arrow, csv, parquet
from tests.service.protocols.support import LENGTH, NUMBERS, row_tensors, text_bytes
from tests.service.support import NAMES, ROW, SCHEMA, FakeModel

LIMITS = Settings(max_body_bytes=2**20, max_rows=1000, samples=4)
MOST_BYTES = 2**16
"""Of a part of a mutant: repetitions make it no longer."""
ADDRESS_BYTES = 4 * 2**30
"""What a process of its own may take while it searches, beyond what it has at its start."""

EXTREMES = (0, -1, 1, 2, 127, 128, 255, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, -(2**63), 2**64)
VALUES: tuple[Any, ...] = (None, True, "", "a", "é" * 70_000, 0.5, -1e300, [], [[]], {}, {"a": None}, "NaN", "\ud800")
TOKENS = (
    *rb'"|\|,|;|{|}|[|]|[]|{}|:|null|true|NaN|Infinity|-0|1e999|1e-999|\u0000|\ud800|""|"a":|\"'.split(b"|"),
    *b"(,)|(1,|'|'|O'|<f8|>i2|L|0x|1_0|#|=|\xff\xff\xff\xff\x0f|PAR1|ARROW1|\x93NUMPY|\xef\xbb\xbf".split(b"|"),
    *(b"|", b"\n", b"\r", b"\r\n", b"\t", b" ", b"\0", b"\xff", b"\xff" * 4, b"\0" * 8),
    *(str(number).encode() for number in EXTREMES),
)


class Mutant(NamedTuple):
    """A body with faults.

    Attributes:
        body: As it is sent.
        gzipped: Whether it is said to be compressed.
        length: Bytes of JSON in front of binary tensors, as a header says; None without the header.
    """

    body: bytes
    gzipped: bool
    length: str | None


@dataclass(frozen=True)
class Form:
    """One format on one path.

    Attributes:
        path: Where it is sent.
        media_type: Its `Content-Type`.
        good: Makes its good bodies: one part, or JSON and what stands behind it.
        readers: What reads it, given the plain body and the mutant.
    """

    path: str
    media_type: str
    good: Callable[[], Sequence[tuple[bytes, ...]]]
    readers: Sequence[Callable[[bytes, Mutant], object]]

    def headers(self, mutant: Mutant) -> dict[str, str]:
        """Return the headers that a mutant is sent with."""
        said = {"content-type": self.media_type}
        if mutant.gzipped:
            said["content-encoding"] = "gzip"
        return said if mutant.length is None else {**said, LENGTH: mutant.length}


@dataclass
class Findings:
    """What a search has found.

    Attributes:
        read: How often a mutant was read.
        refused: How often one was refused.
        without_memory: Numbers of mutants that there was no memory for.
        failed: Numbers of mutants that nothing was prepared for, and what was raised.
        slowest: The longest time that one has taken, seconds, and its number.
    """

    read: int = 0
    refused: int = 0
    without_memory: list[int] = field(default_factory=list)
    failed: list[tuple[int, str]] = field(default_factory=list)
    slowest: tuple[float, int] = (0.0, -1)


def mutants(form: str, count: int, seed: int = 0, first: int = 0) -> Iterator[Mutant]:
    """Yield mutants of a format; each depends on the seed and its number alone."""
    good = FORMS[form].good()
    for number in range(first, first + count):
        chance = random.Random(f"{form} {seed} {number}")  # noqa: S311 - repeatable
        parts = list(chance.choice(good))
        for _ in range(chance.choice((1, 1, 1, 1, 2, 4))):
            index, others = chance.randrange(len(parts)), chance.choice(good)
            change = chance.choice(CHANGES)
            parts[index] = change(parts[index], chance, others[min(index, len(others) - 1)])[:MOST_BYTES]
        length = None
        if len(parts) > 1:
            length = str(len(parts[0]) if chance.random() < 0.9 else chance.choice(EXTREMES))
        body, gzipped = b"".join(parts), chance.random() < 0.1
        if gzipped:
            body = gzip.compress(body, 1, mtime=0)
            if chance.random() < 0.5:
                body = chance.choice(CHANGES)(body, chance, body)
        yield Mutant(body, gzipped, length)


def search(form: str, count: int, seed: int = 0, first: int = 0, *, last_words: int | None = None) -> Findings:
    """Have mutants read in this process.

    Args:
        form: The format.
        count: How many.
        seed: Of the mutants.
        first: Number of the first one.
        last_words: A file that has the number of the mutant being read, in case the process doesn't survive it.
    """
    found = Findings()
    for number, mutant in enumerate(mutants(form, count, seed, first), start=first):
        if last_words is not None:
            os.pwrite(last_words, b"%20d" % number, 0)
        for reader in FORMS[form].readers:
            begin = time.perf_counter()
            try:
                reader(decompress(mutant.body, "gzip" if mutant.gzipped else "", LIMITS.max_body_bytes), mutant)
                found.read += 1
            except MurhoError:
                found.refused += 1
            except MemoryError:
                found.without_memory.append(number)
            except Exception:
                found.failed.append((number, traceback.format_exc(limit=-3)))
            found.slowest = max(found.slowest, (time.perf_counter() - begin, number))
    return found


def _at(body: bytes, chance: random.Random) -> int:
    """Return a position: near the beginning or the end, where formats have their lengths, as often as anywhere."""
    size = len(body)
    near = min(size, chance.choice((64, 512)))
    return chance.choice((chance.randint(0, size), chance.randint(0, near), size - chance.randint(0, near)))


def _slice(body: bytes, chance: random.Random) -> tuple[int, int]:
    start = _at(body, chance)
    return start, min(len(body), start + chance.choice((1, 2, 4, 8, chance.randint(1, 64), chance.randint(1, 1024))))


def _flip(body: bytes, chance: random.Random, _: bytes) -> bytes:
    changed = bytearray(body)
    for _flips in range(chance.choice((1, 1, 1, 8)) if body else 0):
        changed[min(_at(body, chance), len(body) - 1)] ^= chance.choice((1 << chance.randrange(8), 255, 128))
    return bytes(changed)


def _cut(body: bytes, chance: random.Random, _: bytes) -> bytes:
    at = _at(body, chance)
    return body[:at] if chance.random() < 0.8 else body[at:]


def _replace(body: bytes, chance: random.Random, other: bytes) -> bytes:
    """Remove a slice, or put something in its place or before it: a token, itself again, a slice of another body."""
    start, stop = _slice(body, chance)
    first, last = _slice(other, chance)
    again = body[start:stop] * chance.choice((2, 2, 3, 11, 1001))
    put = chance.choice(
        (b"", chance.choice(TOKENS), chance.choice(TOKENS), chance.randbytes(8), again, other[first:last])
    )
    return body[:start] + put + body[chance.choice((start, stop, stop)) :]


def _integer(body: bytes, chance: random.Random, _: bytes) -> bytes:
    """Replace an integer field, aligned as most are, by an extreme or a neighbour of what it was."""
    size = chance.choice((1, 2, 4, 4, 8, 8))
    at = _at(body, chance) // size * size
    if at + size > len(body):
        return body
    old = int.from_bytes(body[at : at + size], "little")
    new: int = chance.choice((*EXTREMES, old + 1, old - 1, old * 2, old * 256, -old)) % 256**size
    return body[:at] + new.to_bytes(size, "little") + body[at + size :]


def _number(body: bytes, chance: random.Random, _: bytes) -> bytes:
    """Replace a number that is text by another one."""
    at = _at(body, chance)
    start = next((index for index in range(at, len(body)) if body[index : index + 1].isdigit()), len(body))
    stop = next((index for index in range(start, len(body)) if not body[index : index + 1].isdigit()), len(body))
    return body[:start] + str(chance.choice(EXTREMES)).encode() + body[stop:]


def _splice(body: bytes, chance: random.Random, other: bytes) -> bytes:
    """Return the beginning of one body and the end of another."""
    return body[: _at(body, chance)] + other[_at(other, chance) :]


def _node(body: bytes, chance: random.Random, other: bytes) -> bytes:
    """Replace some value in a JSON document by another one, or write it twice."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return _flip(body, chance, other)
    node = document
    while isinstance(node, dict | list) and node:
        key: Any = chance.choice(list(node) if isinstance(node, dict) else range(len(node)))
        if not isinstance(node[key], dict | list) or chance.random() < 0.3:
            value = chance.choice((*EXTREMES, *VALUES, node[key]))
            if isinstance(node, dict):
                node[chance.choice((key, key, "extra"))] = value
            else:
                node[key : key + chance.choice((0, 1, 1))] = [value] * chance.choice((0, 1, 1, 1, 2, 300))
            break
        node = node[key]
    return json.dumps(document).encode()


CHANGES: tuple[Callable[[bytes, random.Random, bytes], bytes], ...] = (
    *(_flip, _flip, _flip, _cut, _replace, _replace, _replace, _replace),
    *(_integer, _integer, _number, _splice, _node, _node),
)

ROWS = [
    ROW,
    {**ROW, "Horsepower": None, "Year": None, "Origin/plant": "Ünknown"},
    {**ROW, "Automatic": False, "Weight": -1.5e3, "Origin/plant": 'a "quoted", one\nof two lines'},
]


def _columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in NAMES}


def _inputs() -> list[Any]:
    matrix = [list(row.values()) for row in ROWS]
    return [ROWS[:1], ROWS, [dict(reversed(row.items())) for row in ROWS * 20], matrix, _columns(ROWS)]


def _json() -> list[tuple[bytes, ...]]:
    options = {"samples": 4, "percentiles": [5, 50.5], "seed": 2**40, "thresholds": [1e3], "include": ["draws"]}
    documents = [{"inputs": inputs, **more} for inputs in _inputs() for more in ({}, options)]
    return [(json.dumps(document, ensure_ascii=index % 2 == 0).encode(),) for index, document in enumerate(documents)]


def _invocations() -> list[tuple[bytes, ...]]:
    split = {"columns": NAMES, "data": [list(row.values()) for row in ROWS], "index": [0, 1, 2]}
    documents = [
        *({"inputs": inputs} for inputs in _inputs()),
        {"instances": ROWS, "params": {"samples": 4, "percentiles": [5, 50.5]}},
        {"dataframe_records": ROWS},
        {"dataframe_split": split, "params": {"samples": 0}},
    ]
    return [(json.dumps(document).encode(),) for document in documents]


def _csv() -> list[tuple[bytes, ...]]:
    text = csv(_tables()[0])
    return [(text,), (text.replace(b",", b";"),), (b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n"),)]


@cache
def _tables() -> list[pa.Table]:
    """Return the rows in several types of Arrow, the second with columns that aren't read."""
    columns = _columns(ROWS)
    plain = pa.table({name: pa.array(cells) for name, cells in columns.items()})
    texts = pa.array(columns["Origin/plant"])
    return [
        plain,
        plain.append_column("Wheels", pa.array([[1], None, [2, 3]])).append_column("Consumption", pa.array([1, 2, 3])),
        plain.set_column(4, "Origin/plant", texts.dictionary_encode()),
        plain.set_column(4, "Origin/plant", texts.cast(pa.large_string())).set_column(
            3, "Year", pa.array([0, None, 4], pa.timestamp("us", "UTC"))
        ),
        plain.set_column(0, "Weight", pa.array([1, 2, 3], pa.int16())).set_column(
            4, "Origin/plant", texts.cast(pa.string_view())
        ),
        pa.concat_tables([plain] * 40).combine_chunks().replace_schema_metadata({"pandas": '{"index_columns": []}'}),
    ]


def _arrow() -> list[tuple[bytes, ...]]:
    return [(arrow(table, kind, 50),) for table in _tables() for kind in (None, "zstd", "lz4")]


def _parquet() -> list[tuple[bytes, ...]]:
    plain = {"compression": "zstd", "data_page_version": "2.0", "use_dictionary": False}
    return [(parquet(table, row_group_size=50, **options),) for table in _tables() for options in ({}, plain)]


def _npy() -> list[tuple[bytes, ...]]:
    bodies: list[tuple[bytes, ...]] = []
    matrix = np.array([[row["Weight"], row["Horsepower"] or np.nan, row["Automatic"]] for row in ROWS])
    for array in (matrix, np.asfortranarray(matrix), matrix.astype("<f4"), np.ones((2, 3), ">i2"), matrix[:1] > 0):
        for version in ((1, 0), (2, 0), (3, 0)):
            sink = io.BytesIO()
            np.lib.format.write_array(sink, array, version)
            bodies.append((sink.getvalue(),))
    return bodies


def _v2() -> list[tuple[bytes, ...]]:
    documents = [
        {"inputs": row_tensors(3), "parameters": {"samples": 4, "percentiles": "5,50"}, "id": "an id"},
        {"inputs": row_tensors(1), "outputs": [{"name": "mean", "parameters": {"binary_data": True}}]},
        {"inputs": [{**item, "shape": [2, 1], "data": item["data"]} for item in row_tensors(2)]},
    ]
    return [(json.dumps(document).encode(),) for document in documents]


def _v2_binary() -> list[tuple[bytes, ...]]:
    bodies: list[tuple[bytes, ...]] = []
    for rows, numbers in ((1, "FP64"), (3, "FP32"), (40, "INT16")):
        kind = {"FP64": "<f8", "FP32": "<f4", "INT16": "<i2"}[numbers]
        texts = text_bytes(*[b"1975-06-01"] * rows), text_bytes(*["Ünknown".encode()] * rows)
        blobs = [np.ones(rows, kind).tobytes(), np.ones(rows, kind).tobytes(), b"\1" * rows, *texts]
        inputs = [
            {"name": name, "shape": [rows], "datatype": datatype, "parameters": {"binary_data_size": len(blob)}}
            for name, datatype, blob in zip(NAMES, (numbers, numbers, "BOOL", "BYTES", "BYTES"), blobs, strict=True)
        ]
        bodies.append((json.dumps({"inputs": inputs, "parameters": {"samples": 4}}).encode(), b"".join(blobs)))
    return bodies


def _decoded(media_type: str, schema: Schema = SCHEMA) -> Callable[[bytes, Mutant], object]:
    """Read a body as a whole."""
    return lambda body, _: reader_of(media_type).decode(body, Terms({}, schema, LIMITS))


def _inferred(body: bytes, mutant: Mutant) -> object:
    return InferCodec(mutant.length).decode(body, Terms({}, CARS.schema, LIMITS))


def _scored(body: bytes, _: Mutant) -> object:
    return ScoringCodec().decode(body, Terms({}, SCHEMA, LIMITS))


INFER = "/v2/models/cars/infer"
CARS = FakeModel()

FORMS: dict[str, Form] = {
    "json": Form("/predict", JSON, _json, (_decoded(JSON),)),
    "csv": Form("/predict?samples=4", CSV, _csv, (_decoded(CSV),)),
    "npy": Form("/models/numbers/predict?samples=4", NPY, _npy, (_decoded(NPY, NUMBERS),)),
    "arrow": Form("/predict?samples=4", ARROW, _arrow, (_decoded(ARROW),)),
    "parquet": Form("/predict?samples=4", PARQUET, _parquet, (_decoded(PARQUET),)),
    "v2": Form(INFER, JSON, _v2, (_inferred,)),
    "v2-binary": Form(INFER, "application/octet-stream", _v2_binary, (_inferred,)),
    "invocations": Form("/invocations", JSON, _invocations, (_scored,)),
}


def main() -> None:
    """Search, in bounded memory, and print what is found as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("form", choices=FORMS)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--last-words", type=Path, help="gets the number of the mutant being read")
    asked = parser.parse_args()
    warnings.simplefilter("error")
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + ADDRESS_BYTES, resource.RLIM_INFINITY))
    last_words = None if asked.last_words is None else os.open(asked.last_words, os.O_WRONLY | os.O_CREAT)
    print(json.dumps(asdict(search(asked.form, asked.count, asked.seed, asked.first, last_words=last_words))))  # noqa: T201


if __name__ == "__main__":
    main()
