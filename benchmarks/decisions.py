"""`python -m benchmarks.decisions --data DIR`: an agent that decides and learns over HTTP, beside one in this process.

The bandits of `benchmarks.mushroom`. A model of rewards learns from the first decisions, which are random. It has a
hidden layer: of so few rows the search would choose a linear model, whose best arm is the same in every context. Over
HTTP, `decide` then chooses by draws (Thompson sampling) and records, `outcomes` tells the rewards, and after each round
`murho learn` makes the next version if it is better, which the service loads. The same model decides and learns in this
process by Python, with the same draws. Beside both: `model.python.bandits`, whose networks are made for rewards.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet
from murho_client import Client

from benchmarks.datasets import add_data
from benchmarks.mushroom import PROBLEMS, Problem, murho, problem_of, uniform
from benchmarks.processes import ProcessError, train
from benchmarks.results import ROOT, Report, add_counts, add_names, command, table
from benchmarks.servers import murho as serving
from benchmarks.servers import running
from murho.cli.learn import better_version
from murho.model.checkpoint.posterior import Posterior
from murho.model.python.interface import TrainedModel
from murho.model.runtime import at_most_threads

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from murho.model.arrays import Ints

NAME, SAMPLES, PATIENCE = "bandit", 256, 60.0


class Rounds:
    """The decisions of one problem, in rounds.

    Args:
        problem: The problem.
        first: Decisions at random, from which the first version learns.
        step: Decisions of a round, at least; later a twentieth of those so far.
        seed: Of the random ones and of the draws.
        directory: An empty one, for checkpoints and the store.
    """

    def __init__(self, problem: Problem, first: int, step: int, seed: int, directory: Path) -> None:
        self.problem, self._directory = problem, directory
        self._ends = [first]
        while (end := self._ends[-1]) < len(problem.rewards):
            self._ends.append(min(len(problem.rewards), end + max(step, end // 20)))
        random = np.random.default_rng([seed, 4])
        self._random = random.integers(problem.rewards.shape[1], size=first)
        self._draws = random.integers(SAMPLES, size=len(problem.rewards))
        arms = [f"arm {arm}" for arm in range(problem.rewards.shape[1])]
        self._actions = [{"id": str(number), "inputs": {"arm": name}} for number, name in enumerate(arms)]
        self._features = [f"x{place}" for place in range(problem.contexts.shape[1])]
        rows = pa.Table.from_pylist(self._labelled(slice(0, first), self._random))
        pa.parquet.write_table(rows, directory / "first.parquet")
        given = ("--quick", "--hidden", "50", "--noise", "homoscedastic", "--seed", str(seed))
        train(directory / "first.parquet", "reward", directory / "checkpoints", NAME, *given)
        self._model = Posterior.load(directory / "checkpoints" / NAME / "1")
        known = {feature.name for feature in self._model.schema.features}
        self._features = [name for name in self._features if name in known]  # others were the same in all first rows

    def _contexts(self, part: slice) -> list[dict[str, float]]:
        rows = self.problem.contexts[part].tolist()
        return [{name: row[int(name[1:])] for name in self._features} for row in rows]

    def _labelled(self, part: slice, arms: Ints) -> list[dict[str, Any]]:
        rewards = self.problem.rewards[part][np.arange(len(arms)), arms].tolist()
        told = zip(self._contexts(part), arms.tolist(), rewards, strict=True)
        return [{**row, "arm": f"arm {arm}", "reward": reward} for row, arm, reward in told]

    def in_process(self) -> Ints:
        """Return the arms that the model chooses and learns from in this process, ``[T]``."""
        model, chosen, waiting = self._model, [self._random], list[dict[str, Any]]()
        for end, part in self._parts():
            rows = pa.Table.from_pylist(self._contexts(part))
            found = TrainedModel(model).decide(rows, self._actions, draw=self._draws[part].tolist())
            chosen.append(found.choice)
            waiting += self._labelled(part, found.choice)
            facts, better = better_version(model, waiting, "cpu")
            if better is not None:
                model, waiting = better, waiting[facts["learned"] :]
            print(f"in process, {end}: {_said(facts)}", file=sys.stderr, flush=True)
        return np.concatenate(chosen)

    def over_http(self) -> Ints:
        """Return the same, by a service and its store, ``[T]``."""
        store, config = self._directory / "store.db", self._directory / "murho.toml"
        config.write_text(f'store = "{store}"\nrecord_inputs = true\nwatch_seconds = 0.2\n')
        chosen, checkpoints = [self._random], self._directory / "checkpoints"
        path, words = serving(checkpoints, NAME)
        row = {**self._contexts(slice(0, 1))[0], "arm": "arm 0"}
        with (
            running(path, [*words, "--config", str(config)], [_body(row)]) as server,
            Client(f"http://127.0.0.1:{server.port}", timeout=600) as client,
        ):
            for end, part in self._parts():
                ids = [f"{number:09}" for number in range(part.start, part.stop)]
                draws = self._draws[part].tolist()
                found = client.decide(self._contexts(part), self._actions, NAME, draw=draws, ids=ids)
                chosen.append(np.array(found.action, np.int64))
                rewards = self.problem.rewards[part][np.arange(len(ids)), chosen[-1]].tolist()
                if client.outcomes({"id": ids, "value": rewards}, NAME).accepted != len(ids):
                    raise ProcessError("the service did not take all outcomes")
                facts = _learn_once("--store", str(store), "--checkpoints", str(checkpoints))
                print(f"over HTTP, {end}: {_said(facts)}", file=sys.stderr, flush=True)
                until = time.monotonic() + PATIENCE
                while facts["taken"] and client.model(NAME).version != facts["version"]:
                    if time.monotonic() > until:
                        raise ProcessError(f"the service did not load version {facts['version']}")
                    time.sleep(0.1)
        return np.concatenate(chosen)

    def _parts(self) -> Sequence[tuple[int, slice]]:
        return [(end, slice(start, end)) for start, end in pairwise(self._ends)]


def _learn_once(*options: str) -> Report:
    """Return what `murho learn` tells."""
    words = [sys.executable, "-m", "murho", "learn", NAME, *options, "--json"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, check=False)  # noqa: S603 - our own command
    if done.returncode:
        raise ProcessError(done.stderr.decode(errors="replace"))
    found: Report = orjson.loads(done.stdout)
    return found


def _body(row: dict[str, Any]) -> bytes:
    return orjson.dumps({"inputs": [row], "samples": 2})


def _said(facts: Report) -> str:
    if "learned" not in facts:
        return str(facts["why"])
    verb = "took up" if facts["taken"] else "left"
    return f"{verb} what {facts['learned']} rewards taught, CRPS {facts['before']:.4g} to {facts['after']:.4g}"


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_data(parser)
    add_names(parser, problems=PROBLEMS)
    add_counts(parser, decisions=(400, "T"), first=(100, "at random"), step=(100, "of a round"), seeds=(1, "from 0 on"))


def run(options: argparse.Namespace) -> Report:
    """Play and print."""
    lines, found = [], {}
    for name in options.problems:
        for seed in range(options.seeds):
            problem = problem_of(name, options.data, options.decisions, seed)
            with tempfile.TemporaryDirectory() as directory, at_most_threads(1):
                rounds = Rounds(problem, options.first, options.step, seed, Path(directory))
                arms = {
                    "the model, in process": rounds.in_process(),
                    "the model, over HTTP": rounds.over_http(),
                    "model.python.bandits": murho(problem, seed),
                    "uniform": uniform(problem, seed),
                }
            regrets = {agent: float(problem.regret(chosen).sum()) for agent, chosen in arms.items()}
            here, there = (arms[f"the model, {where}"] for where in ("in process", "over HTTP"))
            alike = float((here == there).mean())
            found[f"{name}-{seed}"] = {"regrets": regrets, "alike": alike}
            print(f"{name}, seed {seed}: {found[f'{name}-{seed}']}", file=sys.stderr, flush=True)
            lines += [[name, str(seed), agent, f"{regret:,.1f}"] for agent, regret in regrets.items()]
            lines.append([name, str(seed), "decided alike, of the two models", f"{100.0 * alike:.1f} %"])
    print(table(["bandit", "seed", f"agent, {options.decisions:,} decisions", "regret"], lines))
    return {"problems": found}


main = command(__doc__, add, run)

if __name__ == "__main__":
    sys.exit(main())
