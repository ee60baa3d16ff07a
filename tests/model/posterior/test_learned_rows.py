"""The file of rows learned from: a damaged one recognises nothing, whatever is in it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import pytest

from murho.model.data.row_fingerprints import RowFingerprints
from murho.model.posterior.learned_rows import LEARNED_ROWS_FILE, read_learned_rows

if TYPE_CHECKING:
    from pathlib import Path

WHOLE = RowFingerprints.of(np.arange(5, dtype=np.uint64)).to_bytes()


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    (tmp_path / LEARNED_ROWS_FILE).write_bytes(WHOLE)
    found = read_learned_rows(tmp_path)
    assert found is not None
    assert found.rows.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        WHOLE[:-1],
        WHOLE.replace(b"(5,)", b"(((("),
        WHOLE.replace(b"(5,), }" + 13 * b" ", b"(5" + 13 * b"0" + b",), }"),
        WHOLE + bytes(2**20),
    ],
)
def test_a_damaged_one_recognises_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / LEARNED_ROWS_FILE).write_bytes(content)
    assert read_learned_rows(tmp_path) is None


def test_a_pipe_recognises_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / LEARNED_ROWS_FILE)
    assert read_learned_rows(tmp_path) is None
