"""Answers by the workers of Ray: for the blocks of a table, and for a `ray.data.Dataset`, which Ray streams."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from murho.model.checkpoint.stores import DirectoryStore
from murho.model.predictive.prediction import DEFAULT_COVERAGE, DEFAULT_PERCENTILES, DEFAULT_SAMPLES, PredictOptions
from murho.model.python.table_scoring import (
    FIRST_ROWS,
    ROWS_PER_BLOCK,
    beside,
    check_first_rows,
    check_options,
    score_block,
    stored_schema,
)
from murho.ray.library import processors_of_ray, ray_running, require_ray

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

    from murho.model.checkpoint.posterior import Posterior

Found = TypeVar("Found")


class Worker(Generic[Found]):
    """A loaded checkpoint that answers blocks; with one thread, whatever the machine, so that bytes are reproduced."""

    def __init__(
        self, answer: Callable[..., Found], given: tuple[object, ...], checkpoint: Path, device: str, engine: str
    ) -> None:
        """Load the checkpoint.

        Args:
            answer: Answers a block; takes a posterior, the block and more.
            given: What else it takes.
            checkpoint: Directory of the version, on every machine.
            device: ``auto``, ``cpu`` or ``cuda``.
            engine: One of `model.predictive.compiled_engine.ENGINES`.
        """
        import torch

        from murho.model.checkpoint.posterior import Posterior
        from murho.model.runtime import resolve_device

        torch.set_num_threads(1)
        self._posterior = Posterior.load(checkpoint, resolve_device(device), engine=engine)
        self._answer, self._given = answer, given

    def score(self, block: pa.Table) -> Found:
        """Return the answer for a block."""
        return self._answer(self._posterior, block, *self._given)

    __call__ = score


def answers_of_workers(
    answer: Callable[..., Found],
    given: tuple[object, ...],
    checkpoint: tuple[Path, str, str],
    workers: int | None,
    blocks: Iterable[pa.Table],
) -> Iterator[Found]:
    """Return the answers of Ray for blocks, in their order; a few blocks for each worker are in memory.

    A worker that dies is replaced, and its blocks are answered again.

    Args:
        answer: See `Worker`.
        given: See `Worker`.
        checkpoint: Directory, device and engine, see `Worker`.
        workers: Number of workers, each with one processor; None: as many as there are processors.
        blocks: The rows.

    Raises:
        TableError: The cells can't be used; the message names column and row.
    """
    with ray_running(workers):
        import ray

        found = processors_of_ray()
        gpus = gpus_for(checkpoint[1])
        remote = ray.remote(num_cpus=1, num_gpus=gpus, max_restarts=-1, max_task_retries=-1)(Worker)
        pool = [remote.remote(answer, given, *checkpoint) for _ in range(min(workers or found, found))]
        waiting: deque[Any] = deque()
        try:
            for number, block in enumerate(blocks):
                waiting.append(pool[number % len(pool)].score.remote(block))
                if len(waiting) > 2 * len(pool):
                    yield ray.get(waiting.popleft())
            while waiting:
                yield ray.get(waiting.popleft())
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None


def _score_rows(
    posterior: Posterior, block: pa.Table, options: PredictOptions, warnings: bool, keep_inputs: bool
) -> pa.Table:
    """Return the columns of the answer for a block of a dataset, behind its own if these are kept."""
    answers = score_block(posterior, block, options, warnings=warnings).answers
    return beside(block, answers) if keep_inputs else answers


def gpus_for(device: str) -> int | None:
    """GPUs of a worker."""
    return 1 if device.startswith("cuda") else None


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

    directory = DirectoryStore(Path(checkpoints)).find(model, None if version is None else str(version)).absolute()
    options = PredictOptions(
        samples=samples,
        percentiles=tuple(map(float, percentiles)),
        seed=seed,
        noise=noise,
        thresholds=tuple(map(float, thresholds)),
        calibrated=calibrated,
        coverage=coverage,
    )
    check_options(options)
    check_first_rows(dataset.limit(FIRST_ROWS).take_batch(FIRST_ROWS, batch_format="pyarrow"), stored_schema(directory))
    blocks = dataset.repartition(target_num_rows_per_block=rows_per_block, strict=True)
    blocks.context.execution_options.preserve_order = True
    return blocks.map_batches(
        Worker,
        fn_constructor_args=(_score_rows, (options, warnings, keep_inputs), directory, device, "auto"),
        batch_size=None,
        batch_format="pyarrow",
        # From one worker up: all of them at once could leave no processor for the tasks that read the rows.
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=workers or max(1, processors_of_ray() - 1)),
        num_cpus=1,
        num_gpus=gpus_for(device),
    )
