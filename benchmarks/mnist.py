"""`python -m benchmarks.mnist --data DIR`: the systems of Blundell et al. 2015 (section 5.1) on MNIST.

(a) Test error of networks of two hidden layers by Bayes by Backprop under a scale mixture, beside networks of the same
size by gradient descent, plain and with dropout. (b) Their weights. (c) Test error without the weights of the lowest
``|mu| / sigma``. (d) A 784-512-256-10 network with the KL in closed form and geometric weights of the minibatches.
(e) Entropy on digits, turned digits and pure noise.

50,000 images are learned, the last 10,000 training images calibrate (settings were chosen on them too), the 10,000 test
images score. Fits are kept in the folder of results: a second call goes on where the first was stopped. Every Bayesian
network becomes a checkpoint, which ``murho serve`` serves.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks.command_line import add_output, numbers, positive, some_of
from benchmarks.mnist_parts.bayes_answers import load_tensors
from benchmarks.mnist_parts.images import VALIDATION, read_images
from benchmarks.mnist_parts.pruning import Pruned, decibels, pruning_table, weights_of
from benchmarks.mnist_parts.recipes import (
    NOTEBOOK,
    PAPER_WIDTHS,
    bayes_recipe,
    dropout_recipe,
    notebook_recipe,
    refit_recipe,
    sgd_recipe,
    sparse_recipe,
)
from benchmarks.mnist_parts.reports import draw_doubt, draw_pruning, draw_weights, render
from benchmarks.mnist_parts.systems import (
    Bench,
    as_tensors,
    checkpoint_of,
    fitted,
    fitted_point,
    point_scores,
    scores_of,
)
from benchmarks.mnist_parts.unlike_images import doubt_table, drawn_answers, point_answers
from benchmarks.results import facts, write_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from murho.model.bbb.network import BayesianNetwork

__all__ = ["main"]

PARTS = ("networks", "weights", "pruning", "notebook", "doubt")
PRUNED_FRACTION = 0.95
REPORT = "mnist.json"
WEIGHTS_SEED = 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    options = _options(arguments)
    torch.set_num_threads(options.threads)
    training, validation, test = read_images(options.data, options.validation)
    if options.images is not None:
        training = training[: options.images]
    directory = options.output / "mnist"
    directory.mkdir(parents=True, exist_ok=True)
    checkpoints = options.checkpoints or directory / "checkpoints"
    run = _Run(options, Bench(training, validation, test, directory, checkpoints, _say))
    for part in PARTS:
        if part in options.parts:
            getattr(run, part)()
            write_json(directory / REPORT, {"facts": facts(), "options": run.shown_options(), **run.report})
    print(render(run.report))
    _say(f"numbers and figures: {directory}; checkpoints, for murho serve: {checkpoints}")
    return 0


class _Run:
    """One call of the command: the parts share networks, which are fitted once."""

    def __init__(self, options: argparse.Namespace, bench: Bench) -> None:
        self._options, self._bench = options, bench
        self.report: dict[str, Any] = {"systems": {}, "weights": {}, "pruning": {}, "doubt": {}}
        earlier = bench.directory / REPORT
        if earlier.exists():  # numbers of parts that this call does not ask for
            known = json.loads(earlier.read_text())
            self.report |= {name: known[name] for name in self.report if name in known}

    def shown_options(self) -> dict[str, Any]:
        """The options, for the report."""
        return {name: str(value) if isinstance(value, Path) else value for name, value in vars(self._options).items()}

    def networks(self) -> None:
        """(a) Bayes by Backprop, gradient descent and dropout, of each width."""
        for width in self._options.widths:
            self._bayes(f"bayes-{width}", width)
            for kind in ("sgd", "dropout"):
                self._point(f"{kind}-{width}", kind, width)

    def notebook(self) -> None:
        """(d) The notebook's network."""
        recipe = notebook_recipe(self._options.notebook_epochs, self._options.seed)
        network, history = fitted(self._bench, "notebook", recipe)
        path, _ = checkpoint_of(self._bench, "mnist-notebook", recipe, network, history)
        self.report["systems"][f"notebook 784-{'-'.join(map(str, NOTEBOOK))}-10"] = {
            "epochs": recipe.epochs,
            "seconds": history[-1]["processor_seconds"],
            **scores_of(self._bench, network, path),
        }

    def weights(self) -> None:
        """(b) The densities of the weights of the three networks of the first width."""
        network, _, _ = self._bayes_fit(width := self._options.widths[0])
        mu, rho = weights_of(_tensors(network))
        epsilon = torch.randn(mu.shape, generator=torch.Generator().manual_seed(WEIGHTS_SEED))
        drawn = torch.addcmul(mu, torch.nn.functional.softplus(rho), epsilon)
        found = {"Bayes by Backprop (a draw)": drawn.double().numpy()}
        for kind, title in (("sgd", "gradient descent"), ("dropout", "dropout")):
            point = fitted_point(self._bench, f"{kind}-{width}", self._point_recipe(kind, width))
            flat = torch.cat([weight.detach().flatten() for weight in point.weights])
            found[title] = flat.double().numpy()
        draw_weights(self._bench.directory / "weights.png", found, [f"784-{width}-{width}-10, all weights, no biases"])
        self.report["weights"] = {name: _moments(values) for name, values in found.items()}

    def pruning(self) -> None:
        """(c) Pruning, before and after further epochs at a higher temperature; what is left of it, fitted again."""
        for width in self._options.widths:
            network, recipe, _ = self._bayes_fit(width)
            self._prune(f"bayes-{width}", network, f"{recipe.epochs} epochs")
            recipe = sparse_recipe((width, width), self._options.sparse_epochs, self._options.seed)
            name = f"sparse-{width}"
            network, history = fitted(self._bench, name, recipe, initial=network)
            self.report["systems"][name] = {
                "epochs": recipe.epochs,
                "seconds": history[-1]["processor_seconds"],
                **scores_of(self._bench, network, None),
            }
            kept = self._prune(
                name, network, f"{recipe.epochs} further epochs at temperature {recipe.final_temperature}"
            )
            load_tensors(network, kept.tensors)
            recipe, name = (
                refit_recipe((width, width), self._options.refit_epochs, self._options.seed),
                f"refit-{width}",
            )
            network, history = fitted(self._bench, name, recipe, initial=network)
            path, _ = checkpoint_of(self._bench, f"mnist-{width}-pruned", recipe, network, history)
            self.report["systems"][name] = {
                "epochs": recipe.epochs,
                "seconds": history[-1]["processor_seconds"],
                "removed": PRUNED_FRACTION,
                **scores_of(self._bench, network, path),
            }

    def _prune(self, name: str, network: BayesianNetwork, how: str) -> Pruned:
        """The pruning table and figure of a network; returns it without `PRUNED_FRACTION` of its weights."""
        tensors = _tensors(network)
        rows = pruning_table(tensors, network.architecture, as_tensors(self._bench.test))
        self.report["pruning"][name] = [
            {key: getattr(row, key) for key in ("fraction", "weights", "threshold", "mean_error", "error")}
            for row in rows
        ]
        hidden = "-".join(map(str, network.architecture.hidden))
        subtitle = [f"784-{hidden}-10, {how}; {len(self._bench.test):,} test images, not fitted again"]
        path = self._bench.directory / f"pruning-{name}.png"
        draw_pruning(path, decibels(tensors), self.report["pruning"][name], subtitle)
        return next(row for row in rows if row.fraction == PRUNED_FRACTION)

    def doubt(self) -> None:
        """(e) Entropy on digits, turned digits and noise, of the three networks of the first width."""
        network, _, _ = self._bayes_fit(width := self._options.widths[0])
        images = self._bench.test[: self._options.doubt_images]
        known = {"Bayes by Backprop": drawn_answers(network)}
        for kind, title in (("sgd", "gradient descent"), ("dropout", "dropout, off at prediction")):
            known[title] = point_answers(fitted_point(self._bench, f"{kind}-{width}", self._point_recipe(kind, width)))
        found = {name: doubt_table(answers, images) for name, answers in known.items()}
        subtitle = [f"784-{width}-{width}-10, {len(images):,} test images of each angle and as many of noise"]
        draw_doubt(self._bench.directory / "doubt.png", found, subtitle)
        self.report["doubt"] = {
            name: {key: value for key, value in table.items() if key != "entropies"} for name, table in found.items()
        }

    def _bayes_fit(self, width: int) -> tuple[BayesianNetwork, Any, list[dict[str, float]]]:
        recipe = bayes_recipe((width, width), self._options.epochs, self._options.seed)
        network, history = fitted(self._bench, f"bayes-{width}", recipe)
        return network, recipe, history

    def _bayes(self, name: str, width: int) -> None:
        network, recipe, history = self._bayes_fit(width)
        path, _ = checkpoint_of(self._bench, f"mnist-{width}", recipe, network, history)
        self.report["systems"][name] = {
            "epochs": recipe.epochs,
            "seconds": history[-1]["processor_seconds"],
            "history": history,
            **scores_of(self._bench, network, path),
        }

    def _point_recipe(self, kind: str, width: int) -> Any:
        recipe = sgd_recipe if kind == "sgd" else dropout_recipe
        return recipe((width, width), self._options.point_epochs, self._options.seed)

    def _point(self, name: str, kind: str, width: int) -> None:
        recipe = self._point_recipe(kind, width)
        began = time.process_time()
        network = fitted_point(self._bench, name, recipe)
        self.report["systems"][name] = {
            "epochs": recipe.epochs,
            "seconds": time.process_time() - began,
            "scores": point_scores(self._bench, network),
        }


def _tensors(network: BayesianNetwork) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in network.named_tensors().items()}


def _moments(values: Any) -> dict[str, float]:
    return {
        "std": float(values.std()),
        "mean_absolute": float(np.abs(values).mean()),
        "below_0.01": float((np.abs(values) < 0.01).mean()),
    }


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mnist", description="Blundell et al. 2015 on MNIST.")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="with mnist.npz, or mnist/mnist.npz")
    parser.add_argument(
        "--widths", type=numbers, default=list(PAPER_WIDTHS), metavar="N,…", help="hidden units (default 400,800,1200)"
    )
    parser.add_argument("--epochs", type=positive, default=120, metavar="N", help="of Bayes by Backprop (default 120)")
    parser.add_argument("--point-epochs", type=positive, default=40, metavar="N", help="of SGD, dropout (default 40)")
    parser.add_argument(
        "--sparse-epochs", type=positive, default=25, metavar="N", help="further ones of (c) (default 25)"
    )
    parser.add_argument("--refit-epochs", type=positive, default=15, metavar="N", help="once pruned (default 15)")
    parser.add_argument("--notebook-epochs", type=positive, default=15, metavar="N", help="of (d) (default 15)")
    parser.add_argument("--images", type=positive, metavar="N", help="learn from the first N alone (default all)")
    parser.add_argument("--validation", type=positive, default=VALIDATION, metavar="N", help="images that calibrate")
    parser.add_argument("--doubt-images", type=positive, default=2000, metavar="N", help="of (e) (default 2000)")
    parser.add_argument(
        "--parts", type=some_of(PARTS, "part"), default=list(PARTS), metavar="…", help=f"of {','.join(PARTS)}"
    )
    parser.add_argument("--threads", type=positive, default=torch.get_num_threads(), metavar="N", help="of the fits")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of weights, minibatches and draws")
    parser.add_argument("--checkpoints", type=Path, metavar="DIR", help="default: mnist/checkpoints in the results")
    add_output(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
