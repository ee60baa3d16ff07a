"""`predict`: the answers for a `ray.data.Dataset`, as a dataset that Ray streams through the workers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from murho.model.checkpoint.directories import find_checkpoint
from murho.model.errors import OptionError, TableError
from murho.model.predictive.prediction import DEFAULT_COVERAGE, DEFAULT_PERCENTILES, DEFAULT_SAMPLES, PredictOptions
from murho.model.tables.schema_inference import columns_from_table
from murho.ray.library import processors_of_ray, require_ray
from murho.ray.scoring import Scoring, TableScorer
from murho.ray.scoring_job import CHECKED_ROWS, schema_of_checkpoint

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

__all__ = ["predict"]

ROWS_PER_BLOCK = 2**16


def predict(
    dataset: Any,
    model: str,
    *,
    checkpoints: str | Path = "checkpoints",
    version: int | str | None = None,
    samples: int = DEFAULT_SAMPLES,
    percentiles: Sequence[float] = DEFAULT_PERCENTILES,
    thresholds: Sequence[float] = (),
    coverage: float = DEFAULT_COVERAGE,
    seed: int | None = None,
    noise: bool = True,
    calibrated: bool = True,
    warnings: bool = False,
    keep_inputs: bool = True,
    workers: int | None = None,
    rows_per_block: int = ROWS_PER_BLOCK,
    device: str = "cpu",
) -> Any:
    """Answer the rows of a dataset with error bars, or class probabilities; nothing is computed before it is read.

    The rows keep their order and are answered in blocks of a fixed number, so what comes out, bytes included, does not
    depend on the number of workers. A worker that dies is replaced, and its block is answered again.

    Args:
        dataset: A `ray.data.Dataset` with the features as columns; other columns are not used.
        model: Name of the checkpoint.
        checkpoints: Directory of checkpoints, which every machine sees under this path.
        version: The version; by default the latest.
        samples: S, the number of draws behind each answer; 0: the mean, or the probabilities, alone.
        percentiles: Levels, strictly between 0 and 100.
        thresholds: Values of the target, in its unit: adds the probability of more than each.
        coverage: Coverage of prediction sets, for classes alone.
        seed: Seed of the draws; None: the checkpoint's.
        noise: Whether to describe a new observation, or the function alone.
        calibrated: Whether the answers are calibrated.
        warnings: Whether to add a column with the unusual features of each row.
        keep_inputs: Whether the columns of the dataset come first.
        workers: The most workers, each with one processor; None: one less than there are processors, because the tasks
            that read the rows need one too.
        rows_per_block: Rows that are answered at a time.
        device: ``cpu``, or ``cuda`` for workers with one GPU each.

    Returns:
        A `ray.data.Dataset` with the columns that `murho predict` writes.

    Raises:
        OptionError: Ray is not installed, or an option can't be used.
        CheckpointError: There is no such checkpoint.
        TableError: The dataset lacks a feature, or its first rows don't fit; the message names the column.
    """
    require_ray()
    import ray

    directory = find_checkpoint(Path(checkpoints), model, None if version is None else str(version)).absolute()
    options = PredictOptions(
        samples=samples,
        percentiles=tuple(map(float, percentiles)),
        seed=seed,
        noise=noise,
        thresholds=tuple(map(float, thresholds)),
        calibrated=calibrated,
        coverage=coverage,
    )
    _check_options(options)
    _check(dataset, directory)
    blocks = dataset.repartition(target_num_rows_per_block=rows_per_block, strict=True)
    blocks.context.execution_options.preserve_order = True
    return blocks.map_batches(
        _Blocks,
        fn_constructor_args=(Scoring(directory, options, "auto", device, warnings, keep_inputs),),
        batch_size=None,
        batch_format="pyarrow",
        # From one worker up: all of them at once could leave no processor for the tasks that read the rows.
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=workers or max(1, processors_of_ray() - 1)),
        num_cpus=1,
        num_gpus=1 if device.startswith("cuda") else None,
    )


class _Blocks(TableScorer):
    """A callable that `ray.data` makes once a worker."""

    def __call__(self, table: pa.Table) -> pa.Table:
        return self.score(table)[0]


def _check_options(options: PredictOptions) -> None:
    """Raise an `OptionError` if an option can't be used: it would be noticed late, by a worker."""
    if any(not 0.0 < level < 100.0 for level in options.percentiles):
        raise OptionError(f"percentiles: levels lie strictly between 0 and 100, not {options.percentiles}")
    if not all(map(math.isfinite, options.thresholds)):
        raise OptionError(f"thresholds: expected finite numbers, not {options.thresholds}")
    if not 0.0 < options.coverage < 1.0:
        raise OptionError(f"coverage lies strictly between 0 and 1, not {options.coverage:g}")
    if options.samples < 0:
        raise OptionError(f"samples: 0 or more, not {options.samples}")


def _check(dataset: Any, directory: Path) -> None:
    """Raise a `TableError` if the first rows don't fit the checkpoint."""
    first = dataset.limit(CHECKED_ROWS).take_batch(CHECKED_ROWS, batch_format="pyarrow")
    if first.num_rows == 0:
        raise TableError("the dataset has no rows to score")
    columns_from_table(first, schema_of_checkpoint(directory))
