"""The service under load, beside bare servers and beside LitServe and MLServer around the same `Posterior`.

``python -m benchmarks.service`` starts every server as a process on loopback, and a load generator in another one. The
servers take turns; those whose turn it is not are held, so that they take no processor. Measured are

- ``rates``: one row with 32 connections, and with one;
- ``latency``: one connection, beside `Posterior.predict` alone and a bare route; answers at half the load;
- ``big``: 1,000 rows as JSON, 100,000 rows x 16 as Arrow: the share of the time that is not `Posterior.predict`;
- ``mixed``: requests with different options, and with a new seed each;
- ``overload``: three times what the service can do.

Without ``--checkpoints``, the demo (``examples/cars.csv``) is trained first.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from benchmarks.command_line import add_cache, add_output, add_rounds, positive, some_of
from benchmarks.environments import PeerEnvironmentError, environment
from benchmarks.processes import ProcessError
from benchmarks.results import ROOT, facts, write_json
from benchmarks.service_parts.bodies import (
    ARROW,
    Requests,
    arrow_table,
    http,
    mixed,
    oip_body,
    records,
    rows_of,
    stored,
)
from benchmarks.service_parts.claims import claims_of
from benchmarks.service_parts.measures import Bench, middle
from benchmarks.service_parts.overload import overload
from benchmarks.service_parts.report import claims_table, overload_lines, rates, ratio, servers_table
from benchmarks.service_parts.servers import BARE, PEERS, RunningServer, bare, murho, peer, running
from murho.model.checkpoint.checkpoint import find_checkpoint
from murho.model.errors import MurhoError, OptionError
from murho.model.tables.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

MEASURES = ("rates", "latency", "big", "mixed", "overload")
SAMPLES = 256
WIDE_FEATURES = 16
WIDE_SAMPLES = 64
DISTINCT = 64
"""Different rows that requests for one row go round."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    chosen = _options(arguments)
    # As `murho` does for itself: threads that spin while they wait would slow the peers and the engine alone.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    path: Path = chosen.output / "service.json"
    try:
        kept = _kept(path) if chosen.kept_peers else {}
        with tempfile.TemporaryDirectory() as directory:
            measured = _measure(chosen, kept, Path(directory))
    except MurhoError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    claims = claims_of(measured)
    print(f"\n{claims_table(claims)}")
    chosen.output.mkdir(parents=True, exist_ok=True)
    write_json(path, {"benchmark": "service", **facts(), **measured, "claims": claims})
    print(f"\nnumbers: {path}")
    return 0


def _kept(path: Path) -> dict[str, float]:
    """The peers' rates to a bare FastAPI route, as an earlier run has measured them."""
    try:
        peers: dict[str, float] = orjson.loads(path.read_bytes())["peers_to_fastapi"]
    except (OSError, orjson.JSONDecodeError, KeyError):
        raise OptionError(f"--kept-peers: {path} has no peers of an earlier run; run without it once") from None
    return peers


def _measure(chosen: argparse.Namespace, kept: dict[str, float], directory: Path) -> dict[str, Any]:
    checkpoints = _checkpoints(chosen, directory)
    version = find_checkpoint(checkpoints, chosen.model, None)
    schema = Schema.from_json(orjson.loads((version / "model.json").read_bytes())["schema"], "schema")
    rows = rows_of(records(schema, DISTINCT))
    bodies = {"mlserver": [oip_body(schema, row) for row in rows]}
    plain = [orjson.dumps({"inputs": [row], "samples": SAMPLES}) for row in rows]
    systems = [] if chosen.kept_peers else chosen.systems
    measured: dict[str, Any] = {
        "rounds": chosen.rounds,
        "seconds": chosen.seconds,
        "peers_to_fastapi": kept,
        "left_out": {},
    }
    with ExitStack() as stack:
        bench = stack.enter_context(Bench(chosen.rounds, chosen.seconds))
        servers: dict[str, RunningServer] = {}
        settings = {"log_level": "info", "default_model": chosen.model}
        ours = stack.enter_context(running(murho(checkpoints, chosen.model, **settings), plain[0]))
        servers["murho"] = ours
        status, content = ours.post(plain[0])
        if status != 200:
            raise ProcessError(f"Murho answered {status}: {content[:500]!r}")
        ours.hold()
        answer = directory / "answer.json"
        answer.write_bytes(content)
        for kind in BARE:
            servers[kind] = stack.enter_context(running(bare(kind, version, answer), plain[0]))
            servers[kind].hold()
        for name in systems:
            try:
                python = environment(name, PEERS[name], cache=chosen.cache)
                first = bodies.get(name, plain)[0]
                servers[name] = stack.enter_context(running(peer(name, python, version), first))
                servers[name].hold()
            except (PeerEnvironmentError, ProcessError) as error:
                measured["left_out"][name] = str(error)
                print(f"{name} is left out: {error}", flush=True)
        requests = {
            name: stored([http(one.server.path, body) for body in bodies.get(name, plain)], directory / f"{name}.http")
            for name, one in servers.items()
        }
        for name in chosen.measures:
            MEASURE[name](bench, servers, requests, measured, _Subject(chosen, checkpoints, schema, rows, directory))
    return measured


class _Subject:
    """What is asked about: the checkpoints, and rows of the demo."""

    def __init__(
        self, chosen: argparse.Namespace, checkpoints: Path, schema: Schema, rows: list[dict[str, Any]], directory: Path
    ) -> None:
        self.chosen, self.checkpoints, self.schema = chosen, checkpoints, schema
        self.rows, self.directory = rows, directory

    def version(self, name: str) -> str:
        """The directory of a model's version."""
        return str(find_checkpoint(self.checkpoints, name, None))


def _rates(
    bench: Bench,
    servers: dict[str, RunningServer],
    requests: dict[str, Requests],
    measured: dict[str, Any],
    _: _Subject,
) -> None:
    everybody = list(servers.values())
    measured["rates"] = bench.rates(everybody, requests)
    measured["one_connection"] = bench.rates(everybody, requests, connections=1)
    titles = {name: one.server.title for name, one in servers.items()}
    print(f"\n{servers_table(titles, measured['rates'], measured['one_connection'])}", flush=True)
    for name in PEERS:
        if name in measured["rates"]:
            bare_rates = rates(measured["rates"]["fastapi"])
            measured["peers_to_fastapi"][name] = ratio(rates(measured["rates"][name]), bare_rates)


def _latency(
    bench: Bench,
    servers: dict[str, RunningServer],
    requests: dict[str, Requests],
    measured: dict[str, Any],
    subject: _Subject,
) -> None:
    if "rates" not in measured:
        raise OptionError("--measures: latency needs rates")
    columns = {name: [value] for name, value in subject.rows[0].items()}
    offline = {"model": subject.version(subject.chosen.model), "columns": columns, "samples": SAMPLES}
    measured["one_row"] = bench.beside_the_engine(servers["murho"], requests["murho"], offline)
    capacity = middle(rates(measured["rates"]["murho"]))
    measured["half_load"] = bench.at_half_load(servers["murho"], requests["murho"], capacity)


def _big(
    bench: Bench, servers: dict[str, RunningServer], _: dict[str, Requests], measured: dict[str, Any], subject: _Subject
) -> None:
    many = records(subject.schema, subject.chosen.json_rows)
    ours, path = servers["murho"], servers["murho"].server.path
    offline = {"model": subject.version(subject.chosen.model), "columns": many, "samples": SAMPLES}
    for name, inputs in (("json_records", rows_of(many)), ("json_columns", many)):
        body = orjson.dumps({"inputs": inputs, "samples": SAMPLES})
        request = stored([http(path, body)], subject.directory / f"{name}.http")
        measured[name] = bench.beside_the_engine(ours, request, offline)
    wide = Path(subject.version("wide"))
    schema = Schema.from_json(orjson.loads((wide / "model.json").read_bytes())["schema"], "schema")
    table = arrow_table(schema, subject.chosen.arrow_rows)
    file = subject.directory / "wide.arrow"
    file.write_bytes(table)
    request = stored(
        [http(f"/models/wide/predict?samples={WIDE_SAMPLES}", table, ARROW, ARROW)], file.with_suffix(".http")
    )
    offline = {"model": str(wide), "table": str(file), "samples": WIDE_SAMPLES}
    measured["arrow"] = bench.beside_the_engine(ours, request, offline)


def _mixed(
    bench: Bench, servers: dict[str, RunningServer], _: dict[str, Requests], measured: dict[str, Any], subject: _Subject
) -> None:
    ours = servers["murho"]
    for name, new_seeds in (("mixed", False), ("new_seeds", True)):
        bodies = [orjson.dumps(request) for request in mixed(subject.rows, new_seeds=new_seeds)]
        requests = stored([http(ours.server.path, body) for body in bodies], subject.directory / f"{name}.http")
        measured[name] = bench.rates([ours], {"murho": requests})["murho"]


def _overload(
    bench: Bench,
    servers: dict[str, RunningServer],
    _: dict[str, Requests],
    measured: dict[str, Any],
    subject: _Subject,
) -> None:
    body = orjson.dumps({"inputs": subject.rows[:1], "samples": SAMPLES})
    ours, count = servers["murho"], subject.chosen.overload_rows
    around = subject.rows * (count // len(subject.rows) + 2)
    bodies = [orjson.dumps({"inputs": around[at : at + count], "samples": SAMPLES}) for at in range(DISTINCT)]
    requests = stored([http(ours.server.path, one) for one in bodies], subject.directory / "overload.http")
    measured["overload"] = overload(bench, ours, requests, body, subject.chosen.overload_seconds) | {"rows": count}
    print(f"\n{overload_lines(measured['overload'])}", flush=True)


MEASURE = {"rates": _rates, "latency": _latency, "big": _big, "mixed": _mixed, "overload": _overload}


def _checkpoints(chosen: argparse.Namespace, directory: Path) -> Path:
    """A directory with the demo and, for wide tables, a model of made-up numbers.

    Raises:
        ProcessError: A training failed.
    """
    root = directory / "checkpoints"
    if chosen.checkpoints is None:
        cars = ROOT / "examples" / "cars.csv"
        config = cars.with_suffix(".toml")
        print("training the demo ...", file=sys.stderr, flush=True)
        _train(cars, "Miles_per_Gallon", root, chosen.model, "--config", str(config))
    else:
        version = find_checkpoint(chosen.checkpoints, chosen.model, None)
        shutil.copytree(version, root / chosen.model / version.name)
    if "big" in chosen.measures:
        rng = np.random.default_rng(0)
        numbers = rng.standard_normal((600, WIDE_FEATURES))
        target = numbers[:, 0] + np.sin(numbers[:, 1]) + 0.3 * rng.standard_normal(len(numbers))
        names = [*(f"x{number}" for number in range(WIDE_FEATURES)), "y"]
        made_up = directory / "wide.csv"
        np.savetxt(made_up, np.column_stack([numbers, target]), delimiter=",", header=",".join(names), comments="")
        fit = ("--epochs", "3", "--hidden", "64,64", "--noise", "heteroscedastic")
        _train(made_up, "y", root, "wide", *fit)
    return root


def _train(table: Path, target: str, root: Path, name: str, *options: str) -> None:
    command = [sys.executable, "-m", "murho", "train", str(table), "--target", target, "--name", name]
    done = subprocess.run(  # noqa: S603 - our own command
        [*command, "--checkpoints", str(root), *options], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ProcessError(f"murho train ended with status {done.returncode}:\n{done.stderr[-2000:]}")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--checkpoints", type=Path, metavar="DIR", help="with the demo (default: it is trained)")
    parser.add_argument("--model", default="cars", help="name of the checkpoint (default cars)")
    parser.add_argument(
        "--systems",
        type=some_of(PEERS, "system"),
        default=list(PEERS),
        metavar="NAMES",
        help=f"some of {','.join(PEERS)}, besides Murho and the bare servers (default all; '' none)",
    )
    parser.add_argument(
        "--measures",
        type=some_of(MEASURES, "measure"),
        default=list(MEASURES),
        metavar="NAMES",
        help=f"some of {','.join(MEASURES)} (default all)",
    )
    parser.add_argument(
        "--kept-peers", action="store_true", help="the peers' ratios as service.json in --output has them; no peer runs"
    )
    add_rounds(parser, 5)
    parser.add_argument("--seconds", type=float, default=3.0, metavar="S", help="of a server's turn (default 3)")
    parser.add_argument(
        "--overload-seconds", type=float, default=60.0, metavar="S", help="of the overload (default 60)"
    )
    parser.add_argument(
        "--overload-rows", type=positive, default=32, metavar="N", help="in a request of the overload (default 32)"
    )
    parser.add_argument("--json-rows", type=positive, default=1_000, metavar="N", help="as JSON (default 1000)")
    parser.add_argument("--arrow-rows", type=positive, default=100_000, metavar="N", help="as Arrow (default 100000)")
    add_output(parser)
    add_cache(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
