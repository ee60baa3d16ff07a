"""`python -m benchmarks.dropout --data DIR`: a posterior by dropout beside Bayes by Backprop.

On UCI sets: networks of one hidden layer of 50 units with a learned noise, on the standard splits. The rate of the
dropout and the temperature of the KL are chosen on 20 % of the training rows, then both learn from all of them. Both
are raw and single, so that posteriors are compared and nothing else: `benchmarks.uci` shows what `murho train` makes of
these sets. On MNIST: the networks of `benchmarks.mnist`, with dropout on at prediction.

Dropout as a posterior (Gal & Ghahramani 2016): each weight vector is the means with units left out at random, the
weights from unit i are ``z_i m_i`` with ``z_i ~ Bernoulli(1 - p)``. Its divergence from the prior ``N(0, s^2)`` is
``(1 - p) |M|^2 / (2 s^2)`` plus what does not depend on M (their equation 7 and appendix). Dropout comes before every
layer, and it stays on at prediction: a mask is a draw.
"""

from __future__ import annotations

import argparse
import math
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks import mnist
from benchmarks.datasets import UCI, Split, add_data, read_set, splits
from benchmarks.mnist_networks import (
    SCORES,
    VALIDATION,
    doubt_cells,
    doubts,
    drawn_answers,
    noise_images,
    point_answers,
    scores,
)
from benchmarks.results import Report, add_counts, command
from benchmarks.runner import grouped, mean, one_each
from murho.model.bbb.fit import fit
from murho.model.bbb.fit_rows import Rows
from murho.model.bbb.network import Architecture, BayesianNetwork
from murho.model.bbb.number_likelihoods import HomoscedasticNoise
from murho.model.bbb.priors import EmpiricalBayesPrior
from murho.model.bbb.schedule import FitOptions
from murho.model.distributions.mixtures import Mixture

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    Answers: TypeAlias = Callable[[Tensor], Mixture]
    """Rows ``[B, D]``, standardised, to their predictive: one Gaussian for each draw."""
    Fit: TypeAlias = Callable[[float, Tensor, Tensor, int, int], Answers]
    """From what is chosen, features, targets, epochs and seed."""

HIDDEN, DRAWS, BATCH, LEARNING_RATE = 50, 100, 64, 0.01
FAR = (1.0, 8.0)
"""Rows are moved away from the mean of the training rows: this many times as far as they are."""


def fit_dropout(rate: float, features: Tensor, targets: Tensor, epochs: int, seed: int) -> Answers:
    """Minimises the free energy of a posterior by dropout; Adam, along a cosine to zero."""
    torch.manual_seed(seed)
    first, second = nn.Linear(features.shape[1], HIDDEN), nn.Linear(HIDDEN, 1)
    nn.init.kaiming_normal_(first.weight)
    network = nn.Sequential(nn.Dropout(rate), first, nn.ReLU(), nn.Dropout(rate), second)
    log_noise = torch.zeros(1, requires_grad=True)
    optimiser = torch.optim.Adam([*network.parameters(), log_noise], lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs * math.ceil(len(features) / BATCH))
    for _ in range(epochs):
        for rows in torch.randperm(len(features)).split(BATCH):
            error = (targets[rows] - network(features[rows]).squeeze(1)) / log_noise.exp()
            squares = first.weight.square().sum() + second.weight.square().sum()
            # The weights M of Gal & Ghahramani are divided by 1 - p here, so that a mask keeps the mean.
            loss = 0.5 * error.square().mean() + log_noise + squares / (2.0 * (1.0 - rate) * len(features))
            optimiser.zero_grad()
            loss.sum().backward()
            optimiser.step()
            schedule.step()

    @torch.no_grad()
    def answers(rows: Tensor) -> Mixture:
        torch.manual_seed(seed)
        means = torch.stack([network(rows).squeeze(1) for _ in range(DRAWS)]).double()
        return Mixture(means, log_noise.detach().double().exp().view(1, 1))

    return answers


def fit_bayes(temperature: float, features: Tensor, targets: Tensor, epochs: int, seed: int) -> Answers:
    """Bayes by Backprop of the same network; a few rows are looked at and decide nothing."""
    network = BayesianNetwork(Architecture(features.shape[1], (HIDDEN,), 1), torch.Generator().manual_seed(seed))
    options = FitOptions(epochs=epochs, patience=None, temperature=temperature, seed=seed)
    likelihood, shown = HomoscedasticNoise(1), Rows(features[:20], targets[:20])
    fitted = fit(network, likelihood, EmpiricalBayesPrior(), Rows(features, targets), shown, options)

    @torch.no_grad()
    def answers(rows: Tensor) -> Mixture:
        generator = torch.Generator().manual_seed(seed)
        outputs = fitted.network(rows, generator, DRAWS)[0, :, 0].view(DRAWS, len(rows))
        learned: Any = fitted.likelihood
        return Mixture(outputs.double(), learned.noise(outputs).double())

    return answers


SYSTEMS: dict[str, tuple[Fit, tuple[float, ...]]] = {
    "dropout": (fit_dropout, (0.001, 0.005, 0.01, 0.05, 0.1)),
    "Bayes by Backprop": (fit_bayes, (1.0, 0.3, 0.1)),
}
"""Posterior → its fit, and the rates or temperatures to choose from: those of Gal & Ghahramani and a lower one."""


def measure(read: pa.Table, target: str, split: Split, system: str, epochs: int, seed: int) -> Report:
    """Scores of a posterior on a split of a table whose columns are all numbers.

    Returns:
        ``chosen``; ``log_likelihood``, nats per row; share in the central band of ``90`` %; ``entropy 1`` and
        ``entropy 8``, the mean differential entropy of the predictives of the rows, and of rows so many times as far
        from the mean row, nats, standardised.
    """
    frame = read.to_pandas().astype(np.float64)
    known = frame.iloc[split.training]
    scale = known[target].std(ddof=0)
    standard = ((frame - known.mean()) / known.std(ddof=0).replace(0.0, 1.0)).astype(np.float32)
    targets = torch.from_numpy(standard.pop(target).to_numpy(copy=True))
    inputs = torch.from_numpy(standard.to_numpy(copy=True))
    training, test = ((inputs[rows], targets[rows]) for rows in (split.training, split.test))
    judges = np.zeros(len(split.training), dtype=bool)
    judges[np.random.default_rng(seed).permutation(len(judges))[: round(0.2 * len(judges))]] = True
    judging = torch.from_numpy(judges)
    fit_it, values = SYSTEMS[system]

    def judged(value: float) -> float:
        tried = fit_it(value, training[0][~judging], training[1][~judging], epochs, seed)
        return float(tried(training[0][judging]).log_density(training[1][judging].double()).mean())

    chosen = max(values, key=judged)
    answers, observed = fit_it(chosen, *training, epochs, seed), test[1].double()
    predictive = answers(test[0])
    rank = torch.special.ndtr(predictive.normal_score(observed))
    return {
        "chosen": chosen,
        "log_likelihood": float(predictive.log_density(observed).mean()) - math.log(scale),
        "90": float(((rank - 0.5).abs() <= 0.45).double().mean()),
        **{f"entropy {factor:g}": _entropy(answers(test[0] * factor), seed) for factor in FAR},
    }


def _entropy(predictive: Mixture, seed: int) -> float:
    """Mean differential entropy: minus the mean log density of own draws, one of each component."""
    generator = torch.Generator().manual_seed(seed)
    drawn = predictive.means + predictive.noise * torch.empty_like(predictive.means).normal_(generator=generator)
    return -float(torch.stack([predictive.log_density(values).mean() for values in drawn]).mean())


COLUMNS = {
    "log-likelihood": mean("log_likelihood"),
    "90 %": mean("90", 100.0),
    "entropy": mean("entropy 1"),
    "8 times as far": mean("entropy 8"),
    "chosen": mean("chosen"),
}


def images(options: argparse.Namespace) -> Report:
    """Return score and doubt of three posteriors on the test images; fits of `benchmarks.mnist` are used again."""
    given = {**vars(options), "epochs": options.mnist_epochs, "validation": VALIDATION}
    run = mnist.Run(argparse.Namespace(**given))
    point = run.point("dropout", options.width)
    systems = {
        "dropout, off at prediction": partial(point_answers, point),
        "dropout as a posterior": partial(point_answers, point, draws=64),
        "Bayes by Backprop": partial(drawn_answers, run.bayes(options.width)[0]),
    }
    some = run.test[:2000]
    kinds = {"digits": some, "pure noise": noise_images(len(some))}
    found = {name: scores(of, run.test) | doubts(of, kinds) for name, of in systems.items()}
    print(f"\n{one_each('MNIST; entropy (mutual information)', SCORES | doubt_cells(kinds), found)}")
    return found


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_data(parser, UCI, ("energy", "yacht"))
    add_counts(
        parser,
        splits=(3, "standard splits of a set"),
        epochs=(200, "of the UCI networks"),
        width=(400, "of the MNIST networks"),
        mnist_epochs=(120, "of Bayes by Backprop"),
        point_epochs=(40, "of the dropout network"),
        threads=(torch.get_num_threads(), "of the fits"),
    )
    parser.add_argument("--no-mnist", dest="mnist", action="store_false", help="without the networks of MNIST")


def run(options: argparse.Namespace) -> Report:
    """Fit and print."""
    torch.set_num_threads(options.threads)
    lines: dict[str, list[Report]] = {}
    for name in options.sets:
        read = read_set(UCI[name], options.data)
        for number, split in enumerate(splits(UCI[name], options.splits)):
            for system in SYSTEMS:
                report = measure(read, UCI[name].target, split, system, options.epochs, number)
                lines.setdefault(f"{name}, {system}", []).append(report)
    print(grouped("nats; entropies standardised", COLUMNS, lines))
    return {"sets": lines, **({"mnist": images(options)} if options.mnist else {})}


main = command(__doc__, add, run)

if __name__ == "__main__":
    sys.exit(main())
