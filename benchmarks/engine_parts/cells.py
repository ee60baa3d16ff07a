"""Measures one network: the processes of all systems take turns, for every number of draws and rows."""

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
"""Cells whose draws are larger are left out: Murho keeps them, twice in this benchmark."""
HIDDEN_BYTES = 2**31
"""Systems that hold the hidden values of all draws at once are left out of cells where a layer's are larger."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A number of draws and of rows.

    Attributes:
        samples: S.
        batch: B.
    """

    samples: int
    batch: int


@dataclass(slots=True)
class Rates:
    """The best that the machine has shown so far.

    Attributes:
        product: See `product_rate`.
        copy: See `copy_rate`.
    """

    product: float = 0.0
    copy: float = 0.0

    def measure(self) -> None:
        """Measures both once more."""
        self.product, self.copy = max(self.product, product_rate()), max(self.copy, copy_rate())


@dataclass(slots=True)
class Found:
    """What was found of a system in a cell.

    Attributes:
        times: Kind of call → seconds, one number a round.
        first: Kind of call → seconds of the very first.
        answers: Of the rows that are compared, one a round.
        errors: Of mean and std from another Monte Carlo, in standard errors.
        deviation: Kind of answer → from double precision, see `deviations`; of Murho.
    """

    times: dict[str, list[float]] = field(default_factory=dict)
    first: dict[str, float] = field(default_factory=dict)
    answers: list[dict[str, Any]] = field(default_factory=list)
    errors: tuple[float, float] = (float("nan"), float("nan"))
    deviation: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, rounds: Sequence[dict[str, Any]]) -> Self:
        """From what it said in every round."""
        return cls(
            times={kind: [said["times"][kind] for said in rounds] for kind in rounds[0]["times"]},
            first=rounds[-1]["first"],
            answers=[said["answers"] for said in rounds],
        )


def too_large(system: System | None, task: EngineTask, cell: Cell) -> str | None:
    """Why a system, or any of them (None), is left out of a cell; None: it is not."""
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
    """Measures a network.

    Args:
        task: The network; a system changes it by its options.
        systems: Of what.
        cells: Where.
        rounds: Turns of each in every cell.
        seconds: Of a turn, about.
        rates: Of the machine, measured once more before every cell.

    Yields:
        The cell; what was found, by the system's name; and, of systems that are left out or failed, why. A system
        that fails once is in no later cell.
    """
    by_name = {system.name: system for system in systems}
    with Turns({name: partial(system.start, task) for name, system in by_name.items()}) as turns:
        for cell in cells:
            left_out = {
                name: reason for name, system in by_name.items() if (reason := too_large(system, task, cell))
            }
            rates.measure()
            request = {**asdict(cell), "seconds": seconds}
            answers = turns.ask(request, rounds=rounds, without=left_out)
            found = {name: Found.of(said) for name, said in answers.items()}
            _judge(task, by_name, cell, found)
            yield cell, found, left_out | turns.failed


def _judge(task: EngineTask, systems: dict[str, System], cell: Cell, found: dict[str, Found]) -> None:
    rows = task.rows(cell.batch)[shown_rows(cell.batch)]
    others = {}
    for name, one in found.items():
        own = systems[name].task_of(task)
        if own.noise not in others:
            others[own.noise] = independent_moments(own, rows)
        keeps = systems[name].peer.keeps_draws
        draws = cell.samples if keeps else cell.samples * len(one.answers)
        one.errors = disagreement(one.answers, draws, others[own.noise])
        if keeps:
            one.deviation = deviations(one.answers[-1], exact_answers(own, rows, cell.samples))
