"""`python -m benchmarks.engine`: time and accuracy of answers, beside libraries with the same posterior.

Each system is a process of its own, in an environment of its own. The processes take turns: in every round each of them
answers for a short while, so that other load on the machine affects all of them alike. Murho answers by its public
method `Posterior.predict_encoded`: mean, both parts of the std, three percentiles. Peers give mean and std of the
function values alone, and in a second kind of call also percentiles of draws with noise. So Murho is timed without
percentiles too. Murho keeps the draws of a seed; calls with new draws are timed as well.
"""

from __future__ import annotations

import statistics
import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks.peers import Peer, peers_of
from benchmarks.peers.murho_predictions import posterior_of
from benchmarks.peers.networks import EngineTask, shown_rows
from benchmarks.processes import SystemProcess, Turns, add_cache
from benchmarks.results import Report, add_counts, add_names, command, numbers, positive, ratio, table
from murho.model.predictive.forward import TorchEngine, forward
from murho.model.predictive.plans import DrawnRows
from murho.model.predictive.prediction import PredictOptions

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from murho.model.arrays import Doubles, Floats

PEERS = peers_of("engine")
NOISES = ("fixed", "heteroscedastic", "mixture")
MURHO = {f"Murho, {noise}": Peer("engine", f"Murho, {noise}", "", "murho_predictions") for noise in NOISES}
REFERENCE = "Murho, fixed"
"""The system with known noise, as in the peers."""
SECONDS = 0.2
"""Length of a system's turn in a round; a call that takes longer is made once."""
DRAW_BYTES, HIDDEN_BYTES = 2**30, 2**31
"""Larger draws are left out, and peers that hold more of a layer's values under all draws at once."""
REFERENCE_DRAWS = 4096
"""Murho's draws of another seed, by which mean and std of all systems are judged."""
LARGEST_ERROR = 4.0
"""Most standard errors at which a mean or a std still agrees."""
EXPLANATION = """Medians of the rounds, ms; ratios are to Murho's whole answer with kept draws, in the same round.
"call" is the whole answer of Murho (mean, both parts of the std, three percentiles), mean and std alone of a peer;
"percentiles": with draws of an observation and their percentiles, by a sort. A first call is in no median.
s.e.: deviation of mean and std from 4,096 draws of another seed, root mean square over rows, in standard errors.
exact: largest deviation from double precision for the same draws, relative to the larger of value and std."""


def measure(task: EngineTask, names: Sequence[str], options: argparse.Namespace) -> list[Report]:
    """All systems on one network, a report for each S and B: ``systems``, name → numbers, and more."""
    systems = MURHO | {name: PEERS[name] for name in names}
    tasks = {name: replace(task, noise=name.partition(", ")[2]) for name in MURHO}
    tasks |= dict.fromkeys(names, task)
    start = {
        name: partial(SystemProcess, systems[name], tasks[name], cache=options.cache, threads=task.threads)
        for name in systems
    }
    found = []
    with Turns(start) as turns:
        for samples in options.samples:
            for batch in options.batches:
                without = [name for name, peer in systems.items() if too_large(peer, task, samples, batch)]
                answers = turns.ask((batch, samples, SECONDS), rounds=options.rounds, without=without)
                judged = {name: _judged(tasks[name], samples, batch, replies) for name, replies in answers.items()}
                found.append(
                    {
                        "net": f"{len(task.hidden)}x{task.hidden[0]}",
                        "samples": samples,
                        "batch": batch,
                        "systems": judged,
                        "left_out": [*without, *turns.failed],
                    }
                )
    return found


def too_large(peer: Peer, task: EngineTask, samples: int, batch: int) -> bool:
    """Whether a system is left out of a case."""
    hidden = 4 * samples * batch * max(task.hidden)
    return 4 * samples * task.parameters > DRAW_BYTES or (peer.stacked and hidden > HIDDEN_BYTES)


def _judged(task: EngineTask, samples: int, batch: int, replies: Sequence[Report]) -> Report:
    """Milliseconds of each kind of call in each round, and how far the answers are from the truth."""
    rows, ours = task.rows_of(batch)[shown_rows(batch)], "draws anew" in replies[0]["times"]
    answers = [reply["answers"] for reply in replies]
    draws = samples if ours else samples * len(answers)
    errors = disagreement(answers, draws, exact_answers(task, rows, REFERENCE_DRAWS, seed=1))
    report: Report = {
        "ms": {kind: [1e3 * reply["times"][kind] for reply in replies] for kind in replies[0]["times"]},
        "errors": errors,
        "agrees": max(errors) <= LARGEST_ERROR,
    }
    return report | ({"deviation": deviations(answers[-1], exact_answers(task, rows, samples))} if ours else {})


def exact_answers(task: EngineTask, rows: Floats, samples: int, seed: int = 0) -> Mapping[str, NDArray[Any]]:
    """Murho's answer for rows ``[B, D]`` from the draws of a seed, all in double precision."""
    posterior = posterior_of(task, engine="torch")
    draws = posterior.draws.first(samples, seed)
    outputs = forward(draws.double(), torch.from_numpy(rows).double())
    plan = posterior.target.plan(PredictOptions(samples=samples), None, posterior.device)
    only_widen = torch.zeros(len(rows), dtype=torch.bool)
    return DrawnRows(outputs, draws.members, only_widen, posterior.target, TorchEngine()).answer(plan)


def deviations(answer: Mapping[str, Any], exact: Mapping[str, Doubles]) -> dict[str, float]:
    """Kind of answer → largest ``|answer - exact| / max(|exact|, std)``."""
    largest = {}
    for name in ("mean", "std", "percentiles"):
        values = exact[name]
        scale = np.maximum(np.abs(values), exact["std"][:, None] if values.ndim == 2 else exact["std"])
        largest[name] = float((np.abs(np.asarray(answer[name]) - values) / scale).max())
    return largest


def disagreement(
    answers: Sequence[Mapping[str, Any]], draws: int, reference: Mapping[str, NDArray[Any]]
) -> tuple[float, float]:
    """Deviations of mean and std of the function values from those of `REFERENCE_DRAWS` draws.

    Args:
        answers: ``mean`` and ``epistemic_std``, ``[B]`` each, of one or more calls.
        draws: Number of draws of all calls together; calls with the same draws count once.
        reference: The same of the reference.

    Returns:
        Root mean squares over the rows of the differences of the means, and of the logarithms of the stds, in standard
        errors of a Gaussian: about 1, and rarely above 3, if the two agree.
    """
    means, stds = (np.array([each[name] for each in answers], dtype=np.float64) for name in ("mean", "epistemic_std"))
    mean = means.mean(axis=0)
    std = np.sqrt((stds**2 + means**2).mean(axis=0) - mean**2)
    share = 1.0 / draws + 1.0 / REFERENCE_DRAWS
    of_mean = (mean - reference["mean"]) / (reference["epistemic_std"] * np.sqrt(share))
    of_std = np.log(std / reference["epistemic_std"]) / np.sqrt(0.5 * share)
    return float(np.sqrt(np.mean(of_mean**2))), float(np.sqrt(np.mean(of_std**2)))


def _systems_table(cells: Sequence[Report]) -> str:
    rows = []
    for cell in cells:
        reference = cell["systems"].get(REFERENCE)
        for name, of in cell["systems"].items():
            for kind, ms in of["ms"].items():
                to = f"{ratio(ms, reference['ms']['call']):.3g}" if reference else "-"
                errors = [f"{error:.1f}" for error in of["errors"]] if kind == "call" else ["", ""]
                exact = f"{max(of['deviation'].values()):.0e}" if kind == "call" and "deviation" in of else ""
                line = [f"{name}, {kind}", str(cell["batch"]), f"{statistics.median(ms):.3g}", to]
                rows.append([*line, *errors, exact])
    return table(["system, kind of call", "B", "ms", "ratio", "mean, s.e.", "std, s.e.", "exact"], rows)


def best_of(cell: Mapping[str, Any], theirs: str, ours: str) -> tuple[str, float]:
    """Return the fastest peer that agrees, and how many times as long as Murho its calls take."""
    peers = {name: of["ms"][theirs] for name, of in cell["systems"].items() if name in PEERS and of["agrees"]}
    best = min(peers, key=lambda name: statistics.median(peers[name]))
    return best, ratio(peers[best], cell["systems"][REFERENCE]["ms"][ours])


def _best_table(cells: Sequence[Report]) -> str:
    rows = []
    for cell in cells:
        agree = any(name in PEERS and of["agrees"] for name, of in cell["systems"].items())
        if agree and REFERENCE in cell["systems"]:
            ms = statistics.median(cell["systems"][REFERENCE]["ms"]["call"])
            pairs = [best_of(cell, *kinds) for kinds in (("percentiles", "call"), ("call", "mean and std"))]
            both = [text for name, times in pairs for text in (name, f"{times:.2g}")]
            rows.append([cell["net"], str(cell["samples"]), str(cell["batch"]), f"{ms:.3g}", *both])
    headers = ["network", "S", "B", "Murho, ms", "percentiles: fastest", "times as long", "mean, std: fastest"]
    return table([*headers, "times as long"], rows)


def _nets(text: str) -> list[tuple[int, ...]]:
    return [
        (positive(width),) * positive(layers) for layers, _, width in (name.partition("x") for name in text.split(","))
    ]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    nets = "1x50,2x64,2x256"
    add_names(parser, systems=PEERS)
    parser.add_argument("--nets", type=_nets, default=_nets(nets), metavar="LxW", help=f"layers x width ({nets})")
    parser.add_argument("--batches", type=numbers, default=[1, 32, 1000], metavar="N,N", help="rows a call (1,32,1000)")
    parser.add_argument("--samples", type=numbers, default=[256], metavar="N,N", help="draws (256)")
    add_counts(parser, rounds=(5, "turns of each system"), threads=(1, "of each system"))
    add_cache(parser)


def run(options: argparse.Namespace) -> Report:
    """Measure and print."""
    torch.set_num_threads(options.threads)
    print(EXPLANATION)
    tasks = [EngineTask(hidden, options.threads) for hidden in options.nets]
    cells: list[Report] = []
    for task in tasks:
        found = measure(task, options.systems, options)
        print(f"\n{task.inputs}-{'-'.join(map(str, task.hidden))}-1\n{_systems_table(found)}", flush=True)
        cells += found
    print(f"\nMurho beside the fastest that agrees:\n{_best_table(cells)}")
    return {"cells": cells}


main = command(__doc__, add, run)

if __name__ == "__main__":
    sys.exit(main())
