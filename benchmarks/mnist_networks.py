"""The networks of `benchmarks.mnist`: images, fits of Bayes by Backprop and of point networks, and checkpoints."""

from __future__ import annotations

import hashlib
import math
import sys
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors.torch
import torch
from scipy import ndimage
from torch import Tensor, nn

from benchmarks.runner import Cell, mean
from benchmarks.scores import class_report
from murho.model.bbb.free_energy import GradientStep, kl_weights
from murho.model.bbb.likelihood import Categorical
from murho.model.bbb.network import Architecture, BayesianNetwork, inverse_softplus
from murho.model.bbb.optimisers import FitState
from murho.model.checkpoint.posterior import Posterior
from murho.model.checkpoint.spec import ClassShares, LikelihoodSpec, ModelSpec
from murho.model.distributions.target_transforms import Identity, Standardisation
from murho.model.encoding.encoder import Encoded, Encoder
from murho.model.encoding.feature_encodings import Scale, Standard
from murho.model.errors import OptionError
from murho.model.evaluation.held_out import calibrate_held_out
from murho.model.predictive.prediction import PredictOptions
from murho.model.tables.schema import Feature, FeatureKind, Schema, Target
from murho.model.tables.splits import HeldOut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from benchmarks.results import Report
    from murho.model.arrays import Doubles
    from murho.model.bbb.priors import Prior

SIDE, CLASSES = 28, 10
VALIDATION = 10_000
"""Training images that only choose settings: the last ones, as in the paper's 50,000, 10,000 and 10,000."""
PIXEL_SCALE = 126.0
"""A pixel, 0 to 255, is divided by this before the network sees it (Blundell et al. 2015, section 5.1)."""
RISE = (1.0 / 3.0, 0.8)
"""Where in a fit the temperature rises to its final value: networks learn the digits first, then let weights go."""
ROWS_AT_A_TIME = 1000
DRAWS = 64
"""Draws of the test scores."""


@dataclass(frozen=True, slots=True)
class Images:
    """Images as rows of pixels, 0 to 255, ``[N, 784]``, uint8, and their digits ``[N]``, int64."""

    pixels: NDArray[np.uint8]
    digits: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.digits)

    def __getitem__(self, rows: slice) -> Images:
        return Images(self.pixels[rows], self.digits[rows])

    @property
    def inputs(self) -> Tensor:
        """What a network sees: pixels divided by 126, ``[N, 784]``."""
        return torch.from_numpy(self.pixels.astype(np.float32) / np.float32(PIXEL_SCALE))


def read_images(directory: Path, validation: int) -> tuple[Images, Images, Images]:
    """Training, validation (the last training images) and test images of ``mnist.npz``.

    Raises:
        OptionError: There is no such file; the message says what it holds.
    """
    path = directory / "mnist" / "mnist.npz"
    if not path.exists():
        raise OptionError(f"{path} does not exist; it holds MNIST's x_train, y_train, x_test and y_test as uint8")
    with np.load(path, allow_pickle=False) as arrays:
        known, test = (
            Images(arrays[f"x_{part}"].reshape(-1, SIDE**2), arrays[f"y_{part}"].astype(np.int64))
            for part in ("train", "test")
        )
    return known[:-validation], known[-validation:], test


def rotated(images: Images, degrees: float) -> Images:
    """Turn each image about its centre, counterclockwise, with bilinear interpolation; outside is 0."""
    upright = images.pixels.reshape(-1, SIDE, SIDE).astype(np.float32)
    turned = ndimage.rotate(upright, degrees, axes=(1, 2), reshape=False, order=1)
    return Images(np.rint(turned).astype(np.uint8).reshape(-1, SIDE**2), images.digits)


def noise_images(count: int) -> Images:
    """Images of independent, evenly distributed pixels, which show no digit; their digits are all 0."""
    pixels = np.random.default_rng(0).integers(0, 256, (count, SIDE**2), dtype=np.uint8)
    return Images(pixels, np.zeros(count, np.int64))


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a Bayesian network is fitted.

    Attributes:
        hidden: Widths of the hidden layers.
        prior: Prior of all weights and biases.
        temperature: Factor of the KL; 1 is the exact free energy.
        final_temperature: Factor at the end: it rises by the same ratio in each step of `RISE`. None: it stays.
        warm_up: Share of all steps over which the KL's factor rises from 0 to ``temperature``.
        kl_weights: Share of the KL in each minibatch: ``uniform`` or ``geometric``.
        epochs: Passes over the images.
        batch_size: Images in a step.
        learning_rate: First learning rate of mu (Adam), a fifth of that of rho; both fall along a cosine.
        seed: Seed of the first means, of minibatches and draws.
    """

    hidden: tuple[int, ...]
    prior: Prior
    temperature: float = 1.0
    final_temperature: float | None = None
    warm_up: float = 0.2
    kl_weights: str = "uniform"
    epochs: int = 100
    batch_size: int = 500
    learning_rate: float = 1e-3
    seed: int = 0

    def temperature_at(self, done: float) -> float:
        """Return the KL's factor after a share of all steps."""
        temperature = self.temperature * min(1.0, done / self.warm_up) if self.warm_up else self.temperature
        if self.final_temperature is None:
            return temperature
        risen = min(1.0, max(0.0, (done - RISE[0]) / (RISE[1] - RISE[0])))
        return float(temperature * (self.final_temperature / self.temperature) ** risen)


@dataclass(frozen=True, slots=True)
class PointRecipe:
    """How a network without a posterior is fitted: gradient descent with momentum, plain or with dropout.

    Dropout is that of Srivastava et al. 2014 for MNIST: inputs are kept with probability 0.8, hidden units with 0.5.
    """

    hidden: tuple[int, ...]
    dropout: bool = False
    epochs: int = 40
    batch_size: int = 100
    learning_rate: float = 0.03
    seed: int = 0

    def network(self) -> nn.Sequential:
        """Return the network before its fit, with He-normal weights."""
        torch.manual_seed(self.seed)
        layers: list[nn.Module] = []
        for number, (below, above) in enumerate(zip((SIDE**2, *self.hidden), (*self.hidden, CLASSES), strict=True)):
            linear = nn.Linear(below, above)
            nn.init.kaiming_normal_(linear.weight)
            nn.init.zeros_(linear.bias)
            rate = (0.5 if number else 0.2) if self.dropout else 0.0
            layers += [*([nn.ReLU()] if number else []), nn.Dropout(rate), linear]
        return nn.Sequential(*layers)


def fit_bayes(recipe: Recipe, images: Images, initial: BayesianNetwork | None = None) -> BayesianNetwork:
    """Bayes by Backprop on tens of thousands of rows: the project's network, prior, likelihood and gradient, one loop.

    `model.bbb.fit` is made for tables: a large batch of small networks, validated every few steps. With 50,000 images
    and half a million weights the loop is simpler: a fixed number of epochs, a cosine schedule, no early stopping.

    Args:
        recipe: The recipe.
        images: The training images.
        initial: A fitted network of the same sizes to start from; weights that a pruning removed stay removed.
    """
    inputs, digits = images.inputs, torch.from_numpy(images.digits).float()
    generator = torch.Generator().manual_seed(recipe.seed)
    network = BayesianNetwork(_architecture(recipe, initial), generator)
    with torch.no_grad():  # each sigma is a fifth of the standard deviation of the means of its layer's weights
        means, scales = network.parts(network.mu), network.parts(network.rho)
        for first in range(0, len(means), 2):
            for scale in scales[first : first + 2]:
                scale.copy_(inverse_softplus(0.2 * means[first].std()).expand_as(scale))
    if initial is not None:
        network.load_state_dict(initial.state_dict())
    step = GradientStep(network, Categorical(CLASSES), recipe.prior, total_rows=len(inputs))
    optimisers = (FitState([network.mu]), FitState([network.rho]))
    minibatches = math.ceil(len(inputs) / recipe.batch_size)
    shares, total = kl_weights(recipe.kl_weights, minibatches), recipe.epochs * minibatches
    for epoch in range(recipe.epochs):
        order = torch.randperm(len(inputs), generator=generator)
        for number, rows in enumerate(order.split(recipe.batch_size)):
            done = (epoch * minibatches + number) / total
            rate = recipe.learning_rate * (0.01 + 0.99 * 0.5 * (1.0 + math.cos(math.pi * done)))
            step(
                inputs[rows],
                digits[rows],
                kl_weight=shares[number],
                minibatches=minibatches,
                temperature=recipe.temperature_at(done + 1.0 / total),
                generator=generator,
            )
            for optimiser, factor in zip(optimisers, (1.0, 5.0), strict=True):
                optimiser.step(rate * factor)
        print(f"epoch {epoch + 1} of {recipe.epochs}", end="\r", file=sys.stderr, flush=True)
    return network


def _architecture(recipe: Recipe, initial: BayesianNetwork | None) -> Architecture:
    """Return that of the network to start from, which may lack weights."""
    return Architecture(SIDE**2, recipe.hidden, CLASSES) if initial is None else initial.architecture


def fit_point(recipe: PointRecipe, images: Images) -> nn.Sequential:
    """Fit a network without a posterior; it is returned as it predicts, without dropout."""
    inputs, digits, network = images.inputs, torch.from_numpy(images.digits), recipe.network()
    optimiser = torch.optim.SGD(network.parameters(), lr=recipe.learning_rate, momentum=0.9)
    total = recipe.epochs * math.ceil(len(inputs) / recipe.batch_size)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, total)
    for _ in range(recipe.epochs):
        for rows in torch.randperm(len(inputs)).split(recipe.batch_size):
            optimiser.zero_grad()
            nn.functional.cross_entropy(network(inputs[rows]), digits[rows]).backward()
            optimiser.step()
            schedule.step()
    return network.eval()


def fitted(folder: Path, name: str, recipe: Recipe | PointRecipe, images: Images, initial: Any = None) -> Any:
    """Return a network, fitted now or read from the folder."""
    digest = hashlib.sha256(repr((recipe, len(images))).encode()).hexdigest()[:12]
    path = folder / f"{name}-{digest}.safetensors"
    if not path.exists():
        print(f"fitting {name}", file=sys.stderr, flush=True)
        network: Any = fit_bayes(recipe, images, initial) if isinstance(recipe, Recipe) else fit_point(recipe, images)
        folder.mkdir(parents=True, exist_ok=True)
        safetensors.torch.save_file(dict(network.state_dict()), path)
    if isinstance(recipe, Recipe):
        network = BayesianNetwork(_architecture(recipe, initial), torch.Generator())
    else:
        network = recipe.network().eval()
    network.load_state_dict(safetensors.torch.load_file(path))
    return network


@torch.no_grad()
def mean_answers(network: BayesianNetwork, inputs: Tensor) -> Tensor:
    """Log probabilities with all weights at their means, ``[1, N, C]``, for inputs ``[N, D]``."""
    parts, hidden = network.parts(network.without_removed(network.mu.detach())), inputs
    for first in range(0, len(parts), 2):
        hidden = (network.activation(hidden) if first else hidden) @ parts[first][0] + parts[first + 1][0]
    return torch.log_softmax(hidden, dim=-1)[None]


@torch.no_grad()
def drawn_answers(network: BayesianNetwork, inputs: Tensor, draws: int = DRAWS) -> Tensor:
    """Log probabilities under draws, ``[S, N, C]``.

    Every row has draws of its own (local reparameterisation): a row's distribution is that under draws of the weights,
    at a fraction of the time.
    """
    generator = torch.Generator().manual_seed(0)
    outputs = [network(rows, generator, draws)[0].view(draws, len(rows), -1) for rows in inputs.split(ROWS_AT_A_TIME)]
    return torch.log_softmax(torch.cat(outputs, dim=1), dim=-1)


@torch.no_grad()
def point_answers(network: nn.Sequential, inputs: Tensor, draws: int = 0) -> Tensor:
    """Log probabilities of a network without a posterior, ``[1, N, C]``; or under masks, dropout as a posterior."""
    torch.manual_seed(0)
    network.train(draws > 0)
    found = torch.stack([torch.log_softmax(network(inputs), dim=-1) for _ in range(max(1, draws))])
    network.eval()
    return found


def scores(answers: Callable[[Tensor], Tensor], images: Images) -> Report:
    """Scores of the mean probabilities over draws."""
    return _scores(answers(images.inputs).exp().mean(dim=0).double().numpy(), images)


def _scores(probabilities: Doubles, images: Images) -> Report:
    report = class_report(probabilities, images.digits)
    return report | {"error": 1.0 - report["accuracy"]}


def doubts(answers: Callable[[Tensor], Tensor], kinds: Mapping[str, Images]) -> Report:
    """Kind of images → entropy of the mean probabilities, mutual information of class and weights.

    Means over the images, in nats (Houlsby et al. 2011).
    """
    found = {}
    for kind, images in kinds.items():
        drawn = answers(images.inputs)
        mixed = drawn.logsumexp(dim=0) - math.log(len(drawn))
        total, expected = (-(part.exp() * part).sum(dim=-1) for part in (mixed, drawn))
        found[kind] = [float(total.mean()), float((total - expected.mean(dim=0)).clamp_min(0.0).mean())]
    return found


SCORES: dict[str, Cell] = {"error %": mean("error", 100.0), "log loss": mean("log_loss"), "ECE": mean("ece")}


def doubt_cells(kinds: Iterable[str]) -> dict[str, Cell]:
    """Columns of `doubts`."""
    return {kind: partial(_doubt_cell, kind) for kind in kinds}


def _doubt_cell(kind: str, reports: Sequence[Report]) -> str:
    entropy, information = reports[0][kind]
    return f"{entropy:.3f} ({information:.3f})"


def write_images(
    root: Path, name: str, recipe: Recipe, network: BayesianNetwork, training: Images, validation: Images
) -> Path:
    """Calibrates a network on the validation images and writes it as a checkpoint, which ``murho serve`` serves.

    A pixel is divided by 126 and nothing else. It is bounded, so there are no inputs for the distance beyond its
    training range; values that no training image has at a pixel are still said in warnings.
    """
    ends = zip(training.pixels.min(axis=0), training.pixels.max(axis=0), strict=True)
    features = tuple(
        Feature(pixel, FeatureKind.NUMERIC, None, False, float(low), float(high), ())
        for pixel, (low, high) in zip(_pixels(), ends, strict=True)
    )
    schema = Schema(features, Target("digit", None, tuple(str(digit) for digit in range(CLASSES))), {})
    parts = tuple(Standard(feature, Scale(0.0, PIXEL_SCALE), bounded=True) for feature in features)
    shares = ClassShares.of(training.digits.astype(np.float64), CLASSES)
    spec = ModelSpec(
        architecture=network.architecture,
        prior=recipe.prior,
        likelihood=LikelihoodSpec("categorical", shares=shares),
        target=Standardisation(Identity(), 0.0, 1.0),
        schema=schema,
        encoder=Encoder(schema, "standard", parts),
    ).stamp(training={"rows": len(training), "epochs": recipe.epochs, "recipe": repr(recipe)})
    tensors = {key: tensor.detach().clone() for key, tensor in network.named_tensors().items()}
    judged = calibrate_held_out(
        Posterior(spec, tensors, engine="torch"),
        Encoded.like(validation.inputs.numpy()),
        validation.digits.astype(np.float64),
        [HeldOut(part, None) for part in np.array_split(np.arange(len(validation)), 5)],
        calibrating=range(5),
    )
    return Posterior(replace(spec, calibration=judged.conformal, metrics=judged.metrics), tensors).save(root, name)


def _pixels() -> list[str]:
    return [f"pixel_{row:02d}_{column:02d}" for row in range(SIDE) for column in range(SIDE)]


def served_scores(checkpoint: Path, images: Images) -> Report:
    """Scores of what a checkpoint answers when it is served."""
    values = dict(zip(_pixels(), np.ascontiguousarray(images.pixels.astype(np.float64).T), strict=True))
    answer = Posterior.load(checkpoint, engine="torch").predict(values, PredictOptions(samples=DRAWS))
    return _scores(answer.probabilities, images)
