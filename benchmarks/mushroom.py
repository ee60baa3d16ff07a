"""`python -m benchmarks.mushroom --data DIR`: decisions by Thompson sampling, beside other agents.

The mushroom bandit of Blundell et al. (2015): to eat or to leave 50,000 mushrooms, one after the other, and to learn
from what was eaten which ones are poisonous. Beside it the wheel bandit of Riquelme et al. (2018), where linear agents
fail. Prints the cumulative regret against an oracle that knows the expected rewards. Finished runs are
kept in ``OUTPUT/bandits.jsonl``.
"""

from __future__ import annotations

import sys
import time
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from benchmarks.datasets import CLASSES, add_data, read_set
from benchmarks.peers import peers_of
from benchmarks.processes import SystemProcess, add_cache
from benchmarks.results import Kept, Report, add_counts, add_names, command, mean_and_error
from benchmarks.runner import Cell, Job, grouped, mean, reports_of, values
from murho.model.python.bandits import BanditOptions, ThompsonSampling, decisions_until_update
from murho.model.runtime import at_most_threads

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray

    from murho.model.arrays import Bools, Doubles, Floats, Ints

    Agent: TypeAlias = "Callable[[Problem, int], NDArray[np.int64]]"
    """From a problem and a seed to the chosen arms, ``[T]``."""

DELTAS = (0.5, 0.7, 0.9, 0.95)
PROBLEMS = ("mushroom", *(f"wheel-{delta:g}" for delta in DELTAS))
EDIBLE, POISONED = 5.0, -35.0
SAFE, FAIR, PRIZE, NOISE = 1.2, 1.0, 50.0, 0.01
PRECISION, SHAPE, RATE = 0.25, 6.0, 6.0
"""Linear agents: prior precision of a weight over that of the noise; shape and rate of the noise variance's inverse
gamma prior: those of Riquelme et al. (2018), appendix C."""
DEFAULTS = asdict(BanditOptions(lowest_reward=0.0, highest_reward=1.0))
"""What a kept run must agree in."""
CURVE_POINTS = 500
"""Points of a kept curve of cumulative regret; its last one is the whole regret."""


@dataclass(frozen=True, slots=True)
class Problem:
    """T decisions between A arms.

    Attributes:
        contexts: What an agent knows before a decision, ``[T, D]``.
        rewards: What it gets for each arm, if it chooses it, ``[T, A]``.
        expected: Expectation of these rewards, ``[T, A]``.
        context_length: Typical length of a context.
        reward_range: Limits of all rewards, which agents may know.
    """

    contexts: Floats
    rewards: Doubles
    expected: Doubles
    context_length: float
    reward_range: tuple[float, float]

    def regret(self, arms: Ints) -> Doubles:
        """Return expected reward of the best arm minus that of the chosen one, for each decision, ``[T]``."""
        chosen = np.take_along_axis(self.expected, arms[:, None], axis=1)[:, 0]
        return np.asarray(self.expected.max(axis=1) - chosen)

    def options(self, seed: int) -> BanditOptions:
        """Murho's defaults, with what is known of contexts and rewards."""
        low, high = self.reward_range
        return BanditOptions(lowest_reward=low, highest_reward=high, context_length=self.context_length, seed=seed)


def one_hot(read: pa.Table) -> tuple[Floats, Bools]:
    """Return a column per letter of each attribute, ``[N, 117]``, and whether mushrooms are poisonous, ``[N]``."""
    cells = {name: np.array([cell or "?" for cell in read[name].to_pylist()]) for name in read.column_names}
    poisonous = cells.pop("class") == "p"
    columns = [column == letter for column in cells.values() for letter in np.unique(column)]
    return np.array(columns, dtype=np.float32).T, poisonous


def mushrooms(features: Floats, poisonous: Bools, decisions: int, seed: int) -> Problem:
    """Leave (arm 0) or eat (arm 1) mushrooms drawn with replacement (Blundell et al. 2015, section 5.3).

    Eating an edible one gives 5, eating a poisonous one -35 or 5, each with probability one half, and leaving 0.
    """
    generator = np.random.default_rng(seed)
    rows = generator.integers(len(features), size=decisions)
    lucky = generator.random(decisions) < 0.5
    bad, nothing = poisonous[rows], np.zeros(decisions)
    eaten = np.where(bad & ~lucky, POISONED, EDIBLE)
    expected = np.where(bad, 0.5 * (EDIBLE + POISONED), EDIBLE)
    rewards, means = (np.stack((nothing, of), axis=1) for of in (eaten, expected))
    return Problem(features[rows], rewards, means, context_length=22.0**0.5, reward_range=(POISONED, EDIBLE))


def wheel(delta: float, decisions: int, seed: int) -> Problem:
    """Five arms, and contexts uniform in the unit disc (Riquelme et al. 2018, section 5.4).

    Within radius delta the first arm is the best: it gives 1.2 everywhere, the others 1. Beyond it one of the others
    gives 50, another one in each quadrant. All have noise of standard deviation 0.01.
    """
    generator = np.random.default_rng([seed, round(1000 * delta)])
    radius, angle = np.sqrt(generator.random(decisions)), 2.0 * np.pi * generator.random(decisions)
    contexts = np.stack((radius * np.cos(angle), radius * np.sin(angle)), axis=1)
    expected = np.full((decisions, 5), FAIR)
    expected[:, 0] = SAFE
    outer = np.flatnonzero(radius > delta)
    expected[outer, 1 + 2 * (contexts[outer, 0] <= 0.0) + (contexts[outer, 1] <= 0.0)] = PRIZE
    rewards = expected + generator.normal(scale=NOISE, size=expected.shape)
    return Problem(contexts.astype(np.float32), rewards, expected, context_length=0.5**0.5, reward_range=(0.0, 52.0))


def murho(problem: Problem, seed: int, epsilon: float | None = None) -> Ints:
    """Decides in batches by a draw of Murho's posterior, and sees the rewards of the chosen arms alone after each.

    With ``epsilon`` it decides by the mu-only networks, or at random with this probability.
    """
    (decisions, arms), chosen = problem.rewards.shape, []
    agent = ThompsonSampling(problem.contexts.shape[1], arms, problem.options(seed))
    generator, first = np.random.default_rng([seed, 3]), 0
    while first < decisions:
        batch = slice(first, min(decisions, first + decisions_until_update(first)))
        contexts = problem.contexts[batch]
        if epsilon is None:
            taken = agent.choose(contexts)
        else:
            explores = generator.random(len(contexts)) < epsilon
            best = agent.choose(contexts, "greedy")
            taken = np.where(explores, generator.integers(arms, size=len(contexts)), best)
        agent.learn(contexts, taken, np.take_along_axis(problem.rewards[batch], taken[:, None], axis=1)[:, 0])
        chosen.append(taken)
        first = batch.stop
    return np.concatenate(chosen)


def linear_thompson(problem: Problem, seed: int, sigma: float | None = None) -> Ints:
    """Thompson sampling by an exact Bayesian linear regression of each arm's rewards; learns after every decision.

    The function value of a context under a draw of the weights is Gaussian, ``N(x mu, s^2 x C x)`` with the posterior
    covariance ``s^2 C``. It is drawn as such, and C is updated by the rule of Sherman and Morrison: both are exact.

    Args:
        problem: The problem.
        seed: Seed of the draws.
        sigma: Known standard deviation of the rewards, with a prior standard deviation of 5 for every weight; None: the
            variance of the rewards is learned.
    """
    generator = np.random.default_rng([seed, 1])
    decisions, arms = problem.rewards.shape
    rows = np.hstack([problem.contexts, np.ones((decisions, 1), dtype=np.float32)]).astype(np.float64)
    inputs = rows.shape[1]
    covariance = np.tile(np.eye(inputs) / (PRECISION if sigma is None else (sigma / 5.0) ** 2), (arms, 1, 1))
    moments, means = np.zeros((arms, inputs)), np.zeros((arms, inputs))
    squares, counts = np.zeros(arms), np.zeros(arms)
    chosen = np.zeros(decisions, dtype=np.int64)
    for number, row in enumerate(rows):
        directions = covariance @ row
        spread = np.maximum(directions @ row, 0.0)
        variance = np.full(arms, (sigma or 0.0) ** 2)
        if sigma is None:
            rate = np.maximum(RATE + 0.5 * (squares - (means * moments).sum(axis=1)), 1e-9)
            variance = rate / generator.gamma(SHAPE + 0.5 * counts)
        arm = int(np.argmax(means @ row + np.sqrt(variance * spread) * generator.normal(size=arms)))
        chosen[number], reward = arm, problem.rewards[number, arm]
        direction = directions[arm]
        covariance[arm] -= np.outer(direction, direction) / (1.0 + row @ direction)
        moments[arm] += reward * row
        means[arm] = covariance[arm] @ moments[arm]
        squares[arm] += reward**2
        counts[arm] += 1.0
    return chosen


def uniform(problem: Problem, seed: int) -> Ints:
    """Chooses at random."""
    decisions, arms = problem.rewards.shape
    return np.asarray(np.random.default_rng([seed, 2]).integers(arms, size=decisions))


AGENTS: dict[str, tuple[str, Agent]] = {
    "murho": ("Murho, Thompson sampling", murho),
    "linear": ("linear Thompson sampling", linear_thompson),
    "linear-known-noise": ("linear Thompson sampling, noise 5", partial(linear_thompson, sigma=5.0)),
    "greedy": ("greedy, the same network", partial(murho, epsilon=0.0)),
    "epsilon-1": ("ε-greedy 1 %, the same network", partial(murho, epsilon=0.01)),
    "epsilon-5": ("ε-greedy 5 %, the same network", partial(murho, epsilon=0.05)),
    "uniform": ("uniform", uniform),
}
"""Name on the command line → title and agent."""
PEERS = peers_of("bandit")
KNOWN = (*AGENTS, *PEERS)


def played(name: str, problem: Problem, seed: int, cache: Path) -> Ints:
    """Return the arms that an agent or a peer chooses."""
    if name in AGENTS:
        with at_most_threads(1):
            return AGENTS[name][1](problem, seed)
    with SystemProcess(PEERS[name], None, cache=cache) as process:
        arms: Ints = process.ask((problem.contexts, problem.rewards, problem.reward_range, seed))
    return arms


def curve_of(regret: Doubles) -> Doubles:
    """Cumulative regret after evenly spaced numbers of decisions, at most `CURVE_POINTS`, the last one included."""
    points = min(CURVE_POINTS, len(regret))
    ends = np.round(np.linspace(0, len(regret), points + 1)[1:]).astype(int) - 1
    return np.asarray(regret.cumsum()[ends])


def problem_of(name: str, data: Path, decisions: int, seed: int) -> Problem:
    """One of `PROBLEMS`."""
    kind, _, delta = name.partition("-")
    if kind == "wheel":
        return wheel(float(delta), decisions, seed)
    return mushrooms(*one_hot(read_set(CLASSES["mushroom"], data)), decisions, seed)


def measured(name: str, agent: str, data: Path, decisions: int, seed: int, cache: Path) -> Report:
    """Play a problem; ``regret``, its ``curve``, that of ``uniform`` decisions, and ``seconds``."""
    problem, began = problem_of(name, data, decisions, seed), time.perf_counter()
    regret = problem.regret(played(agent, problem, seed, cache))
    seconds = time.perf_counter() - began
    share = float((problem.expected.max(axis=1) - problem.expected.mean(axis=1)).sum())
    return {"regret": float(regret.sum()), "uniform": share, "curve": curve_of(regret).tolist(), "seconds": seconds}


def mean_regret(reports: Sequence[Report]) -> str:
    """Mean ± standard error."""
    return " ± ".join(f"{each:,.0f}" for each in mean_and_error(values(reports, "regret")))


COLUMNS: dict[str, Cell] = {
    "regret ± s.e.": mean_regret,
    "range": lambda reports: " to ".join(f"{of(values(reports, 'regret')):,.0f}" for of in (min, max)),
    "% of uniform": lambda reports: f"{100.0 * sum(values(reports, 'regret')) / sum(values(reports, 'uniform')):.2f}",
    "s a seed": mean("seconds"),
}


def title_of(agent: str) -> str:
    """Its title."""
    return AGENTS[agent][0] if agent in AGENTS else PEERS[agent].title


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_data(parser)
    add_names(parser, problems=PROBLEMS, agents=KNOWN)
    add_counts(parser, seeds=(10, "seeds 0 to N - 1"), decisions=(50_000, "T"))
    parser.add_argument("--fresh", action="store_true", help="ignore finished runs, as after a change of the code")
    add_cache(parser)


def run(options: argparse.Namespace) -> Report:
    """Play and print."""
    kept = Kept(options.output / "bandits.jsonl")
    found: dict[str, dict[str, list[Report]]] = {name: {} for name in options.problems}
    for name, agent in product(options.problems, options.agents):
        jobs = []
        for seed in range(options.seeds):
            given = (name, agent, options.data, options.decisions, seed, options.cache)
            jobs.append(Job(f"{name}-{agent}-{seed}-{options.decisions}", agent, measured, given, DEFAULTS))
        reports = reports_of(jobs, kept, workers=1, fresh=options.fresh)
        found[name][agent] = [reports[job.name] for job in jobs]
    for name, runs in found.items():
        titles = {title_of(agent): of for agent, of in runs.items()}
        print(f"\n{name}, {options.decisions:,} decisions\n{grouped('agent', COLUMNS, titles)}")
    return {"problems": found}


main = command(__doc__, add, run)

if __name__ == "__main__":
    sys.exit(main())
