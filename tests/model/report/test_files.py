"""The files of a training's report, and that a checkpoint is the same with and without them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from murho.model.checkpoint.checkpoint import list_checkpoints, read_stored, write_checkpoint
from murho.model.report.files import training_report

if TYPE_CHECKING:
    from pathlib import Path

    from murho.model.training.train import Trained


def test_a_report_lies_beside_the_checkpoint_and_no_reader_minds(trained: Trained, tmp_path: Path) -> None:
    files = training_report("rent", trained)
    assert {"report.html", "report/facts.json", "report/reliability.png"} < set(files)
    directory = write_checkpoint(tmp_path, "rent", trained.spec, trained.posterior.tensors, extras=files)
    assert (directory / "report" / "reliability.png").read_bytes().startswith(b"\x89PNG")
    assert read_stored(directory).spec.schema == trained.spec.schema
    assert [(found.version, found.problem) for found in list_checkpoints(tmp_path)] == [("1", None)]


def test_stored_facts_hold_no_row_and_without_rows_the_page_holds_none(trained: Trained) -> None:
    files = training_report("rent", trained, with_rows=False)
    assert b"surprising" not in files["report.html"]
    stored = orjson.loads(files["report/facts.json"])
    numbers = set()

    def collect(value: object) -> None:
        if isinstance(value, dict):
            for part in value.values():
                collect(part)
        elif isinstance(value, list):
            for part in value:
                collect(part)
        elif isinstance(value, float):
            numbers.add(value)

    collect({key: stored[key] for key in ("held_out", "doubt", "training")})
    rounded = {float(f"{target:.6g}") for target in trained.evidence.targets}
    # The median of a bin with an odd number of rows is a target, without the row that it belongs to.
    assert len(rounded & numbers) <= len(stored["held_out"]["agreement"])
