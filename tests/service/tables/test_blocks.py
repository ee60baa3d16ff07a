"""Tests of `service.tables.blocks`: what all formats of tables do alike."""

from __future__ import annotations

import subprocess
import sys

ANSWERS = """
import io, itertools, sys
import numpy as np
import pyarrow as pa
from murho.service.predict.routes import CODECS, PARQUET
from murho.service.tables.blocks import BlockCodec
from murho.service.predict.answers import Answered, Terms
from murho.service.settings import Settings
from tests.service.classifiers import Classifier
from tests.service.support import ROW, FakeModel

def bodies():
    values = {name: [value] for name, value in ROW.items()}
    yield "text/csv", (",".join(ROW) + "\\n" + ",".join(map(str, ROW.values()))).encode()
    from murho.model.tables.columns import number_array, text_array
    table = pa.table({name: text_array([str(value)]) for name, value in ROW.items()})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    yield "application/vnd.apache.arrow.stream", sink.getvalue()
    sink = io.BytesIO()
    pa.parquet.write_table(table, sink)
    yield "application/vnd.apache.parquet", sink.getvalue()

codecs = {codec.media_type: codec for codec in CODECS}
for model, (kind, body) in itertools.product((FakeModel(), Classifier()), bodies()):
    for query in ({}, {"samples": "0"}, {"include": "draws", "samples": "8"}):
        asked = codecs[kind].decode(body, Terms(query, model.schema, Settings()))
        prediction = model.predict(asked.inputs.columns, asked.options)
        answered = Answered(model, asked, prediction, [], 0)
        for codec in CODECS:
            if not (asked.options.draws and codec.media_type == "text/csv"):
                codec.encode(answered)
                if isinstance(codec, BlockCodec):
                    codec.encode_block(answered, first=False)
PARQUET.close()
assert "pandas" not in sys.modules
"""


def test_tables_are_read_and_written_without_pandas() -> None:
    # pyarrow imports it where it is installed, for seconds, in which nobody is answered.
    done = subprocess.run([sys.executable, "-c", ANSWERS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
