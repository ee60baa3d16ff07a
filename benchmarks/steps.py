"""Time of an optimiser step of Bayes by Backprop in Murho and its peers, for the same networks and minibatches.

Each system is a process of its own, in an environment of its own, and computes with one thread. The processes take
turns: in every round each of them takes steps for a short while, so that other load on the machine affects all of them
alike. Murho trains M members in one step; the times that are compared are per member.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.command_line import add_cache, add_output, add_rounds, add_systems, some_of
from benchmarks.peers import Library, Peer, peers_of
from benchmarks.peers.network_task import NOISE
from benchmarks.peers.step_task import LEARNING_STEPS, StepTask
from benchmarks.results import facts, table, write_json
from benchmarks.systems import System, peer_systems
from benchmarks.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["CASES", "Measured", "main", "measure"]

PEERS = peers_of("step")
MURHO = Library("murho_fit")
MEMBERS = (1, 5, 10)
"""Members of Murho's steps; `murho train` fits 5 at once by default, twice."""
REFERENCE = "murho-5"
SECONDS = 0.5
"""Length of a system's turn in a round."""


CASES = {
    f"{len(hidden)}x{hidden[0]}-{batch}": StepTask(hidden, batch)
    for hidden in ((50,), (64, 64), (256, 256))
    for batch in (32, 128)
}
"""Name on the command line, layers x width - rows → network and batch size."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The measurements of a system.

    Attributes:
        members: M.
        wall: Microseconds per step, one number per round.
        processor: Microseconds of processor time of all threads per step, one number per round.
        rmse: RMSE of the mean after `LEARNING_STEPS` steps, in standard deviations of the target; the noise is `NOISE`.
        memory: Peak resident memory above the memory after the imports, bytes.
        peak: Peak resident memory, bytes.
    """

    members: int
    wall: list[float]
    processor: list[float]
    rmse: float
    memory: int
    peak: int

    @property
    def learns(self) -> bool:
        """Whether the mean explains at least three quarters of the variance after the steps."""
        return self.rmse < 0.5

    def to_json(self) -> dict[str, Any]:
        """The JSON object in ``steps.json``."""
        return {
            "members": self.members,
            "wall_us": [round(value, 2) for value in self.wall],
            "processor_us": [round(value, 2) for value in self.processor],
            "rmse": round(self.rmse, 4),
            "learns": self.learns,
            "memory_bytes": self.memory,
            "peak_memory_bytes": self.peak,
        }


def murho_systems() -> list[System]:
    """Murho with 1, 5 and 10 members."""
    return [
        System(Peer("step", f"murho-{members}", f"Murho, M = {members}", MURHO, {"members": members}))
        for members in MEMBERS
    ]


def measure(
    case: StepTask, systems: Sequence[System], *, rounds: int, seconds: float = SECONDS
) -> tuple[dict[str, Measured], dict[str, str]]:
    """Measures all systems on one network and batch size.

    Args:
        case: The network and the batch size; a system changes them by its options.
        systems: The systems.
        rounds: Turns of each system.
        seconds: Approximate length of a turn.

    Returns:
        System → measurements; and system → reason of its failure. A system that failed in any round has no
        measurements.
    """
    with Turns({system.name: partial(system.start, case) for system in systems}) as turns:
        answers = turns.ask({"seconds": seconds}, rounds=rounds)
        ready = turns.ready
    results = {
        system.name: Measured(
            members=system.task_of(case).members,
            wall=[1e6 * turn["wall"] / turn["steps"] for turn in answers[system.name]],
            processor=[1e6 * turn["processor"] / turn["steps"] for turn in answers[system.name]],
            rmse=ready[system.name]["rmse"] / ready[system.name]["spread"],
            memory=answers[system.name][-1]["memory"],
            peak=answers[system.name][-1]["peak"],
        )
        for system in systems
        if system.name in answers
    }
    return results, turns.failed


def ratio(measured: Measured, reference: Measured) -> float:
    """Time per member over the reference's time per member, median of the rounds."""
    return statistics.median(
        (mine / measured.members) / (other / reference.members)
        for mine, other in zip(measured.wall, reference.wall, strict=True)
    )


def shown(results: dict[str, Measured], titles: dict[str, str]) -> str:
    """The table of a case."""
    reference = results.get(REFERENCE)
    rows = []
    for name, measured in results.items():
        step, processor = statistics.median(measured.wall), statistics.median(measured.processor)
        rows.append(
            [
                titles[name] + ("" if measured.learns else " (does not learn)"),
                f"{step:.0f}",
                f"{step / measured.members:.0f}",
                "-" if reference is None else f"{ratio(measured, reference):.2f}",
                f"{processor / measured.members:.0f}",
                f"{measured.rmse:.2f}",
                f"{measured.memory / 2**20:.0f}",
                f"{measured.peak / 2**20:.0f}",
            ]
        )
    headers = ["system", "us/step", "us/member", "to Murho's", "CPU us/member", "RMSE", "MiB", "with imports"]
    return table(headers, rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.steps",
        description="Time of one optimiser step of Bayes by Backprop in Murho and its peers.",
    )
    add_systems(parser, PEERS)
    parser.add_argument(
        "--cases",
        type=some_of(CASES, "case"),
        default=list(CASES),
        metavar="NAMES",
        help=f"some of {','.join(CASES)} (default all)",
    )
    add_rounds(parser, 7)
    add_output(parser)
    add_cache(parser)
    options = parser.parse_args(arguments)
    peers, missing = peer_systems((PEERS[name] for name in options.systems), options.cache)
    for name, reason in missing.items():
        print(f"{name} is left out: {reason}", flush=True)
    systems = [*murho_systems(), *peers]
    titles = {system.name: system.peer.title for system in systems}
    kept: dict[str, Any] = {
        "benchmark": "steps",
        **facts(),
        "threads": 1,
        "rounds": options.rounds,
        "seconds_a_turn": SECONDS,
        "learning_steps": LEARNING_STEPS,
        "noise": NOISE,
        "requirements": {system.name: list(system.peer.library.packages) for system in peers},
        "left_out": missing,
        "cases": [],
    }
    print("Ratios are of times per member, medians of the rounds, to Murho with 5 members. One thread each.")
    print(f"RMSE: after {LEARNING_STEPS} steps, in standard deviations of the target; the noise is {NOISE}.")
    options.output.mkdir(parents=True, exist_ok=True)
    for name in options.cases:
        case = CASES[name]
        results, failed = measure(case, systems, rounds=options.rounds)
        print(f"\n8-{'-'.join(map(str, case.hidden))}-1, {case.batch} rows a step", flush=True)
        print(shown(results, titles), flush=True)
        for system, reason in failed.items():
            print(f"{system} is left out: {reason}", flush=True)
        kept["cases"].append(
            {
                "case": name,
                "hidden": list(case.hidden),
                "batch": case.batch,
                "systems": {system: measured.to_json() for system, measured in results.items()},
                "ratios": {
                    system: round(ratio(measured, results[REFERENCE]), 3) for system, measured in results.items()
                }
                if REFERENCE in results
                else {},
                "failed": failed,
            }
        )
        write_json(options.output / "steps.json", kept)
    return 0


if __name__ == "__main__":
    sys.exit(main())
