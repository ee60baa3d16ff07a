"""A scoring job: checks tables, hands pieces to the workers of Ray Data, and marks the output when all are there."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from murho.model.checkpoint.checkpoint import FACTS_FILE
from murho.model.errors import CheckpointError, OptionError, TableError
from murho.model.files import parse_json, read_bounded, replace_durably
from murho.model.predictive.compiled_engine import engine_worth
from murho.model.progress import ignore_rows
from murho.model.tables.schema import Schema
from murho.model.tables.schema_inference import columns_from_table
from murho.ray.library import processors_of_ray, quiet_data
from murho.ray.pieces import find_sources, first_rows, source_of
from murho.ray.scoring import Worker

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from murho.model.progress import Advance
    from murho.ray.pieces import Source
    from murho.ray.scoring import Scoring

__all__ = ["FINISHED", "JOB", "ROWS_PER_PIECE", "Job", "Outcome", "check_tables", "prepare_job", "schema_of_checkpoint"]

ROWS_PER_PIECE = 2**17
"""Rows of a piece: half a minute of work at most, some tens of megabytes."""
CHECKED_ROWS = 1_000
MOST_BLOCKS = 2_000
JOB, FINISHED = "_job.json", "_SUCCESS"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished job.

    Attributes:
        rows: Rows answered.
        unlike: Rows unlike the training rows.
        imputed: Rows that lack a cell that no training row lacked.
        parts: Files written, those of earlier runs of the job too.
    """

    rows: int
    unlike: int
    imputed: int
    parts: int


def schema_of_checkpoint(directory: Path) -> Schema:
    """The schema of a checkpoint, without loading it.

    Raises:
        CheckpointError: ``model.json`` can't be read.
    """
    try:
        return Schema.from_json(parse_json(read_bounded(directory / FACTS_FILE))["schema"], "schema")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{directory / FACTS_FILE} can't be read: {error}") from error


def check_tables(paths: Iterable[Path], schema: Schema) -> None:
    """Check that each file has the features, and that its first rows fit them.

    Raises:
        TableError: One doesn't; the message names file and column.
    """
    for path in paths:
        table = first_rows(path, CHECKED_ROWS)
        try:
            columns_from_table(table, schema)
        except TableError as error:
            raise TableError(f"{path}: {error}") from error


@dataclass(frozen=True, slots=True)
class Job:
    """A checked job, with its directory claimed.

    Attributes:
        sources: The files, cut into pieces.
        output: The directory for the answers.
        scoring: What is asked of every row.
    """

    sources: Sequence[Source]
    output: Path
    scoring: Scoring

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(source.rows for source in self.sources)

    def run(self, workers: int | None = None, advance: Advance = ignore_rows) -> Outcome:
        """Score all pieces with the Ray that is running, and mark the directory as finished.

        Args:
            workers: Number of workers, each with one processor; None: as many as there are processors.
            advance: Gets the number of rows of each finished piece.

        Raises:
            TableError: A cell does not fit; the message names file, rows and column. What is written stays.
        """
        totals = {"rows": 0, "unlike": 0, "imputed": 0}
        for result in _results(self, workers or processors_of_ray()):
            if result["error"]:
                raise TableError(f"{result['error']} (the parts that are written stay in {self.output})")
            for name in totals:
                totals[name] += int(result[name])
            advance(int(result["rows"]))
        parts = [
            {"part": piece.part, "input": str(source.path), "first_row": piece.first + 1, "rows": piece.rows}
            for source in self.sources
            for piece in source.pieces
        ]
        for part in parts:
            if not (self.output / str(part["part"])).is_file():
                raise TableError(f"{self.output / str(part['part'])} was written, and is gone: run the job again")
        replace_durably(self.output / FINISHED, json.dumps({**totals, "parts": parts}, indent=1).encode())
        return Outcome(**totals, parts=len(parts))


def prepare_job(data: Iterable[Path], output: Path, scoring: Scoring, *, rows_per_piece: int = ROWS_PER_PIECE) -> Job:
    """Check tables, cut them into pieces, and claim the directory for their answers. Ray need not run.

    Memory is bounded by the pieces in work: the workers read them and write the answers, and neither goes through this
    process. The files written depend on the data, the checkpoint and the options alone. After an interruption, the same
    job goes on where it ended.

    Args:
        data: Files and directories, which every machine sees under these paths.
        output: A directory, which every machine sees; new, empty, or of the same job before.
        scoring: What is asked of every row; its engine is chosen here.
        rows_per_piece: Rows of a piece, each of which is answered into one file.

    Raises:
        TableError: A table does not fit the checkpoint; the message names file and column.
        OptionError: The directory holds something else.
    """
    paths = find_sources(data)
    schema = schema_of_checkpoint(scoring.checkpoint)
    check_tables(paths, schema)
    sources = [source_of(path, number, rows_per_piece) for number, path in enumerate(paths)]
    rows = sum(source.rows for source in sources)
    if rows == 0:
        raise TableError("the data set has no rows to score")
    engine = engine_worth(rows, scoring.options.samples)
    scoring = replace(scoring, engine=engine, checkpoint=scoring.checkpoint.absolute())
    job = Job(sources, output.absolute(), scoring)
    _claim(job.output, _description(job, rows_per_piece))
    return job


def _results(job: Job, workers: int) -> Iterator[dict[str, Any]]:
    """What became of each piece, as they are finished."""
    import ray

    items = [
        {"source": number, "piece": index}
        for number, source in enumerate(job.sources)
        for index in range(len(source.pieces))
    ]
    workers = min(workers, len(items))
    data = ray.data.from_items(items, override_num_blocks=min(len(items), MOST_BLOCKS))
    data.context.enable_progress_bars = False
    done = data.map_batches(
        Worker,
        fn_constructor_args=(job.scoring, job.sources, job.output),
        batch_size=1,
        batch_format="numpy",
        compute=ray.data.ActorPoolStrategy(size=workers, max_tasks_in_flight_per_actor=2),
        num_cpus=1,
        num_gpus=1 if job.scoring.device.startswith("cuda") else None,
    )
    with quiet_data():
        yield from done.iter_rows()


def _claim(output: Path, description: dict[str, Any]) -> None:
    """Make the directory this job's.

    Raises:
        OptionError: It is finished, another job's, or holds other files.
    """
    try:
        output.mkdir(parents=True, exist_ok=True)
        if (output / FINISHED).exists():
            raise OptionError(f"--output: {output} holds a finished job: give another directory, or remove it")
        text = json.dumps(description, indent=1)
        if (output / JOB).exists():
            if (output / JOB).read_text() == text:
                return
            raise OptionError(
                f"--output: {output} holds another job that has not finished (other data, checkpoint or options): "
                "give another directory, or remove it"
            )
        if any(output.iterdir()):
            raise OptionError(f"--output: {output} is not empty: give a new directory")
        replace_durably(output / JOB, text.encode())
    except OSError as error:
        raise OptionError(f"--output: {output} can't be written: {error.strerror or error}") from error


def _description(job: Job, rows_per_piece: int) -> dict[str, Any]:
    """What the bytes of the output depend on."""
    scoring = job.scoring
    return {
        "checkpoint": str(scoring.checkpoint),
        "sha256": hashlib.sha256(read_bounded(scoring.checkpoint / FACTS_FILE)).hexdigest(),
        "options": asdict(scoring.options),
        "engine": scoring.engine,
        "device": scoring.device,
        "warnings": scoring.warnings,
        "keep_inputs": scoring.keep_inputs,
        "rows_per_piece": rows_per_piece,
        "inputs": [
            {"path": str(source.path), "bytes": source.size, "changed": source.changed, "rows": source.rows}
            for source in job.sources
        ],
    }
