"""Runs the peers of the benchmarks on tables in their own environments, and saves their scores by peer and set.

What a task and its scores are is said by `Trials`: here those of quantiles, in `benchmarks.class_runs` of classes.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import orjson

from benchmarks.datasets import read_set, splits
from benchmarks.distributions import (
    LEVELS,
    conformal_additive,
    conformal_scaled,
    crps_of_normals,
    normal_quantiles,
    quantile_scores,
)
from benchmarks.environments import environment
from benchmarks.peers.table_task import Answer, Features, Predictive, TableTask
from benchmarks.processes import NO_LIMIT, SystemProcess
from benchmarks.results import facts, write_json
from benchmarks.systems import System

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from typing import Self

    import pyarrow as pa
    from numpy.typing import NDArray

    from benchmarks.datasets import DataSet, Split
    from benchmarks.peers import Peer

__all__ = [
    "INNER_SHARE",
    "MakeTrials",
    "QuantileTrials",
    "Trials",
    "features_and_target",
    "features_of",
    "inner_rows",
    "kept_runs",
    "run_peer",
    "score",
    "start",
    "task_of",
]

INNER_SHARE = 0.15
"""Share of the training rows that peers hold back for early stopping and conformal correction."""


class Trials(Protocol):
    """The splits of a set as tasks for a peer, and the scores of its answers."""

    def open(self, peer: Peer, cache: Path, stack: ExitStack) -> None:
        """Starts what scoring needs besides the peer; the stack ends it."""
        ...

    def task(self, number: int) -> str:
        """The task of a split, packed."""
        ...

    def scores(self, number: int, answer: str) -> dict[str, Any]:
        """Scores of a peer's packed answer."""
        ...

    def line(self, run: Mapping[str, Any]) -> str:
        """The scores in short."""
        ...


MakeTrials: TypeAlias = "Callable[[pa.Table, DataSet, Sequence[Split]], Trials]"
"""Makes the tasks of a table and its splits."""


def kept_runs(peer: Peer, dataset: str, results: Path) -> dict[int, dict[str, Any]]:
    """Saved scores by split; empty if they were made with other packages."""
    path = _path(peer, dataset, results)
    if not path.exists():
        return {}
    kept = orjson.loads(path.read_bytes())
    if kept.get("requirements") != peer.requirements:
        return {}
    return {run["split"]: run for run in kept["runs"]}


def run_peer(
    peer: Peer,
    dataset: DataSet,
    data: Path,
    count: int,
    *,
    results: Path,
    cache: Path,
    rerun: bool = False,
    say: Callable[[str], None],
    trials: MakeTrials | None = None,
) -> dict[int, dict[str, Any]]:
    """Scores of a peer on the first splits of a set; measures those that are not saved yet.

    The scores of each split are saved as soon as it is finished.

    Args:
        peer: A peer of a benchmark on tables.
        dataset: The set.
        data: The data directory.
        count: Number of splits.
        results: Directory of the saved scores.
        cache: Directory of the environments.
        rerun: Whether to ignore saved scores.
        say: Called with a line for each finished split.
        trials: Makes the tasks of a table and its splits; by default `QuantileTrials`.

    Returns:
        Split → its scores; empty if the set has more training rows than the peer's `most_rows`.

    Raises:
        ProcessError: The script failed. Splits that were finished before stay saved.
        PeerEnvironmentError: The environment can't be made.
    """
    table = read_set(dataset, data)
    all_splits = splits(dataset, table.num_rows, count)
    if peer.most_rows is not None and len(all_splits[0].training) > peer.most_rows:
        return {}
    runs = {} if rerun else kept_runs(peer, dataset.name, results)
    if wanted := [number for number in range(len(all_splits)) if number not in runs]:
        given = (trials or QuantileTrials.of)(table, dataset, all_splits)
        with ExitStack() as stack:
            process = stack.enter_context(start(peer, f"{peer.name} on {dataset.name}", cache))
            given.open(peer, cache, stack)
            for number in wanted:
                reply = process.ask({"task": given.task(number)})
                scores = given.scores(number, reply["answer"])
                runs[number] = {"split": number, **scores, "seconds": round(reply["seconds"], 2)}
                _write(peer, dataset.name, results, runs)
                told = f"{runs[number]['seconds']:.0f} s, {runs[number]['rounds']:.3g} rounds"
                say(f"{dataset.name} {peer.name} split {number}: {given.line(runs[number])}, {told}")
    return {number: runs[number] for number in range(len(all_splits))}


def start(peer: Peer, name: str, cache: Path) -> SystemProcess:
    """Starts a peer's script in its environment; the process is a context manager.

    Args:
        peer: The peer.
        name: For messages.
        cache: Directory of the environments.
    """
    system = System(peer, environment(peer.library.module, peer.library.packages, cache=cache))
    return SystemProcess(name, system.command(json.dumps(dict(peer.options))), limit=NO_LIMIT)


@dataclass(frozen=True, slots=True)
class QuantileTrials:
    """Numbers, predicted by quantiles or Normals; see `Trials`.

    Attributes:
        features: Of all rows of the table.
        target: Of all rows.
        splits: All splits.
    """

    features: Features
    target: NDArray[np.float64]
    splits: Sequence[Split]

    @classmethod
    def of(cls, table: pa.Table, dataset: DataSet, splits: Sequence[Split]) -> Self:
        """The tasks of a table."""
        return cls(*features_and_target(table, dataset.target), splits)

    def open(self, peer: Peer, cache: Path, stack: ExitStack) -> None:
        """Nothing else is needed."""

    def task(self, number: int) -> str:
        """The task of a split, packed."""
        return task_of(self.features, self.target, self.splits[number], number).packed()

    def scores(self, number: int, answer: str) -> dict[str, Any]:
        """The scores of `score`."""
        split = self.splits[number]
        return score(Answer.unpacked(answer), self.target, split, inner_rows(len(split.training), number))

    def line(self, run: Mapping[str, Any]) -> str:
        """CRPS and RMSE."""
        raw = "     -" if run["raw"] is None else f"{run['raw']['crps']:.4g}"
        return f"CRPS raw {raw} conformal {run['calibrated']['crps']:.4g}, RMSE {run['rmse']:.4g}"


def features_and_target(table: pa.Table, target: str) -> tuple[Features, NDArray[np.float64]]:
    """Features and target for peers; see `features_of`."""
    return features_of(table, target), np.array([float(cell) for cell in table[target].to_pylist()])


def features_of(table: pa.Table, target: str) -> Features:
    """Features for peers: a column of numbers and missing cells is numeric, any other is categorical.

    Args:
        table: Text columns, as `model.tables.files.read_table` reads a CSV file.
        target: Name of the target column.
    """
    numbers, codes = [], []
    for name in table.column_names:
        if name == target:
            continue
        cells = table[name].to_pylist()
        try:
            numbers.append([np.nan if cell in (None, "") else float(cell) for cell in cells])
        except ValueError:
            known = {cell: code for code, cell in enumerate(sorted({cell for cell in cells if cell}))}
            codes.append([known.get(cell, -1) for cell in cells])
    rows = table.num_rows
    return Features(
        np.array(numbers, dtype=np.float64).reshape(len(numbers), rows).T,
        np.array(codes, dtype=np.int64).reshape(len(codes), rows).T,
    )


def inner_rows(rows: int, split: int) -> NDArray[np.bool_]:
    """Mask of the training rows that are held back, ``[N]``: 15 % of them, the same for every peer."""
    held_back = np.zeros(rows, dtype=bool)
    held_back[np.random.default_rng([split, rows]).permutation(rows)[: round(INNER_SHARE * rows)]] = True
    return held_back


def task_of(features: Features, target: NDArray[np.float64], split: Split, number: int) -> TableTask:
    """The task of a peer for a split: training rows, test rows without targets, levels and seed."""
    return TableTask(
        training=Features(features.numbers[split.training], features.categories[split.training]),
        target=target[split.training],
        inner=inner_rows(len(split.training), number),
        test=Features(features.numbers[split.test], features.categories[split.test]),
        levels=np.array(LEVELS) / 100.0,
        seed=number,
    )


def score(answer: Answer, target: NDArray[np.float64], split: Split, inner: NDArray[np.bool_]) -> dict[str, Any]:
    """Scores of an answer.

    Returns:
        ``rows``; ``rmse``; ``raw`` and ``calibrated``, each the scores of `quantile_scores`, ``raw`` None for a peer
        without a distribution of its own; ``crps_closed`` for Normals, otherwise None; ``rounds``.
    """
    truth, inner_truth = target[split.test], target[split.training][inner]
    raw, base, held_back = answer.raw, answer.base, answer.inner
    if base.std is not None and held_back.std is not None:
        corrected = conformal_scaled(held_back.mean, held_back.std, inner_truth, base.mean, base.std)
    elif base.quantiles is not None and held_back.quantiles is not None:
        corrected = conformal_additive(held_back.quantiles, inner_truth, base.quantiles)
    else:
        raise AssertionError("an answer has quantiles or standard deviations")
    normals = raw is not None and raw.quantiles is None and raw.std is not None
    return {
        "rows": len(truth),
        "rmse": float(np.sqrt(np.mean((truth - (base if raw is None else raw).mean) ** 2))),
        "raw": None if raw is None else quantile_scores(_quantiles(raw), truth),
        "crps_closed": crps_of_normals(raw.mean, raw.std, truth)
        if normals and raw is not None and raw.std is not None
        else None,
        "calibrated": quantile_scores(corrected, truth),
        "rounds": answer.rounds,
    }


def _quantiles(predictive: Predictive) -> NDArray[np.float64]:
    if predictive.quantiles is not None:
        return predictive.quantiles
    if predictive.std is None:
        raise AssertionError("an answer has quantiles or standard deviations")
    return normal_quantiles(predictive.mean, predictive.std)


def _path(peer: Peer, dataset: str, results: Path) -> Path:
    return results / f"{peer.name}-{dataset}.json"


def _write(peer: Peer, dataset: str, results: Path, runs: dict[int, dict[str, Any]]) -> None:
    results.mkdir(parents=True, exist_ok=True)
    about = facts()
    kept = {
        "peer": peer.name,
        "set": dataset,
        "requirements": peer.requirements,
        "created": about["created"],
        "machine": about["machine"],
        "runs": [runs[number] for number in sorted(runs)],
    }
    path = _path(peer, dataset, results)
    temporary = path.with_suffix(".part")
    write_json(temporary, kept)
    temporary.replace(path)
