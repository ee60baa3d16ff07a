"""Time and accuracy of Murho's answers, beside seven libraries with the same network and posterior.

Each system is a process of its own, in an environment of its own. The processes take turns: in every round each of them
answers for a short while, so that other load on the machine affects all of them alike. Murho answers by its public
method `Posterior.predict_encoded`: mean, both parts of the std, three percentiles. Peers give mean and std of the
function values alone, and in a second kind of call also percentiles of draws with noise. So Murho is timed without
percentiles too. Murho keeps the draws of a seed; calls with new draws are timed as well.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.command_line import (
    add_cache,
    add_output,
    add_rounds,
    add_systems,
    numbers,
    pairs,
    positive,
)
from benchmarks.engine_parts.cells import Cell, Rates, measure, too_large
from benchmarks.engine_parts.memory import memory_of_a_call, memory_of_a_file
from benchmarks.engine_parts.report import (
    best_peer_table,
    memory_table,
    murho_table,
    peers_table,
    with_rates,
    written,
)
from benchmarks.peers import Library, Peer, peers_of
from benchmarks.peers.engine_task import ACTIVATION, INPUTS, EngineTask
from benchmarks.peers.network_task import NOISE
from benchmarks.results import facts, table, write_json
from benchmarks.systems import System, peer_systems

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["main", "murho_systems"]

PEERS = peers_of("engine")
MURHO = Library("murho_predictions")
NETS = "1x50,2x64,2x256"
BATCHES = "1,32,1000"
SAMPLES = "256"
SECONDS = 0.2
"""Length of a system's turn in a round; a call that takes longer is made once."""
EXPLANATION = """
Medians of the rounds; ratios are to Murho's whole answer with kept draws, in the same round. "draws anew": a new seed
in each call, because peers make new draws in each call; "mean and std": the answer without percentiles; "three
thresholds too": with exceedance as well. A peer's line is mean and std alone; "percentiles too": with draws of an
observation and their percentiles, by a sort.
first: seconds of the first call, which compiles, or makes the draws that are kept; it is in no median.
s.e.: deviation of mean and std from an independent Monte Carlo run, root mean square over rows, in standard errors.
"first" and "s.e." are those of the worst batch."""


def murho_systems() -> list[System]:
    """Murho with known noise, as in the peers, and with both kinds of learned noise."""
    known = Peer("engine", "murho", "Murho", MURHO, keeps_draws=True)
    learned = (
        replace(known, name=f"murho-{noise}", title=f"Murho, {noise}", options={"noise": noise})
        for noise in ("heteroscedastic", "mixture")
    )
    return [System(peer) for peer in (known, *learned)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    options = _options(arguments)
    torch.set_num_threads(options.threads)
    peers, missing = peer_systems((PEERS[name] for name in options.systems), options.cache)
    for name, reason in missing.items():
        print(f"{name} is left out: {reason}", flush=True)
    report: dict[str, Any] = {
        "benchmark": "engine",
        **facts(),
        "rounds": options.rounds,
        "seconds_a_turn": SECONDS,
        "inputs": INPUTS,
        "activation": ACTIVATION,
        "noise": NOISE,
        "requirements": {system.name: list(system.peer.library.packages) for system in peers},
        "left_out": missing,
        "cells": [],
    }
    machine = report["machine"]
    print(f"{machine['processor']}, {machine['cores']} cores; threads: {options.threads}; commit {report['commit']}")
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / "engine.json"
    _speed(options, [*murho_systems(), *peers], report, path)
    if options.memory:
        _memory(options, report)
    write_json(path, report)
    return 0


def _speed(options: argparse.Namespace, systems: list[System], report: dict[str, Any], path: Path) -> None:
    titles, rates = {system.name: system.peer.title for system in systems}, Rates()
    print(EXPLANATION)
    raw: list[dict[str, Any]] = []
    for hidden in options.nets:
        task = EngineTask(hidden, threads=options.threads)
        wanted = [Cell(samples, batch) for samples in options.samples for batch in options.batches]
        for samples in options.samples:
            if reason := too_large(None, task, Cell(samples, 1)):
                print(f"\n{_layers(hidden)}, S = {samples} is left out: {reason}", flush=True)
        cells = [cell for cell in wanted if too_large(None, task, cell) is None]
        measured = measure(task, systems, cells, rounds=options.rounds, seconds=SECONDS, rates=rates)
        ready: list[dict[str, Any]] = []
        for cell, results, left_out in measured:
            ready.append(written(task, cell, results, left_out))
            report["cells"] = [with_rates(one, rates) for one in (*raw, *ready)]
            report["rates"] = {"product_flops": rates.product, "copy_bytes": rates.copy}
            write_json(path, report)
            if cell.batch != options.batches[-1]:
                continue
            print(f"\n{_layers(hidden)}, S = {cell.samples}")
            same_samples = [one for one in ready if one["samples"] == cell.samples]
            print(peers_table(same_samples, titles), flush=True)
            for name, reason in {name: why for one in same_samples for name, why in one["left_out"].items()}.items():
                print(f"{name} is left out where it has no number: {reason}", flush=True)
        raw += ready
    if not raw:
        return
    if best := best_peer_table(report["cells"], titles):
        print(f"\nMurho beside the fastest that agrees:\n{best}")
    print(f"\nMurho alone. The machine's best: {rates.product / 1e9:.0f} GFLOP/s (float32 products of 2048 x 2048),")
    print(f"{rates.copy / 1e9:.0f} GB/s (copy of 256 MiB, read and written). streams: time over a copy of all draws;")
    print("after forward: share of the call after the network's forward pass; then the largest deviations from double")
    print("precision, relative to the larger of value and std.")
    print(murho_table(report["cells"], titles))


def _memory(options: argparse.Namespace, report: dict[str, Any]) -> None:
    tasks = [EngineTask(hidden, threads=options.threads) for hidden in options.nets]
    cells = [
        {
            "net": _name(task.hidden),
            "samples": samples,
            "batch": batch,
            "draw_bytes": 4 * samples * task.parameters,
            "memory_bytes": memory_of_a_call(task, batch, samples),
        }
        for task in tasks
        for samples in options.samples
        for batch in options.batches
        if too_large(None, task, Cell(samples, batch)) is None
    ]
    print(
        "\nMemory of one call that makes its draws, above a process that has imported all modules and holds the rows."
    )
    print(memory_table(cells), flush=True)
    report["memory"] = cells
    hidden, samples = options.nets[0], options.samples[0]
    file = memory_of_a_file(EngineTask(hidden), options.rows, samples)
    report["file"] = {"net": _name(hidden), **file}
    print(f"\nmurho predict, {_layers(hidden)}, S = {samples}, Parquet to Parquet")
    headers = ["rows", "seconds", "rows a second", "MiB above one row's", "peak, MiB"]
    line = [f"{options.rows:,}", f"{file['seconds']:.1f}", f"{file['rows_a_second']:,.0f}"]
    print(table(headers, [[*line, f"{file['memory'] / 2**20:.0f}", f"{file['peak'] / 2**20:.0f}"]]), flush=True)


def _name(hidden: tuple[int, ...]) -> str:
    return f"{len(hidden)}x{hidden[0]}"


def _layers(hidden: tuple[int, ...]) -> str:
    return f"{INPUTS}-{'-'.join(map(str, hidden))}-1"


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.engine",
        description="Time and accuracy of Murho's answers, beside libraries with the same network and posterior.",
    )
    add_systems(parser, PEERS)
    parser.add_argument(
        "--nets", type=_nets, default=_nets(NETS), metavar="LxW", help=f"layers x width (default {NETS})"
    )
    for name, default, what in (("batches", BATCHES, "rows a call"), ("samples", SAMPLES, "draws")):
        parser.add_argument(
            f"--{name}",
            type=numbers,
            default=numbers(default),
            metavar="N,N",
            help=f"{what} (default {default})",
        )
    add_rounds(parser, 5)
    parser.add_argument("--threads", type=positive, default=1, metavar="N", help="threads of each system (default 1)")
    parser.add_argument("--memory", action="store_true", help="measure memory as well, and `murho predict` on a file")
    parser.add_argument(
        "--rows", type=positive, default=1_000_000, metavar="N", help="rows of that file (default 1000000)"
    )
    add_output(parser)
    add_cache(parser)
    return parser.parse_args(arguments)


def _nets(text: str) -> list[tuple[int, ...]]:
    return [(width,) * layers for layers, width in pairs("network", "layers x width, such as 2x64")(text)]


if __name__ == "__main__":
    sys.exit(main())
