"""Tables as bodies: CSV, Arrow streams and Parquet. Options come as query parameters."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet

from murho.model.errors import Problem
from murho.model.tables.csv_reader import parse_csv, read_header
from murho.model.tables.files import without_index
from murho.service.errors import BadInputError
from murho.service.predict.answer_columns import fact_headers
from murho.service.predict.codec import Asked
from murho.service.predict.envelope import predict_options
from murho.service.predict.inputs import check_rows
from murho.service.predict.query_options import parse_query
from murho.service.tables.arrow_blocks import ArrowBlocks, joined
from murho.service.tables.block_codec import BLOCK_BYTES, errors_of_bodies
from murho.service.tables.csv_blocks import CSVBlocks, check_header, check_start
from murho.service.tables.parquet_process import ParquetProcess
from murho.service.tables.table_answers import arrow_table, csv_text
from murho.service.tables.table_inputs import check_names, inputs_of_table
from murho.service.tables.table_sizes import check_columns, most_columns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from murho.model.predictive.prediction import PredictOptions
    from murho.model.tables.schema import Schema
    from murho.service.predict.codec import Answered
    from murho.service.settings import Settings
    from murho.service.tables.block_codec import BlockCodec

__all__ = ["ArrowCodec", "CSVCodec", "ParquetCodec"]


class _TableCodec:
    """What the codecs of tables share; see `Codec`."""

    media_type: str
    aliases: frozenset[str] = frozenset()
    blocks: BlockCodec | None = None
    unpacks = True

    def reads(self, media_type: str) -> bool:
        """Returns whether the media type is this codec's."""
        return media_type == self.media_type or media_type in self.aliases

    def require_place(self, options: PredictOptions) -> None:
        """Accepts all options."""

    def headers(self, answered: Answered) -> Mapping[str, str]:
        """Returns the facts of the answer."""
        return fact_headers(answered)


class CSVCodec(_TableCodec):
    """CSV with a header line, in UTF-8; the answer is CSV too."""

    media_type = "text/csv"
    aliases = frozenset({"application/csv", "text/tab-separated-values"})
    blocks: BlockCodec | None = CSVBlocks()
    unpacks = False

    def decode(self, body: bytes, query: Mapping[str, str], schema: Schema, settings: Settings) -> Asked:
        """Returns the rows and the options of a request; see `Codec.decode`. In blocks, large ones take less memory."""
        if len(body) > BLOCK_BYTES and (blocks := CSVBlocks().read(memoryview(body), query, schema, settings)):
            return joined(blocks, schema, settings)
        asked = parse_query(query)
        options = predict_options(asked, settings.samples, settings.max_samples, schema.target)
        with errors_of_bodies():
            table = self._table(body, schema, settings)
        return Asked(inputs_of_table(table, schema, settings.max_rows), options, asked.timeout)

    def require_place(self, options: PredictOptions) -> None:
        """Refuses draws, which are a list in each row."""
        if options.draws:
            message = "CSV has no place for draws. Ask for the answer in JSON, Arrow or Parquet (Accept)."
            raise BadInputError([Problem("/include", message)])

    def encode(self, answered: Answered) -> list[bytes]:
        """Returns one line a row; a list of classes is JSON."""
        return [csv_text(answered)]

    def _table(self, body: bytes, schema: Schema, settings: Settings) -> pa.Table:
        check_start(body)
        check_rows(max(0, _count(body, b"\n") - 1 - _count(body, b'"')), settings.max_rows)
        header = read_header(body, "the body")
        check_header(header.names, schema)
        table = without_index(parse_csv(body, "the body", header))
        check_names(table.column_names, schema)
        return table


def _count(body: bytes, byte: bytes) -> int:
    """Returns how often a byte is there; in pieces, as counting holds the interpreter's lock."""
    return sum(body.count(byte, start, start + BLOCK_BYTES) for start in range(0, len(body), BLOCK_BYTES))


class ArrowCodec(_TableCodec):
    """A stream of Arrow record batches; so is the answer."""

    media_type = "application/vnd.apache.arrow.stream"
    blocks: BlockCodec | None = ArrowBlocks()

    def decode(self, body: bytes, query: Mapping[str, str], schema: Schema, settings: Settings) -> Asked:
        """Returns the rows and the options of a request; see `Codec.decode`."""
        return joined(ArrowBlocks().read(memoryview(body), query, schema, settings), schema, settings)

    def encode(self, answered: Answered) -> list[bytes]:
        """Returns the stream of a table with `draws` as lists, and the facts in its metadata."""
        sink = io.BytesIO()
        table = arrow_table(answered)
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return [sink.getvalue()]


class ParquetCodec(_TableCodec):
    """A Parquet file; so is the answer."""

    media_type = "application/vnd.apache.parquet"
    aliases = frozenset({"application/x-parquet", "application/parquet"})

    def __init__(self) -> None:
        self._unpacking = ParquetProcess()

    def decode(self, body: bytes, query: Mapping[str, str], schema: Schema, settings: Settings) -> Asked:
        """Returns the rows and the options of a request; see `Codec.decode`."""
        with errors_of_bodies():
            names = [feature.name for feature in schema.features]
            unpacked = self._unpacking.unpack(body, names, most_columns(schema), settings)
        check_columns(len(unpacked.names), schema)
        check_names(unpacked.names, schema)
        check_rows(unpacked.rows, settings.max_rows)
        return joined(ArrowBlocks().read(unpacked.stream, query, schema, settings), schema, settings)

    def close(self) -> None:
        """Ends the process that unpacks; the next body begins another."""
        self._unpacking.close()

    def encode(self, answered: Answered) -> list[bytes]:
        """Returns the file of a table with `draws` as lists, and the facts in its metadata."""
        sink = io.BytesIO()
        pa.parquet.write_table(arrow_table(answered), sink)
        return [sink.getvalue()]
