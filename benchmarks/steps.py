"""`python -m benchmarks.steps`: time of an optimiser step of Bayes by Backprop in Murho and its peers.

All have the same networks and minibatches. Each system is a process of its own, in an environment of its own, and
computes with one thread. The processes take turns: in every round each of them takes steps for a short while, so that
other load on the machine affects all of them alike. Murho trains M members in one step; the times that are compared are
per member.
"""

from __future__ import annotations

import statistics
import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.peers import Peer, peers_of
from benchmarks.peers.networks import LEARNING_STEPS, NOISE, StepTask
from benchmarks.processes import SystemProcess, Turns, add_cache
from benchmarks.results import Report, add_counts, add_names, command, ratio, table

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

PEERS = peers_of("step")
MURHO = {f"Murho, M = {members}": members for members in (1, 5, 10)}
"""Members of Murho's steps; `murho train` fits 5 at once by default, twice."""
REFERENCE = "Murho, M = 5"
SECONDS = 0.5
"""Length of a system's turn in a round."""
CASES = {
    f"{len(hidden)}x{hidden[0]}-{batch}": StepTask(hidden, batch=batch)
    for hidden in ((50,), (64, 64), (256, 256))
    for batch in (32, 128)
}
"""Name on the command line, layers x width - rows → network and batch size."""


def measure(case: StepTask, options: argparse.Namespace) -> dict[str, Report]:
    """System → microseconds a step and round, and ``rmse`` in standard deviations; without systems that failed."""
    own = {name: (Peer("step", name, name, "murho_fit"), replace(case, members=each)) for name, each in MURHO.items()}
    tasks = own | {name: (PEERS[name], case) for name in options.systems}
    start = {name: partial(SystemProcess, peer, task, cache=options.cache) for name, (peer, task) in tasks.items()}
    with Turns(start) as turns:
        answers = turns.ask(SECONDS, rounds=options.rounds)
    return {
        tasks[name][0].title: {
            "members": tasks[name][1].members,
            "wall_us": [1e6 * turn["wall"] / turn["steps"] for turn in of],
            "rmse": turns.ready[name]["rmse"],
        }
        for name, of in answers.items()
    }


def render(results: Mapping[str, Report]) -> str:
    """Return the table of a case."""
    rows, times = [], {title: [each / of["members"] for each in of["wall_us"]] for title, of in results.items()}
    for title, of in results.items():
        each = statistics.median(times[title])
        to = f"{ratio(times[title], times[REFERENCE]):.2f}" if REFERENCE in times else "-"
        rows.append([title, f"{each * of['members']:.0f}", f"{each:.0f}", to, f"{of['rmse']:.2f}"])
    return table(["system", "us/step", "us/member", "to Murho's", "RMSE"], rows)


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_names(parser, systems=PEERS, cases=CASES)
    add_counts(parser, rounds=(7, "turns of each system"))
    add_cache(parser)


def run(options: argparse.Namespace) -> Report:
    """Measure and print."""
    print("Ratios are of times per member, medians of the rounds, to Murho with 5 members. One thread each.")
    print(f"RMSE: after {LEARNING_STEPS} steps, in standard deviations of the target; the noise is {NOISE}.")
    found = {}
    for name in options.cases:
        found[name] = measure(CASES[name], options)
        print(f"\n{name}\n{render(found[name])}", flush=True)
    return {"cases": found}


main = command(__doc__, add, run)

if __name__ == "__main__":
    sys.exit(main())
