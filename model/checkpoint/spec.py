"""The specification of a checkpoint: the content of ``model.json``, read once and checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Annotated, Any, Self

import numpy as np
import torch
from pydantic import Field, TypeAdapter
from torch import Tensor

from murho.model.arrays import Doubles
from murho.model.bbb.likelihood import Likelihood
from murho.model.bbb.network import Architecture, noise_tensors
from murho.model.bbb.priors import Prior, StoredPrior
from murho.model.bbb.registry import KINDS, make_likelihood
from murho.model.calibration.class_calibration import Calibration, ClassCalibration
from murho.model.calibration.totals_calibration import TotalsCalibration
from murho.model.distributions.mixtures import WideRule
from murho.model.distributions.target_transforms import Standardisation
from murho.model.encoding.encoder import Encoder, with_schema
from murho.model.json_validation import Count, MisfitError, Positive, Share, Stored, one_of, read_as, read_strictly
from murho.model.tables.schema import Name, Schema

ROWS_OF_SHARES = 1.0
"""The shares weigh as much as this number of rows beside the N training rows: N rows can't tell a smaller probability
of an exception from none. Fits on small tables lost .003 nats a row with 0.5."""


@dataclass(frozen=True, slots=True)
class ClassShares(Stored):
    """The class shares of a checkpoint.

    Attributes:
        values: Share of each class, positive, of sum 1.
        weight: Least weight of the shares in an answer, from 0 to 1.
    """

    values: tuple[Positive, ...]
    weight: Share

    def __post_init__(self) -> None:
        """Raise a `MisfitError` unless the shares have the sum 1."""
        if not math.isclose(sum(self.values), 1.0, abs_tol=1e-6):
            raise MisfitError("values", "positive numbers of sum 1", self.values)

    @classmethod
    def of(cls, codes: Doubles, classes: int, weights: Doubles | None = None) -> Self:
        """Return the shares of training rows, as if there were one more row of each class: none is 0.

        Args:
            codes: Index of the class of each row, ``[N]``.
            classes: C.
            weights: Weights of the rows, ``[N]``; None: all count alike.
        """
        counts = np.bincount(codes.astype(np.int64), weights, minlength=classes) + 1.0
        return cls(tuple((counts / counts.sum()).tolist()), ROWS_OF_SHARES / (len(codes) + 1.0))

    def after(self, rows_before: int, codes: Doubles) -> Self:
        """Return the shares after an update.

        Args:
            rows_before: Number of rows behind these shares.
            codes: Index of the class of each new row, ``[N]``.
        """
        counts = np.array(self.values) * (rows_before + len(self.values))
        counts += np.bincount(codes.astype(np.int64), minlength=len(self.values))
        return type(self)(tuple((counts / counts.sum()).tolist()), ROWS_OF_SHARES / (rows_before + len(codes) + 1.0))

    def tensor(self, device: torch.device) -> Tensor:
        """Return the shares, ``[C]``, float64."""
        return torch.tensor(self.values, dtype=torch.float64, device=device)


@dataclass(frozen=True, slots=True)
class LikelihoodSpec(Stored):
    """The observation model of a checkpoint.

    Attributes:
        kind: One of `model.bbb.registry.KINDS`.
        sigma: Known noise in standardised units, for ``fixed``.
        components: K, for ``mixture``.
        wide: The rule of the wide component; None: there is none.
        shares: Shares of the classes; None: the target is a number.
    """

    kind: Annotated[str, one_of(*KINDS)]
    sigma: float | None = None
    components: Annotated[int, Field(ge=1)] | None = None
    wide: WideRule | None = None
    shares: ClassShares | None = None

    def __post_init__(self) -> None:
        """Raise an `OptionError` unless ``sigma`` and ``components`` are those of the kind."""
        self.make(members=1)

    def make(self, members: int) -> Likelihood:
        """Build the observation model of M members, before its parameters are loaded.

        Raises:
            OptionError: ``sigma`` or ``components`` is out of range, or missing although ``kind`` needs it.
        """
        classes = None if self.shares is None else len(self.shares.values)
        return make_likelihood(
            self.kind, members=members, sigma=self.sigma, components=self.components, classes=classes
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelSpec(Stored):
    """The meaning and the origin of a checkpoint's parameters.

    Attributes:
        created: Time when it was made, ISO 8601; None: it is not finished.
        murho: Version of Murho that made it; None: it is not finished.
        architecture: The network's sizes.
        prior: Prior of the weights in training; None: it is not known.
        likelihood: The observation model.
        target: Transform and standardisation of the target that the network learned.
        schema: Features and target.
        encoder: Maps the features to the network's D inputs.
        calibration: Map to calibrated bands, or of a classifier to calibrated probabilities; None: there is none.
        totals: What held-out totals say of predicted ones; None: nothing is known.
        default_seed: Seed of the draws where a request gives none.
        training: Facts of the training, as JSON: rows, epochs, candidates, options.
        metrics: Scores on held-out rows, as JSON.
        records: Facts of what made it, as JSON: ``update`` and ``pruning`` (`model.training`), and ``estimator``.
    """

    created: Name | None = None
    murho: Name | None = None
    architecture: Architecture
    prior: Annotated[Prior, read_as(StoredPrior)] | None = None
    likelihood: LikelihoodSpec
    target: Standardisation
    schema: Schema
    encoder: Encoder
    calibration: Annotated[Calibration, Field(discriminator="method")] | None = None
    totals: TotalsCalibration | None = None
    default_seed: Count = 0
    training: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    records: Mapping[Annotated[str, one_of("update", "pruning", "estimator")], Mapping[str, Any]] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        """Check that the parts fit each other.

        Raises:
            MisfitError: Shares or calibration are not of the target's kind, a fact that is read has another type, or
                the network's numbers of inputs or outputs do not match the encoding or the likelihood.
        """
        needed = {
            "inputs": (self.encoder.width, "encoded features"),
            "outputs": (self.likelihood.make(members=1).outputs, f"outputs of {self.likelihood.kind} noise"),
        }
        classes, shares = self.schema.target.classes, self.likelihood.shares
        if (classes is None) != (shares is None) or (shares is not None and len(shares.values) != len(classes or ())):
            expected = "one share a class of schema.target, or neither classes nor shares"
            raise MisfitError("likelihood.shares", expected, None if shares is None else shares.values)
        if self.calibration is not None and isinstance(self.calibration, ClassCalibration) != (classes is not None):
            raise MisfitError("calibration.method", f"one of a {self.schema.target.task}", self.calibration.method)
        update = self.records.get("update", {})
        learned = {"training.rows": self.training.get("rows"), "records.update.total_rows": update.get("total_rows")}
        for path, rows in learned.items():
            if rows is not None and (type(rows) is not int or rows < 0):
                raise MisfitError(path, "a whole number from 0", rows)
        if not isinstance(self.training.get("temperature", 1.0), float):
            raise MisfitError("training.temperature", "a number", self.training["temperature"])
        for name, (count, what) in needed.items():
            found = getattr(self.architecture, name)
            if found != count:
                raise MisfitError(f"architecture.{name}", f"{count}, the number of {what}", found)

    @property
    def rows_learned(self) -> int:
        """Number of rows of the training and of all updates; 0 if the file does not give it."""
        return int(self.records.get("update", {}).get("total_rows") or self.training.get("rows", 0))

    @property
    def temperature(self) -> float:
        """Factor of the KL in training."""
        return float(self.training.get("temperature", 1.0))

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every tensor of the checkpoint."""
        noise = noise_tensors(self.likelihood.make(self.architecture.members))
        return self.architecture.shapes() | {name: tuple(tensor.shape) for name, tensor in noise.items()}

    def stamp(self, **changes: Any) -> Self:
        """Copy with changes, and with the present time and version of Murho.

        Args:
            changes: New values of attributes.
        """
        created = datetime.now(UTC).isoformat(timespec="seconds")
        return replace(self, created=created, murho=version("murho"), **changes)

    @classmethod
    def from_json(cls, data: object, where: str = "") -> Self:
        """See `Stored.from_json`."""
        if isinstance(data, dict) and {"schema", "encoder"} <= set(data):
            data = data | {"encoder": with_schema(data["encoder"], data["schema"])}
        spec: Self = read_strictly(cls, data, where)
        return spec

    @staticmethod
    def json_schema() -> dict[str, Any]:
        """Return the JSON Schema of ``model.json``, without the fields of `model.checkpoint.checkpoint.FILE_FIELDS`."""
        return TypeAdapter(ModelSpec).json_schema(mode="serialization")
