"""`python -m benchmarks.dropout --data DIR`: a posterior by dropout beside Bayes by Backprop.

On UCI sets: networks of one hidden layer of 50 units with a learned noise, on the standard splits. The rate of the
dropout and the temperature of the KL are chosen on 20 % of the training rows, then both learn from all of them. Both
are raw and single, so that posteriors are compared and nothing else: `benchmarks.uci` shows what `murho train` makes of
these sets. On MNIST: the networks of `benchmarks.mnist`, with dropout on at prediction.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.command_line import add_output, mean_and_error, positive, shown
from benchmarks.datasets import UCI, chosen_sets, read_set, splits
from benchmarks.dropout_parts.bayes_posterior import (
    TEMPERATURES,
    bayes_options,
    bayes_predictive,
    choose_temperature,
    fit_bayes,
)
from benchmarks.dropout_parts.dropout_posterior import RATES, DropoutRecipe, choose_rate, fit_dropout
from benchmarks.dropout_parts.images import image_systems
from benchmarks.dropout_parts.predictive_scores import FAR, LEVELS, away_from_data, predictive_scores
from benchmarks.dropout_parts.regression_rows import rows_of_split
from benchmarks.results import facts, table, write_json
from murho.model.errors import MurhoError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

    from benchmarks.dropout_parts.regression_rows import RegressionRows
    from murho.model.distributions.mixtures import Mixture

__all__ = ["main"]

DRAWS = 100
SYSTEMS = ("dropout", "bayes")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    options = _options(arguments)
    torch.set_num_threads(options.threads)
    report: dict[str, Any] = {"facts": facts(), "sets": {}}
    try:
        names = chosen_sets(options.sets, UCI)
        for name in names:
            data = read_set(UCI[name], options.data)
            found: dict[str, list[dict[str, Any]]] = {system: [] for system in SYSTEMS}
            for number, split in enumerate(splits(UCI[name], data.num_rows, options.splits)):
                rows = rows_of_split(data, UCI[name].target, split, seed=number)
                for system, run in zip(SYSTEMS, (_dropout, _bayes), strict=True):
                    began = time.process_time()
                    scores = run(rows, options.epochs, number)
                    found[system].append({**scores, "seconds": time.process_time() - began})
                    print(f"{name}, split {number}: {system} {scores['chosen']}", file=sys.stderr, flush=True)
            report["sets"][name] = found
    except MurhoError as error:
        print(error, file=sys.stderr)
        return 1
    print(_render(report["sets"]))
    if options.mnist:
        report["mnist"] = image_systems(options)
        print(_render_images(report["mnist"]))
    options.output.mkdir(parents=True, exist_ok=True)
    write_json(options.output / "dropout.json", report)
    return 0


def _dropout(rows: RegressionRows, epochs: int, seed: int) -> dict[str, Any]:
    rate, tried = choose_rate(rows, RATES, DropoutRecipe(RATES[0], epochs=epochs, seed=seed), DRAWS)
    posterior = fit_dropout(DropoutRecipe(rate, epochs=epochs, seed=seed), *rows.training)
    return _scored(rows, lambda features: posterior.predictive(features, DRAWS, seed), rate, tried, seed)


def _bayes(rows: RegressionRows, epochs: int, seed: int) -> dict[str, Any]:
    hidden, options = DropoutRecipe(0.0).hidden, bayes_options(1.0, epochs, seed)
    temperature, tried = choose_temperature(rows, TEMPERATURES, hidden, options, DRAWS)
    fitted = fit_bayes(hidden, replace(options, temperature=temperature), *rows.training)
    return _scored(rows, lambda features: bayes_predictive(fitted, features, DRAWS, seed), temperature, tried, seed)


def _scored(
    rows: RegressionRows, answers: Callable[[Tensor], Mixture], chosen: float, tried: Mapping[float, float], seed: int
) -> dict[str, Any]:
    features, targets = rows.test
    return {
        **predictive_scores(answers(features), targets, rows.scale),
        "entropy": {str(factor): value for factor, value in away_from_data(answers, features, seed).items()},
        "chosen": chosen,
        "tried": {str(value): score for value, score in tried.items()},
    }


def _render(sets: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]) -> str:
    rows, coverage = [], []
    for name, found in sets.items():
        for system, runs in found.items():
            entropies = [mean_and_error([run["entropy"][str(factor)] for run in runs])[0] for factor in FAR]
            chosen = ", ".join(f"{run['chosen']:g}" for run in runs)
            cells = [shown([run[score] for run in runs]) for score in ("log_likelihood", "rmse", "coverage_error")]
            rows.append([name, system, *cells, *(f"{entropy:.2f}" for entropy in entropies)])
            shares = [mean_and_error([run[f"coverage_{level}"] for run in runs])[0] for level in LEVELS]
            coverage.append([name, system, *(f"{100.0 * share:.1f}" for share in shares), chosen])
    head = ["set", "posterior", "log-likelihood", "RMSE", "|coverage error|"]
    head += [f"entropy x{factor:g}" for factor in FAR]
    parts = ["Entropy: nats, standardised, of test rows that are this many times as far from the mean row"]
    parts += [
        table(head, rows),
        "",
        table(["set", "posterior", *(f"{level} %" for level in LEVELS), "chosen"], coverage),
    ]
    return "\n".join([*parts, ""])


def _render_images(found: Mapping[str, Mapping[str, Any]]) -> str:
    rows = [
        [
            name,
            f"{100 * scores['error']:.2f}",
            f"{scores['log_loss']:.4f}",
            f"{scores['ece']:.4f}",
            *(f"{scores['entropy'][kind]:.3f}" for kind in ("digits", "turned", "noise")),
            *(f"{scores['mutual_information'][kind]:.3f}" for kind in ("digits", "turned", "noise")),
        ]
        for name, scores in found.items()
    ]
    head = ["MNIST", "test error %", "log loss", "ECE", "entropy: digits", "turned 60", "noise"]
    return table([*head, "mutual information: digits", "turned 60", "noise"], rows)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.dropout", description="Dropout beside Bayes by Backprop."
    )
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="with the folders uci and mnist")
    parser.add_argument("--sets", default="energy,yacht", metavar="NAMES", help=f"some of {','.join(UCI)}")
    parser.add_argument("--splits", type=positive, default=3, metavar="N", help="standard splits of a set (default 3)")
    parser.add_argument("--epochs", type=positive, default=200, metavar="N", help="of the UCI networks (default 200)")
    parser.add_argument("--mnist", action=argparse.BooleanOptionalAction, default=True, help="the networks of MNIST")
    parser.add_argument("--width", type=positive, default=400, metavar="N", help="of the MNIST networks (default 400)")
    parser.add_argument("--mnist-epochs", type=positive, default=120, metavar="N", help="of Bayes by Backprop")
    parser.add_argument("--point-epochs", type=positive, default=40, metavar="N", help="of the dropout network")
    parser.add_argument("--threads", type=positive, default=torch.get_num_threads(), metavar="N", help="of the fits")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the MNIST networks")
    add_output(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
