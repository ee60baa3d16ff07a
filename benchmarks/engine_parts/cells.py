"""Measures all systems on one network, in turns, for every cell: a number of draws and of rows."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.engine_parts.machine import copy_rate, product_rate
from benchmarks.engine_parts.reference import deviations, disagreement, exact_answers, independent_moments
from benchmarks.peers.engine_task import shown_rows
from benchmarks.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Self

    from benchmarks.peers.engine_task import EngineTask
    from benchmarks.systems import System

__all__ = ["Cell", "Found", "Rates", "measure", "too_large"]

DRAW_BYTES = 2**30
"""Cells with larger draws are left out: Murho keeps the draws, twice in this benchmark."""
HIDDEN_BYTES = 2**31
"""Systems that hold a layer's values under all draws at once are left out of cells where these are larger."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A number of draws and a number of rows.

    Attributes:
        samples: S.
        batch: B.
    """

    samples: int
    batch: int


@dataclass(slots=True)
class Rates:
    """The best rates of the machine so far.

    Attributes:
        product: Floating-point operations per second, from `product_rate`.
        copy: Bytes per second, from `copy_rate`.
    """

    product: float = 0.0
    copy: float = 0.0

    def measure(self) -> None:
        """Measures both rates again and keeps the higher ones."""
        self.product, self.copy = max(self.product, product_rate()), max(self.copy, copy_rate())


@dataclass(slots=True)
class Found:
    """The measurements of a system in a cell.

    Attributes:
        times: Kind of call → seconds, one number per round.
        first: Kind of call → seconds of the first call.
        answers: Answers for the compared rows, one per round.
        errors: Deviations of mean and std from an independent Monte Carlo run, in standard errors (`disagreement`).
        deviation: For Murho, kind of answer → largest deviation from double precision (`deviations`).
    """

    times: dict[str, list[float]] = field(default_factory=dict)
    first: dict[str, float] = field(default_factory=dict)
    answers: list[dict[str, Any]] = field(default_factory=list)
    errors: tuple[float, float] = (float("nan"), float("nan"))
    deviation: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, rounds: Sequence[dict[str, Any]]) -> Self:
        """Collects the replies of a process, one per round."""
        return cls(
            times={kind: [reply["times"][kind] for reply in rounds] for kind in rounds[0]["times"]},
            first=rounds[-1]["first"],
            answers=[reply["answers"] for reply in rounds],
        )


def too_large(system: System | None, task: EngineTask, cell: Cell) -> str | None:
    """The reason why a system, or every system if None, is left out of a cell; None if it is not left out."""
    if (needed := 4 * cell.samples * task.parameters) > DRAW_BYTES:
        return f"{cell.samples} draws are {needed / 2**30:.1f} GiB"
    hidden = 4 * cell.samples * cell.batch * max(task.hidden)
    if system is not None and system.peer.stacked and hidden > HIDDEN_BYTES:
        return f"a layer of all draws at once is {hidden / 2**30:.1f} GiB"
    return None


def measure(
    task: EngineTask,
    systems: Sequence[System],
    cells: Iterable[Cell],
    *,
    rounds: int,
    seconds: float,
    rates: Rates,
) -> Iterator[tuple[Cell, dict[str, Found], dict[str, str]]]:
    """Measures all systems on one network.

    Args:
        task: The network; a system changes it by its options.
        systems: The systems.
        cells: The cells.
        rounds: Turns of each system in every cell.
        seconds: Approximate length of a turn.
        rates: Rates of the machine, measured again before every cell.

    Yields:
        The cell; system → measurements; and system → reason why it was left out or failed. A system that failed once
        is in no later cell.
    """
    by_name = {system.name: system for system in systems}
    with Turns({name: partial(system.start, task) for name, system in by_name.items()}) as turns:
        for cell in cells:
            left_out = {name: reason for name, system in by_name.items() if (reason := too_large(system, task, cell))}
            rates.measure()
            request = {**asdict(cell), "seconds": seconds}
            answers = turns.ask(request, rounds=rounds, without=left_out)
            results = {name: Found.of(replies) for name, replies in answers.items()}
            _judge(task, by_name, cell, results)
            yield cell, results, left_out | turns.failed


def _judge(task: EngineTask, systems: dict[str, System], cell: Cell, results: dict[str, Found]) -> None:
    """Sets the errors of all systems, and Murho's deviations from double precision."""
    rows = task.rows(cell.batch)[shown_rows(cell.batch)]
    references = {}
    for name, result in results.items():
        system_task = systems[name].task_of(task)
        if system_task.noise not in references:
            references[system_task.noise] = independent_moments(system_task, rows)
        keeps = systems[name].peer.keeps_draws
        draws = cell.samples if keeps else cell.samples * len(result.answers)
        result.errors = disagreement(result.answers, draws, references[system_task.noise])
        if keeps:
            result.deviation = deviations(result.answers[-1], exact_answers(system_task, rows, cell.samples))
