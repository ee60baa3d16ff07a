"""The rows of a fit: encoded inputs, standardised targets, who learns from them, and the scores of held-out rows.

`TrainingData` gives the rows of a table for any encoding and transform. `Rows` says which of them each member learns
from.

Held-out rows are scored under the mixture of their judges, the members that have not learned from them. A scorer keeps
what it needs of the outputs of a chunk of rows, and later scores the mixture of all draws. The first score is the
negative log likelihood; the second one is a proper score that is easier to read. The score of m members together is
``a + b / m`` in expectation, so the scores of one judge and of all judges tell that of all members (`ensemble_score`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from murho.model.bbb.network import are_alike, mixed_reading
from murho.model.distributions.transforms import TRANSFORMS, Identity, Standardisation
from murho.model.encoding.distribution_fit import fit_feature_distribution
from murho.model.encoding.encoder import MIXED, PIECEWISE, Encoded, Encoder, InputChoice
from murho.model.errors import OptionError, TableError
from murho.model.tables.splits import folds_of, partition_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from murho.model.bbb.likelihood import ClassLikelihood, Likelihood, NumericLikelihood
    from murho.model.bbb.network import BayesianNetwork
    from murho.model.distributions.transforms import Limits
    from murho.model.encoding.feature_distribution import FeatureDistribution
    from murho.model.tables.schema import Columns, Schema
    from murho.model.tables.splits import Split

__all__ = [
    "DRAWS",
    "LEAST_LOG_DENSITY",
    "ClassScorer",
    "NumberScorer",
    "RowScorer",
    "Rows",
    "SeenRows",
    "TrainingData",
    "ensemble_score",
    "held_out_row_scores",
    "mixture_nll",
    "scores_of_judges",
    "select_rows",
]


Score = TypeVar("Score", float, "NDArray[np.float64]", "Tensor")


def ensemble_score(single: Score, mixture: Score, count: int, members: int) -> Score:
    """Extrapolate a score along ``a + b / m`` from m = 1 and m = ``count`` to m = ``members``.

    For m exchangeable members the line is exact in expectation for

    - the CRPS: ``E|X - X'|`` of the mixture is ``1 / m`` times its value within a member plus ``1 - 1 / m`` times its
      value between two (Ferro, Richardson and Weigel 2008, "On the effect of ensemble size on the discrete and
      continuous ranked probability scores", doi:10.1002/met.45);
    - the squared error of the mean: with members' means ``f_i = E f + e_i``, where the ``e_i`` have variance v and
      covariance c, ``E(mean_i f_i - y)^2 = E(E f - y)^2 + c + (v - c) / m`` (Ueda and Nakano 1996, "Generalization
      error of ensemble estimators", doi:10.1109/ICNN.1996.548872);
    - the variance of the mixture: the mean of the members' variances plus ``1 - 1 / m`` times the variance between
      their means (the law of total variance).

    For the absolute error of the mean it holds to first order in ``1 / m``. For the negative log likelihood it is
    approximate: measured gains of ten members are 0.7 to 1.4 times the predicted ones. It holds row by row, so the
    extrapolated scores of rows have a mean and a standard error like any others.

    Args:
        single: Score of single members, the mean over those that count; a number, or one for each row, ``[n]``.
        mixture: Score of their mixture, likewise.
        count: Number of members in that mixture.
        members: M, the number of members that will answer.

    Returns:
        The score at ``m = members``; ``mixture`` where ``count`` is 1, because one point gives no line.
    """
    if count <= 1:
        return mixture
    gained = (1.0 / count - 1.0 / members) / (1.0 - 1.0 / count)
    return mixture - gained * (single - mixture)


LEAST_LOG_DENSITY = -15.0
"""Floor of the log density of a validation row, nats: that of a target 5.3 standard deviations from the mean.

A single cell with a misplaced decimal point may lie thousands of standard deviations off. Without the floor, it alone
would decide when to stop and which observation model to keep."""


class RowScorer(Protocol):
    """Scores rows by the outputs of a network for draws of their judges."""

    def parts(self, outputs: Tensor) -> tuple[Tensor, ...]:
        """What the scores need of the outputs ``[M, n, P]``: one tensor or more, broadcastable to ``[M, n, K]``."""
        ...

    def scores(self, parts: Sequence[Tensor], targets: Tensor) -> Tensor:
        """Scores of B rows under the mixture of J judges with S draws each.

        Args:
            parts: Parts of the rows, ``[J, S, B, K]`` each, float64.
            targets: ``[B]``, the target's unit, or class indices.

        Returns:
            Negative log likelihood in nats and the second score, ``[2, B]``.
        """
        ...


@dataclass(frozen=True, slots=True)
class NumberScorer:
    """Negative log likelihood and CRPS, in the target's unit: comparable over fits of any transform.

    Attributes:
        likelihood: The observation model.
        standardisation: Transform, location and scale of the targets in the fit.
        spread: Standard deviation of the targets, their unit: it sets the floor of the log density.
    """

    likelihood: NumericLikelihood
    standardisation: Standardisation
    spread: float

    def parts(self, outputs: Tensor) -> tuple[Tensor, ...]:
        """What the predictive is made of; see `RowScorer.parts`."""
        return self.likelihood.parts(outputs)

    def scores(self, parts: Sequence[Tensor], targets: Tensor) -> Tensor:
        """NLL and CRPS; see `RowScorer.scores`."""
        predictive = self.likelihood.predictive([part.flatten(0, 1) for part in parts], self.standardisation)
        floor = LEAST_LOG_DENSITY - math.log(self.spread or self.standardisation.scale)
        nll = -predictive.log_density(targets).clamp_min(floor)
        return torch.stack((nll, predictive.crps(targets)))


@dataclass(frozen=True, slots=True)
class ClassScorer:
    """Log loss and Brier score of class probabilities.

    Attributes:
        likelihood: The observation model.
    """

    likelihood: ClassLikelihood

    def parts(self, outputs: Tensor) -> tuple[Tensor, ...]:
        """The class probabilities; see `RowScorer.parts`."""
        return (self.likelihood.log_probabilities(outputs).exp(),)

    def scores(self, parts: Sequence[Tensor], targets: Tensor) -> Tensor:
        """Log loss in nats, and the Brier score: the sum of squares over the classes; see `RowScorer.scores`."""
        probabilities = parts[0].flatten(0, 1).mean(dim=0)  # [B, C]
        index = targets.long().unsqueeze(1)
        observed = torch.zeros_like(probabilities).scatter_(1, index, 1.0)
        chosen = probabilities.gather(1, index).squeeze(1)
        log_loss = -chosen.clamp_min(math.exp(LEAST_LOG_DENSITY)).log()
        return torch.stack((log_loss, (probabilities - observed).square().sum(dim=1)))


DRAWS = 32
"""Draws per row of `held_out_row_scores`, divided among the judges of the row."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Encoded rows and standardised targets.

    Attributes:
        features: ``[N, D]``, float32.
        targets: ``[N]``, float32.
        folds: Fold of each row in each of P partitions, ``[P, N]``. Of F folds, member m does not see fold ``m mod F``
            of its partition (`model.tables.splits.partition_of`). None: every member sees all rows.
        forward: Whether folds are blocks in time: member m then does not see later folds either.
        weights: Weight of each row in the loss and in scores, ``[N]``, float32, of mean 1 over the training rows; None:
            all are 1. A weight says how important a row is, not how often it was seen.
    """

    features: Tensor
    targets: Tensor
    folds: Tensor | None = None
    forward: bool = False
    weights: Tensor | None = None

    def __len__(self) -> int:
        return len(self.targets)

    def to(self, device: torch.device) -> Rows:
        """The same rows on another device."""
        folds, weights = (None if part is None else part.to(device) for part in (self.folds, self.weights))
        return Rows(self.features.to(device), self.targets.to(device), folds, self.forward, weights)

    def mean(self, values: Tensor) -> Tensor:
        """The weighted mean of a value per row, ``[N]`` or ``[…, N]``."""
        if self.weights is None:
            return values.mean(dim=-1)
        weights = self.weights.to(values)
        return (values * weights).sum(dim=-1) / weights.sum()

    def seen_by(self, members: int) -> SeenRows:
        """The rows that each member sees."""
        if self.folds is None:
            return SeenRows(torch.arange(len(self), device=self.targets.device).unsqueeze(0), (len(self),))
        lists = []
        for folds, fold in self._folds_of(members):
            seen = folds < fold if self.forward else folds != fold
            lists.append(seen.nonzero().squeeze(1))
        return SeenRows(torch.nn.utils.rnn.pad_sequence(lists, batch_first=True), tuple(len(rows) for rows in lists))

    def judges(self, members: int) -> int:
        """Number of judges of a row, J: of M members those that have not seen the row; all M without folds."""
        return members if self.folds is None else members // folds_of(members)

    def judged_by(self, members: int, size: int) -> Iterator[tuple[Tensor, Judgements]]:
        """Chunks of about ``size`` rows in all: the numbers of the rows that each member judges, and their places.

        Without folds all members judge all rows: ``[B]``. With folds each member judges the rows that it has not seen:
        ``[M, B]``, with shorter lists padded.
        """
        device = self.targets.device
        if self.folds is None:
            for numbers in torch.arange(len(self), device=device).split(size):
                valid = torch.ones((members, len(numbers)), dtype=torch.bool, device=device)
                judge = torch.arange(members, device=device).unsqueeze(1).expand_as(valid)
                yield numbers, Judgements(valid, judge[valid], numbers.expand_as(valid)[valid])
            return
        lists = [(folds == fold).nonzero().squeeze(1) for folds, fold in self._folds_of(members)]
        rows = torch.nn.utils.rnn.pad_sequence(lists, batch_first=True)
        lengths = torch.tensor([len(rows) for rows in lists], device=device)
        not_padding = torch.arange(rows.shape[1], device=device) < lengths.unsqueeze(1)
        judges = (torch.arange(members, device=device) // folds_of(members)).unsqueeze(1)
        width = max(1, size // members)
        for numbers, valid in zip(rows.split(width, dim=1), not_padding.split(width, dim=1), strict=True):
            yield numbers, Judgements(valid, judges.expand_as(valid)[valid], numbers[valid])

    def _folds_of(self, members: int) -> Iterator[tuple[Tensor, int]]:
        """For each member the folds of its partition, ``[N]``, and the fold that it judges; nothing without folds."""
        if self.folds is None:
            return
        count, partitions = folds_of(members), len(self.folds)
        for member in range(members):
            yield self.folds[partition_of(member, members, partitions)], member % count


@dataclass(frozen=True, slots=True)
class SeenRows:
    """The rows that each member learns from, and their order in an epoch.

    Folds may differ in size. Members take their steps together, so in an epoch a member with fewer rows sees some of
    them again, others in each epoch.

    Attributes:
        rows: Numbers of the rows, ``[M, n]``, with shorter lists padded; ``[1, N]`` if all members see all rows.
        counts: Number of rows of each member; n is the largest.
    """

    rows: Tensor
    counts: tuple[int, ...]

    @property
    def longest(self) -> int:
        """Number of rows in an epoch, n."""
        return self.rows.shape[1]

    @property
    def uneven(self) -> Tensor | None:
        """N over the number of rows of each member, ``[M]``; None if the numbers differ by one row at most."""
        if self.longest - min(self.counts) <= 1:
            return None
        return self.longest / torch.tensor(self.counts, dtype=torch.float32, device=self.rows.device).clamp_min(1.0)

    def shuffled(self, generator: torch.Generator) -> Tensor:
        """Numbers of the rows in a random order, ``[M, n]`` or ``[1, N]``.

        Args:
            generator: Source of the order, on the CPU.
        """
        keys = torch.rand(self.rows.shape, generator=generator)
        if min(self.counts) < self.longest:
            counts = torch.tensor(self.counts).clamp_min(1).unsqueeze(1)
            places = torch.arange(self.longest)
            order = keys.masked_fill(places >= counts, 2.0).argsort(dim=1).gather(1, places % counts)
        else:
            order = keys.argsort(dim=1)
        return self.rows.gather(1, order.to(self.rows.device))


@dataclass(frozen=True, slots=True)
class Judgements:
    """Places of the values of a chunk of `Rows.judged_by` in an array of all judges and rows.

    Attributes:
        valid: Mask of the entries of ``[M, B]`` that are rows to judge and not padding; n entries.
        judges: Index of the member among the judges of the row, ``[n]``.
        rows: Number of the row, ``[n]``.
    """

    valid: Tensor
    judges: Tensor
    rows: Tensor

    def put(self, values: Tensor, into: Tensor) -> None:
        """Write values ``[M, B, …]`` to their places in ``[J, N, …]``, for J judges."""
        into[self.judges, self.rows] = values[self.valid].to(into)


def _described(network: BayesianNetwork, judges: int) -> int:
    """Number of members that scores of so many judges are extrapolated to.

    Where the judges of a row are of two kinds that read different inputs, they differ more than two members of one
    kind. The line through one and both would promise too much, so scores stay those of the judges.
    """
    reads = None if network.reads is None else network.reads.squeeze(1).bool()
    return network.architecture.members if are_alike(reads) else judges


def mixture_nll(
    network: BayesianNetwork,
    likelihood: Likelihood,
    rows: Rows,
    draws: int,
    seed: int,
) -> float:
    """Negative log likelihood of the mixture over ``draws`` draws per row and all members, nats per row.

    Only members that have not seen a row judge it. If these are several members, but not all, the score is extrapolated
    to all members by `model.bbb.rows.ensemble_score`. No row adds more than 15 nats
    (`LEAST_LOG_DENSITY`).

    With weights, it is the weighted mean over rows.

    The same seed gives the same noise in every call, so two sets of parameters compare fairly. Local reparameterisation
    is exact here, because the density of a single row does not depend on draws that rows share.
    """
    generator = torch.Generator(rows.features.device).manual_seed(seed)
    members, judges = network.architecture.members, rows.judges(network.architecture.members)
    single = torch.empty((judges, len(rows)), dtype=torch.float64, device=rows.features.device)
    with torch.no_grad():
        for numbers, places in rows.judged_by(members, 2048):
            outputs = network(rows.features[numbers], generator, draws)
            targets = rows.targets[numbers]
            observed = targets.repeat(*[1] * (targets.dim() - 1), draws)
            densities = likelihood.log_density(outputs, observed).double()
            densities = densities.reshape(len(densities), draws, -1)
            places.put(torch.logsumexp(densities, dim=1) - math.log(draws), single)
    mixture = torch.logsumexp(single, dim=0) - math.log(judges)
    alone = -float(rows.mean(single.clamp_min(LEAST_LOG_DENSITY)).mean())
    together = -float(rows.mean(mixture.clamp_min(LEAST_LOG_DENSITY)))
    return ensemble_score(alone, together, judges, _described(network, judges))


def held_out_row_scores(
    network: BayesianNetwork,
    rows: Rows,
    targets: Tensor,
    scorer: RowScorer,
    *,
    seed: int,
    draws: int = DRAWS,
) -> Tensor:
    """Scores of the mixture of the judges of every row.

    They are extrapolated to all members if several, but not all, have not seen a row
    (`model.bbb.rows.ensemble_score`).

    Args:
        network: The fitted network, on the CPU.
        rows: The rows; only members that have not seen a row judge it.
        targets: Targets of the rows, ``[N]``, float64: the target's unit, or class indices.
        scorer: Scores the rows.
        seed: Seed of the draws.
        draws: Draws per row, S, divided among the judges of the row.

    Returns:
        Both scores of each row, ``[2, N]``, float64. If rows have weights, each row's scores are multiplied by its
        weight over the mean weight of these rows.
    """
    kept = _parts(network, rows, scorer, seed, draws)
    judges = len(kept[0])
    alone, together = torch.zeros((2, len(rows))).double(), torch.zeros((2, len(rows))).double()
    for block in torch.arange(len(rows)).split(1024):
        parts = [part[:, block].double().movedim(2, 1) for part in kept]
        together[:, block] = scorer.scores(parts, targets[block])
        for judge in range(judges if judges > 1 else 0):
            alone[:, block] += scorer.scores([part[judge : judge + 1] for part in parts], targets[block]) / judges
    # The extrapolation is linear, so it may be made row by row.
    scores = ensemble_score(alone, together, judges, _described(network, judges))
    return scores if rows.weights is None else scores * (rows.weights / rows.weights.mean()).to(scores)


def scores_of_judges(
    network: BayesianNetwork, rows: Rows, targets: Tensor, scorer: RowScorer, *, seed: int, draws: int = DRAWS
) -> Tensor:
    """First score of each judge alone, and of the mixture of all judges, weighted means over rows, ``[J + 1]``.

    The arguments are those of `held_out_row_scores`. Judge j is a member of partition j.
    """
    parts = [part.double().movedim(2, 1) for part in _parts(network, rows, scorer, seed, draws)]
    alone = [scorer.scores([part[judge : judge + 1] for part in parts], targets)[0] for judge in range(len(parts[0]))]
    return torch.stack([rows.mean(scores) for scores in (*alone, scorer.scores(parts, targets)[0])])


def _parts(network: BayesianNetwork, rows: Rows, scorer: RowScorer, seed: int, draws: int) -> list[Tensor]:
    """What a scorer takes of the outputs for every judge and row, ``[J, N, draws of a judge, …]`` each."""
    generator = torch.Generator().manual_seed(seed + 4)
    members, judges = network.architecture.members, rows.judges(network.architecture.members)
    draws = max(1, draws // judges)
    kept: list[Tensor] = []
    with torch.no_grad():
        for numbers, places in rows.judged_by(members, 1024):
            chunk = [
                part.expand(members, draws * numbers.shape[-1], -1).unflatten(1, (draws, -1)).movedim(1, 2)
                for part in scorer.parts(network(rows.features[numbers], generator, draws))
            ]
            kept = kept or [torch.empty(judges, len(rows), *part.shape[2:]) for part in chunk]
            for part, into in zip(chunk, kept, strict=True):
                places.put(part, into)
    return kept


def select_rows(columns: Columns, rows: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """The given rows of all columns."""
    return {name: column[rows] for name, column in columns.items()}


@dataclass
class TrainingData:
    """The table that all fits of one training share. Each encoding is computed once.

    Attributes:
        schema: Features and target.
        columns: Canonical columns of all rows, ``[N]`` each.
        targets: ``[N]``, the target's unit, or class indices.
        split: Training, validation and calibration rows, and the folds of the members.
        weights: Weight of each row, ``[N]``, of mean 1 over the training rows; None: all are 1.
        limits: Limits of the target; None: there are none.
    """

    schema: Schema
    columns: Columns
    targets: NDArray[np.float64]
    split: Split
    weights: NDArray[np.float64] | None = None
    limits: Limits | None = None
    _encoders: dict[InputChoice, Encoder] = field(default_factory=dict)
    _encoded: dict[InputChoice, Encoded] = field(default_factory=dict)

    def encoder(self, inputs: InputChoice) -> Encoder:
        """The encoder of a choice of inputs, fitted to the training rows."""
        inputs = _of_encoder(inputs)
        if inputs not in self._encoders:
            training = select_rows(self.columns, self.split.learned)
            self._encoders[inputs] = Encoder.fit(
                self.schema,
                training,
                encoding=inputs.encoding,
                whitened=inputs.whitened,
                distribution=self.distribution,
                unread=inputs.unread_by_all,
            )
        return self._encoders[inputs]

    @cached_property
    def distribution(self) -> FeatureDistribution | None:
        """The distribution of the features over the training rows; None for very few rows."""
        learned = self.split.learned
        folds = self.split.distant_folds()
        return fit_feature_distribution(
            self.schema,
            select_rows(self.columns, learned),
            None if folds is None else folds[learned],
            units=None if self.split.units is None else self.split.units.of_rows[learned],
            forward=self.split.forward,
        )

    def encoded(self, inputs: InputChoice) -> Encoded:
        """All rows as a choice of inputs."""
        inputs = _of_encoder(inputs)
        if inputs not in self._encoded:
            self._encoded[inputs] = self.encoder(inputs).encode(self.columns)
        return self._encoded[inputs]

    def reads(self, inputs: InputChoice, members: int) -> torch.Tensor | None:
        """Whether each member reads each input, ``[M, D]``; None: all do."""
        encoder = self.encoder(inputs)
        every = torch.ones(members, encoder.width, dtype=torch.bool)
        reads = mixed_reading(members, encoder.width, encoder.bins) if inputs.encoding == MIXED else every
        for member, names in enumerate(inputs.unread):
            for name in names:
                reads[member, encoder.columns_of[name]] = False
        return None if inputs.encoding != MIXED and bool(reads.all()) else reads

    def fits(self, transform: str) -> bool:
        """Whether the training targets lie in a transform's domain."""
        if self.schema.target.classes is not None:
            return transform == Identity().kind
        return TRANSFORMS[transform].fit(self._training_targets()) is not None

    def standardisation(self, transform: str) -> Standardisation:
        """A transform by name, with location and scale (weighted) of the transformed training targets.

        Raises:
            OptionError: The training targets lie outside of the transform's domain.
            TableError: The training targets are all the same.
        """
        if self.schema.target.classes is not None:  # networks learn the class indices as they are
            return Standardisation(Identity(), 0.0, 1.0)
        targets = self._training_targets()
        fitted = TRANSFORMS[transform].fit(targets)
        if fitted is None:
            raise OptionError(
                f"--transform {transform}: target {self.schema.target.name!r} has negative values "
                f"(the least is {float(targets.min()):g}); use --transform none"
            )
        values = fitted.forward(targets).numpy()
        if self.weights is None:
            location, scale = float(values.mean()), float(values.std())
        else:
            weights = self.weights[self.split.training]
            location = float(np.average(values, weights=weights))
            scale = float(np.average((values - location) ** 2, weights=weights)) ** 0.5
        if not (math.isfinite(scale) and scale > 0.0):
            raise TableError(
                f"target {self.schema.target.name!r} has the same value in all {len(values)} training rows; "
                "nothing can be learned"
            )
        return Standardisation(fitted, location, scale, self.limits)

    def learned_rows(self, inputs: InputChoice, transform: str) -> Rows:
        """The rows that the members which serve learn from after forward judging (`Split.newest`)."""
        encoded, standardisation = self.encoded(inputs), self.standardisation(transform)
        numbers = self.split.learned
        targets = standardisation.forward(torch.from_numpy(self.targets[numbers])).float()
        weights = None if self.weights is None else torch.from_numpy(self.weights[numbers]).float()
        folds = self.split.newest()
        return Rows(
            torch.from_numpy(encoded.inputs[numbers]),
            targets,
            None if folds is None else torch.from_numpy(folds),
            forward=True,
            weights=weights,
        )

    def rows(self, inputs: InputChoice, transform: str) -> tuple[Rows, Rows]:
        """Training and validation rows, encoded and standardised."""
        encoded, standardisation = self.encoded(inputs), self.standardisation(transform)
        targets = standardisation.forward(torch.from_numpy(self.targets)).float()
        folds = None if self.split.folds is None else torch.from_numpy(self.split.folds)
        weights = None if self.weights is None else torch.from_numpy(self.weights).float()

        def part(numbers: NDArray[np.int64]) -> Rows:
            return Rows(
                torch.from_numpy(encoded.inputs[numbers]),
                targets[numbers],
                None if folds is None else folds[:, numbers],
                self.split.forward,
                None if weights is None else weights[numbers],
            )

        return part(self.split.training), part(self.split.validation)

    def _training_targets(self) -> torch.Tensor:
        return torch.from_numpy(self.targets[self.split.learned])


def _of_encoder(inputs: InputChoice) -> InputChoice:
    """What the encoder depends on: all members have the same."""
    encoding = PIECEWISE if inputs.encoding == MIXED else inputs.encoding
    return InputChoice(encoding, inputs.whitened, (inputs.unread_by_all,) if inputs.unread_by_all else ())
