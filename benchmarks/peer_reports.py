"""The peers that a benchmark of tables shows: chosen by its options, their scores read from disk or measured."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from benchmarks.command_line import positive
from benchmarks.peer_runs import kept_runs, run_peer
from benchmarks.peers import RESULTS
from murho.model.errors import OptionError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from benchmarks.datasets import DataSet
    from benchmarks.peer_runs import MakeTrials
    from benchmarks.peers import Peer

__all__ = ["add_peer_options", "chosen_peers", "reports_of_peers", "title_of"]


def add_peer_options(parser: argparse.ArgumentParser, peers: Mapping[str, Peer]) -> None:
    """Adds ``--splits``, ``--peers``, ``--only-peers``, ``--only-murho``, ``--kept-peers`` and ``--rerun-peers``."""
    parser.add_argument("--splits", type=positive, default=5, metavar="N", help="the first N splits (default 5)")
    parser.add_argument("--peers", metavar="NAMES", help=f"some of {','.join(peers)} (default all)")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--only-peers", action="store_true", help="do not fit Murho")
    only.add_argument("--only-murho", action="store_true", help="neither show nor run peers")
    parser.add_argument("--kept-peers", action="store_true", help="show peers' kept scores; run no peer")
    parser.add_argument("--rerun-peers", action="store_true", help="measure peers anew")


def chosen_peers(options: argparse.Namespace, peers: Mapping[str, Peer]) -> list[str]:
    """Names of the peers that the options choose.

    Raises:
        OptionError: One is unknown.
    """
    if options.only_murho:
        return []
    if options.peers is None:
        return list(peers)
    chosen = [name.strip() for name in options.peers.split(",") if name.strip()]
    for name in chosen:
        if name not in peers:
            raise OptionError(f"--peers: {name!r} is none of {', '.join(peers)}")
    return chosen


def title_of(system: str, peers: Mapping[str, Peer]) -> str:
    """What tables call a system: a peer's title, or the name itself."""
    return peers[system].title if system in peers else system


def reports_of_peers(
    options: argparse.Namespace,
    datasets: Sequence[DataSet],
    peers: Mapping[str, Peer],
    trials: MakeTrials | None = None,
) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Reports of the chosen peers' splits: kept or measured ones, as the options say.

    Args:
        options: Options of `add_peer_options`, of `benchmarks.command_line.add_options` and of ``add_cache`` there.
        datasets: The sets.
        peers: Name → peer.
        trials: As `benchmarks.peer_runs.run_peer` takes it.

    Returns:
        Set → peer → reports, without peers that have none.

    Raises:
        OptionError: A chosen peer is unknown.
        ProcessError: A peer's script failed. Splits that were finished before stay saved.
        PeerEnvironmentError: An environment can't be made.
    """
    chosen = chosen_peers(options, peers)
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for dataset in datasets:
        of_set = {name: _reports(peers[name], dataset, options, trials) for name in chosen}
        found[dataset.name] = {name: reports for name, reports in of_set.items() if reports}
    return found


def _reports(
    peer: Peer, dataset: DataSet, options: argparse.Namespace, trials: MakeTrials | None
) -> list[dict[str, Any]]:
    if options.kept_peers:
        on_disk = kept_runs(peer, dataset.name, RESULTS)
        scores = {number: on_disk[number] for number in range(options.splits) if number in on_disk}
        if 0 < len(scores) < options.splits:
            # Means over other splits than those of the other systems are not comparable.
            line = f"left out {peer.name} on {dataset.name}: {len(scores)} of {options.splits} splits are on disk"
            print(line, file=sys.stderr)
            return []
    else:
        scores = run_peer(
            peer,
            dataset,
            options.data,
            options.splits,
            results=RESULTS,
            cache=options.cache,
            rerun=options.rerun_peers,
            say=lambda line: print(line, file=sys.stderr, flush=True),
            trials=trials,
        )
    return [scores[number] for number in sorted(scores)]
