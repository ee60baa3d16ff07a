"""`python -m benchmarks.mushroom --data DIR`: decisions by Thompson sampling, beside other agents.

The mushroom bandit of Blundell et al. (2015): to eat or to leave 50,000 mushrooms, one after the other, and to learn
from what was eaten which ones are poisonous. Beside it the wheel bandit of Riquelme et al. (2018), where linear agents
fail. Prints the cumulative regret against an oracle that knows the expected rewards, and draws it. Finished runs are
kept in ``OUTPUT/bandits``.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import ExitStack
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.bandit_parts.agents import AGENTS
from benchmarks.bandit_parts.problems import FILE, mushrooms, read_mushrooms, wheel
from benchmarks.bandit_parts.report import figure, render, summary
from benchmarks.bandit_parts.runs import finished_run, peer_agent, run
from benchmarks.command_line import add_cache, add_output, positive, some_of
from benchmarks.figures import save
from benchmarks.peers import peers_of
from benchmarks.processes import NO_LIMIT, SystemProcess
from benchmarks.results import facts, write_json
from benchmarks.systems import peer_systems
from murho.model.errors import MurhoError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.bandit_parts.problems import Problem

__all__ = ["DELTAS", "main"]

DELTAS = (0.5, 0.7, 0.9, 0.95)
PROBLEMS = ("mushroom", *(f"wheel-{delta:g}" for delta in DELTAS))


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the tables, draws the figures and writes the JSON; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mushroom", description=str(__doc__).splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="with the folder mushroom")
    known = (*AGENTS, *peers_of("bandit"))
    parser.add_argument(
        "--problems",
        type=some_of(PROBLEMS, "problem"),
        default=PROBLEMS,
        metavar="NAMES",
        help=f"some of {','.join(PROBLEMS)} (default all)",
    )
    parser.add_argument(
        "--agents",
        type=some_of(known, "agent"),
        default=known,
        metavar="NAMES",
        help=f"some of {','.join(known)} (default all)",
    )
    parser.add_argument("--seeds", type=positive, default=10, metavar="N", help="seeds 0 to N - 1 (default 10)")
    parser.add_argument("--decisions", type=positive, default=50_000, metavar="T", help="default 50000")
    kept = parser.add_mutually_exclusive_group()
    kept.add_argument(
        "--fresh", action="store_true", help="ignore finished runs on disk, as after a change of the code"
    )
    kept.add_argument("--only-finished", action="store_true", help="show the finished runs on disk, and run nothing")
    add_cache(parser)
    add_output(parser)
    options = parser.parse_args(arguments)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a second thread gains nothing on such networks
    try:
        makers = {name: _maker(name, options.data, options.decisions) for name in options.problems}
        measured = _measure(makers, options)
    except MurhoError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        torch.set_num_threads(threads)
    titles = {name: title for name, (title, _) in AGENTS.items()}
    titles |= {name: peer.title for name, peer in peers_of("bandit").items()}
    options.output.mkdir(parents=True, exist_ok=True)
    report: dict[str, Any] = {}
    for name, runs in measured.items():
        report[name] = {agent: summary(finished) for agent, finished in runs.items()}
        print(f"\n{render(f'{name}, {options.decisions:,} decisions', report[name], titles)}")
        path = options.output / f"{name}.png"
        save(figure(f"{name}: cumulative regret", runs, titles, options.decisions), path)
        print(f"drew {path}")
    path = options.output / "bandits.json"
    write_json(path, {"benchmark": "mushroom", **facts(), "decisions": options.decisions, "problems": report})
    print(f"wrote {path}")
    return 0


def _maker(name: str, data: Path, decisions: int) -> Callable[[int], Problem]:
    """The function from a seed to a problem."""
    if name == "mushroom":
        features, poisonous = read_mushrooms(data / FILE)
        return partial(mushrooms, features, poisonous, decisions)
    return partial(wheel, float(name.removeprefix("wheel-")), decisions)


def _measure(
    makers: dict[str, Callable[[int], Problem]], options: argparse.Namespace
) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Problem → agent → its runs, one for each seed; peers whose environment can't be made are left out, and named."""
    wanted = [peer for name, peer in peers_of("bandit").items() if name in options.agents and not options.only_finished]
    systems, missing = peer_systems(wanted, options.cache)
    for name, reason in missing.items():
        print(f"without {name}: {reason}", file=sys.stderr)
    folder = options.output / "bandits"
    measured: dict[str, dict[str, list[dict[str, Any]]]] = {name: {} for name in makers}
    with ExitStack() as stack:
        agents = {name: agent for name, (_, agent) in AGENTS.items()}
        for system in systems:
            command = system.command(json.dumps(dict(system.peer.options)))
            process = SystemProcess(system.name, command, limit=NO_LIMIT)
            agents[system.name] = peer_agent(stack.enter_context(process))
        for (problem, make), name in product(makers.items(), options.agents):
            for seed in range(options.seeds):
                made = make(seed)
                done = None if options.fresh else finished_run(name, made, seed, folder)
                if done is None and name in agents and not options.only_finished:
                    done = run(name, made, seed, folder, agents[name])
                    print(_line(done), file=sys.stderr, flush=True)
                if done is not None:
                    measured[problem].setdefault(name, []).append(done)
    return measured


def _line(done: dict[str, Any]) -> str:
    return (
        f"{done['problem']} {done['agent']} seed {done['seed']}: regret {done['regret']:,.0f} of "
        f"{done['uniform']:,.0f} for uniform, {done['seconds']:.0f} s"
    )


if __name__ == "__main__":
    sys.exit(main())
