"""The fixtures of the model: its small tables, as files too, and checkpoints trained on them."""

from pathlib import Path

import pytest

from tests.model.conftest import make_table, rent, rent_checkpoints, room_checkpoints, rooms
from tests.model.rooms import rooms_table
from tests.support import write_table

__all__ = ["rent", "rent_checkpoints", "room_checkpoints", "rooms"]


@pytest.fixture
def rooms_file(tmp_path: Path) -> Path:
    """Sixty rows of rooms as CSV."""
    table = rooms_table(rows=60, seed=4)
    write_table(tmp_path / "rooms.csv", {name: table.column(name) for name in table.column_names})
    return tmp_path / "rooms.csv"


@pytest.fixture
def flats_file(tmp_path: Path) -> Path:
    """Return the table of flats as CSV."""
    table = make_table()
    write_table(tmp_path / "flats.csv", {name: table.column(name) for name in table.column_names})
    return tmp_path / "flats.csv"
