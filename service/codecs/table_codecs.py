"""Tables as bodies: CSV, Arrow streams and Parquet. Options come as query parameters."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet

from murho.model.data.csv_files import parse_csv
from murho.model.data.index_columns import without_index
from murho.model.data.schema import FeatureKind
from murho.model.errors import Problem, TableError
from murho.service.codecs.answer_columns import fact_headers
from murho.service.codecs.arrow_blocks import ArrowBlocks, errors_of_streams
from murho.service.codecs.block_codec import errors_of_bodies
from murho.service.codecs.codec import Asked
from murho.service.codecs.csv_blocks import CSVBlocks, check_start
from murho.service.codecs.envelope import predict_options
from murho.service.codecs.inputs import check_rows
from murho.service.codecs.query_options import parse_query
from murho.service.codecs.table_answers import arrow_table, csv_text
from murho.service.codecs.table_inputs import check_names, inputs_of_table
from murho.service.codecs.table_sizes import arrow_bytes, check_columns, check_memory, expanded_bytes, most_columns
from murho.service.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from murho.model.data.schema import Schema
    from murho.model.engines.prediction import PredictOptions
    from murho.service.codecs.block_codec import BlockCodec
    from murho.service.codecs.codec import Answered
    from murho.service.settings import Settings

__all__ = ["ArrowCodec", "CSVCodec", "ParquetCodec"]


class _TableCodec:
    """What the codecs of tables share; see `Codec`."""

    media_type: str
    aliases: frozenset[str] = frozenset()
    blocks: BlockCodec | None = None

    def reads(self, media_type: str) -> bool:
        """Returns whether the media type is this codec's."""
        return media_type == self.media_type or media_type in self.aliases

    def decode(self, body: bytes, query: Mapping[str, str], schema: Schema, settings: Settings) -> Asked:
        """Returns the rows and the options of a request; see `Codec.decode`."""
        asked = parse_query(query)
        options = predict_options(asked, settings.samples, settings.max_samples, schema.target)
        with errors_of_bodies():
            table = self._table(body, schema, settings)
        check_memory(expanded_bytes(table), settings)
        return Asked(inputs_of_table(table, schema, settings.max_rows), options, asked.timeout)

    def require_place(self, options: PredictOptions) -> None:
        """Accepts all options."""

    def headers(self, answered: Answered) -> Mapping[str, str]:
        """Returns the facts of the answer."""
        return fact_headers(answered)

    def _table(self, body: bytes, schema: Schema, settings: Settings) -> pa.Table:
        """Returns the features' columns of the body, with their names checked."""
        raise NotImplementedError


class CSVCodec(_TableCodec):
    """CSV with a header line, in UTF-8; the answer is CSV too."""

    media_type = "text/csv"
    aliases = frozenset({"application/csv", "text/tab-separated-values"})
    blocks: BlockCodec | None = CSVBlocks()

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
        check_rows(max(0, body.count(b"\n") - 1 - body.count(b'"')), settings.max_rows)
        table = without_index(parse_csv(body, "the body", most_columns=most_columns(schema)))
        check_names(table.column_names, schema)
        return table


class ArrowCodec(_TableCodec):
    """A stream of Arrow record batches; so is the answer."""

    media_type = "application/vnd.apache.arrow.stream"
    blocks: BlockCodec | None = ArrowBlocks()

    def encode(self, answered: Answered) -> list[bytes]:
        """Returns the stream of a table with `draws` as lists, and the facts in its metadata."""
        sink = io.BytesIO()
        table = arrow_table(answered)
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return [sink.getvalue()]

    def _table(self, body: bytes, schema: Schema, settings: Settings) -> pa.Table:
        batches, rows, taken = [], 0, 0
        with errors_of_streams():
            check_memory(arrow_bytes(body), settings)
            with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
                check_columns(len(reader.schema), schema)
                check_names(reader.schema.names, schema)
                for batch in reader:
                    batch.validate(full=True)
                    rows, taken = rows + batch.num_rows, taken + batch.nbytes
                    check_rows(rows, settings.max_rows)
                    check_memory(taken, settings)
                    batches.append(batch)
                return pa.Table.from_batches(batches, reader.schema)


class ParquetCodec(_TableCodec):
    """A Parquet file; so is the answer."""

    media_type = "application/vnd.apache.parquet"
    aliases = frozenset({"application/x-parquet", "application/parquet"})

    def encode(self, answered: Answered) -> list[bytes]:
        """Returns the file of a table with `draws` as lists, and the facts in its metadata."""
        sink = io.BytesIO()
        pa.parquet.write_table(arrow_table(answered), sink)
        return [sink.getvalue()]

    def _table(self, body: bytes, schema: Schema, settings: Settings) -> pa.Table:
        try:
            texts = [feature.name for feature in schema.features if feature.kind is FeatureKind.CATEGORICAL]
            # Texts stay in their dictionaries, where each is once: a small file can repeat a long one a million times.
            with pa.parquet.ParquetFile(pa.BufferReader(body), read_dictionary=texts) as file:
                check_columns(file.metadata.num_columns, schema)
                check_names(file.schema_arrow.names, schema)
                check_rows(file.metadata.num_rows, settings.max_rows)
                groups = range(file.metadata.num_row_groups)
                taken = sum(file.metadata.row_group(group).total_byte_size for group in groups)
                check_memory(taken, settings)
                table = file.read(columns=[feature.name for feature in schema.features], use_threads=False)
            table.validate(full=True)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise TableError(f"the body is not a whole Parquet file: {error}") from None
        return table
