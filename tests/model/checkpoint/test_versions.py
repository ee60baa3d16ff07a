from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from murho.model.checkpoint.directories import CheckpointReference

if TYPE_CHECKING:
    from murho.model.checkpoint.object_store import ObjectStore

PATHS = (
    "README.md",
    "cars/notes.txt",
    "cars/10/model.json",
    "cars/10/report/facts.json",
    "cars/10/report/.hidden",
    "cars/10/..\\away",
    "cars/9/model.json",
    "cars/11/model.safetensors",
    "cars/12/.claim",
    "cars/latest/model.json",
    "cars/013/model.json",
    "b@d/1/model.json",
    ".trash/cars/1/model.json",
)


def test_versions_are_listed_by_rising_number_and_what_can_be_none_is_skipped(memory: ObjectStore) -> None:
    for path in PATHS:
        memory.storage.write(path, b"x")
    nine, ten = memory.list()
    assert nine == CheckpointReference("cars", "9", Path("cars/9"))
    assert ten == CheckpointReference("cars", "10", Path("cars/10"))
    memory.storage.write("cars/10/report/.hidden", b"yy")
    memory.storage.write("cars/10/..\\away", b"yy")
    before = memory.stamp(ten)
    memory.list()
    assert memory.stamp(ten) == before
    memory.storage.write("cars/10/report/facts.json", b"yy")
    memory.list()
    assert memory.stamp(ten) != before
