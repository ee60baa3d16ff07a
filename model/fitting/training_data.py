"""The data of a training: encoded rows and standardised targets of a table, for any encoding and transform."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from murho.model.distributions.transforms import TRANSFORMS, Identity, Standardisation
from murho.model.encoding.distribution_fit import fit_feature_distribution
from murho.model.encoding.encoder import Encoder
from murho.model.encoding.encodings import MIXED, PIECEWISE
from murho.model.encoding.input_choice import InputChoice
from murho.model.errors import OptionError, TableError
from murho.model.fitting.cross_fit_rows import Rows
from murho.model.networks.read_inputs import mixed_reading

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from murho.model.data.schema import Columns, Schema
    from murho.model.data.splits import Split
    from murho.model.distributions.limits import Limits
    from murho.model.encoding.feature_distribution import FeatureDistribution

__all__ = ["TrainingData", "select_rows"]


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
    _encoded: dict[InputChoice, NDArray[np.float32]] = field(default_factory=dict)

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

    def encoded(self, inputs: InputChoice) -> NDArray[np.float32]:
        """All rows as a choice of inputs, ``[N, D]``."""
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
            return transform == Identity.kind
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
            torch.from_numpy(encoded[numbers]),
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
                torch.from_numpy(encoded[numbers]),
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
