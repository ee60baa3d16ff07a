"""What a worker does: it loads the checkpoint once, and answers piece after piece, each into a file of its own."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from murho.model.errors import MurhoError, OptionError, TableError
from murho.model.files import written_whole
from murho.ray.pieces import read_piece

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from murho.cli.batch_prediction import ScoredTable
    from murho.model.predictive.prediction import PredictOptions
    from murho.ray.pieces import Piece, Source

__all__ = ["Done", "Scoring", "TableScorer", "Worker", "answer_columns_of", "done_of"]

FACTS = b"murho"
"""Key of the facts in the metadata of a part."""


@dataclass(frozen=True, slots=True)
class Scoring:
    """What is asked of every row.

    Attributes:
        checkpoint: Directory of the version, on every machine.
        options: Options of the prediction.
        engine: One of `model.predictive.compiled_engine.ENGINES`.
        device: ``auto``, ``cpu`` or ``cuda``.
        warnings: Whether to add the column of warnings.
        keep_inputs: Whether the input columns come first.
    """

    checkpoint: Path
    options: PredictOptions
    engine: str = "auto"
    device: str = "cpu"
    warnings: bool = False
    keep_inputs: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a piece.

    Attributes:
        rows: Rows answered.
        unlike: Rows unlike the training rows.
        imputed: Rows that lack a cell that no training row lacked.
        error: What is wrong with the rows; empty if nothing is.
    """

    rows: int = 0
    unlike: int = 0
    imputed: int = 0
    error: str = ""


class TableScorer:
    """A loaded checkpoint that answers tables; with one thread, whatever the machine, so that bytes are reproduced."""

    def __init__(self, scoring: Scoring) -> None:
        """Load the checkpoint."""
        import torch

        from murho.cli.batch_prediction import LocalScorer
        from murho.model.checkpoint.posterior import Posterior
        from murho.model.runtime import resolve_device

        torch.set_num_threads(1)
        self.scoring = scoring
        posterior = Posterior.load(scoring.checkpoint, resolve_device(scoring.device), engine=scoring.engine)
        self._scorer = LocalScorer(posterior, warnings=scoring.warnings)
        self.features = [feature.name for feature in posterior.schema.features]

    def score(self, table: pa.Table) -> tuple[pa.Table, ScoredTable]:
        """The columns of the answer, behind those of the table if these are kept, and what is to be said of the rows.

        Raises:
            TableError: The cells can't be used; the message names column and row.
        """
        from murho.cli.batch_prediction import score_table

        scored = score_table(table, self._scorer, self.scoring.options)
        inputs = table if self.scoring.keep_inputs else None
        return answer_columns_of(scored.columns, inputs), scored


def answer_columns_of(columns: Mapping[str, Any], inputs: pa.Table | None) -> pa.Table:
    """The columns of an answer as a table, behind those of a table if one is given.

    Raises:
        OptionError: Both have a column of the same name.
    """
    from murho.cli.batch_prediction import written_cells

    clash = sorted(set(columns) & set([] if inputs is None else inputs.column_names))
    if clash:
        raise OptionError(f"the input already has a column {clash[0]!r}: rename it, or don't keep the inputs")
    kept = {} if inputs is None else {name: inputs.column(name) for name in inputs.column_names}
    return pa.table(kept | {name: written_cells(cells, as_csv=False) for name, cells in columns.items()})


class Worker:
    """Answers pieces, one file each. A file appears whole or not at all, so a piece may be begun any number of times.

    A piece whose file is there already is not computed again: a worker before this one has finished it.
    """

    def __init__(self, scoring: Scoring, sources: Sequence[Source], output: Path) -> None:
        """Load the checkpoint."""
        self._scorer = TableScorer(scoring)
        self._sources, self._output = sources, output
        self._columns = None if scoring.keep_inputs else self._scorer.features

    def answer(self, source: Source, piece: Piece) -> Done:
        """Answer a piece, and write its file; a mistake in the table is what became of it."""
        path = self._output / piece.part
        if path.exists():
            return done_of(path)
        try:
            table, scored = self._scorer.score(read_piece(source, piece, self._columns))
        except MurhoError as error:
            where = f"{source.path}, rows {piece.first + 1} to {piece.first + piece.rows}"
            return Done(error=str(error) if str(source.path) in str(error) else f"{where}: {error}")
        done = Done(piece.rows, scored.unlike, scored.imputed)
        _write(path, table, done)
        return done

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, list[Any]]:
        """Answer the pieces that a batch of `ray.data` numbers: ``source`` and ``piece``, ``[n]`` each."""
        results = []
        for source, piece in zip(batch["source"].tolist(), batch["piece"].tolist(), strict=True):
            done = self.answer(self._sources[source], self._sources[source].pieces[piece])
            results.append({"source": source, "piece": piece, **asdict(done)})
        return {name: [result[name] for result in results] for name in results[0]}


def done_of(path: Path) -> Done:
    """What became of the piece whose file is there."""
    from pyarrow import parquet

    try:
        facts = json.loads(parquet.read_schema(path).metadata[FACTS])
        return Done(**facts)
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise TableError(f"{path} is not a part of this job: use another --output") from error


def _write(path: Path, table: pa.Table, done: Done) -> None:
    from pyarrow import parquet

    facts = json.dumps(asdict(done)).encode()
    try:
        with written_whole(path) as file:
            parquet.write_table(table.replace_schema_metadata({FACTS: facts}), file)
    except OSError as error:
        raise TableError(f"{path} can't be written: {error.strerror or error}") from error
