"""The specification of a checkpoint: the content of ``model.json``, read once and checked."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Self, cast

from murho.model.data.schema import Schema
from murho.model.distributions.calibration import ConformalMap
from murho.model.distributions.class_calibration import ClassCalibration
from murho.model.encoding.encoder import Encoder
from murho.model.encoding.training_range import BeyondRule
from murho.model.engines.class_target_model import ClassTargetModel
from murho.model.engines.target_model import TargetModel
from murho.model.errors import CheckpointError
from murho.model.json_validation import (
    expect_number,
    expect_object,
    expect_text,
    expect_whole,
    wrong,
)
from murho.model.likelihoods.class_likelihood import ClassLikelihood
from murho.model.networks.bayesian_network import Architecture
from murho.model.networks.named_tensors import noise_tensors
from murho.model.networks.priors import prior_from_json, prior_to_json
from murho.model.posterior.class_shares import ClassShares
from murho.model.posterior.seal import SEAL
from murho.model.posterior.spec_parts import LikelihoodSpec, target_from_json, target_to_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from murho.model.distributions.transforms import Standardisation
    from murho.model.engines.target_models import AnyTargetModel
    from murho.model.likelihoods.likelihood import Likelihood, NumericLikelihood
    from murho.model.networks.priors import Prior

__all__ = ["FILE_FIELDS", "ModelSpec"]

FILE_FIELDS = ("format", "name", "tensors", "proof", SEAL)
"""Fields of ``model.json`` that describe the two files, not the model. The writer of a checkpoint adds them."""

_PARTS = (
    "created",
    "murho",
    "architecture",
    "prior",
    "likelihood",
    "target",
    "schema",
    "encoding",
    "beyond",
    "calibration",
    "default_seed",
    "training",
    "metrics",
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelSpec:
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
        beyond: The rule for rows beyond the training rows.
        calibration: Map to calibrated bands, a `ConformalMap`, or of a classifier to calibrated probabilities, a
            `ClassCalibration`; None: there is none.
        default_seed: Seed of the draws where a request gives none.
        training: Facts of the training, as JSON: rows, epochs, candidates, options.
        metrics: Scores on held-out rows, as JSON.
        records: Further fields of the file, as JSON by key: ``update`` and ``pruning`` (see `model.revision`),
            ``estimator``, and fields that this version of Murho does not know.
    """

    created: str | None = None
    murho: str | None = None
    architecture: Architecture
    prior: Prior | None = None
    likelihood: LikelihoodSpec
    target: Standardisation
    schema: Schema
    encoder: Encoder
    beyond: BeyondRule = field(default_factory=BeyondRule)
    calibration: Any = None
    default_seed: int = 0
    training: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    records: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check that the parts fit each other.

        Raises:
            CheckpointError: The network's numbers of inputs or outputs do not match the encoding or the likelihood.
        """
        needed = {
            "inputs": (self.encoder.width, "encoded features"),
            "outputs": (self.likelihood.make(members=1).outputs, f"outputs of {self.likelihood.kind} noise"),
        }
        classes, shares = self.schema.target.classes, self.likelihood.shares
        if (classes is None) != (shares is None) or (shares is not None and len(shares.values) != len(classes or ())):
            raise wrong(
                "likelihood.shares",
                "one share a class of schema.target, or neither classes nor shares",
                None if shares is None else list(shares.values),
            )
        for name, (count, what) in needed.items():
            found = getattr(self.architecture, name)
            if found != count:
                raise wrong(f"architecture.{name}", f"{count}, the number of {what}", found)

    @property
    def rows_learned(self) -> int:
        """Number of rows of the training and of all updates; 0 if the file does not give it."""
        return int(self.records.get("update", {}).get("total_rows") or self.training.get("rows", 0))

    @property
    def temperature(self) -> float:
        """Factor of the KL in training."""
        return float(self.training.get("temperature", 1.0))

    def target_model(self, likelihood: Likelihood, device: torch.device) -> AnyTargetModel:
        """What maps the network's outputs to the distribution of the target.

        Args:
            likelihood: The observation model with its parameters.
            device: The device of the outputs.
        """
        members, target = self.architecture.members, self.target
        if isinstance(likelihood, ClassLikelihood):
            classes, shares = self.schema.target.classes or (), self.likelihood.shares or ClassShares.even(2)
            return ClassTargetModel(likelihood, classes, shares.tensor(device), shares.weight, members)
        numeric = cast("NumericLikelihood", likelihood)
        wide = self.likelihood.wide
        return TargetModel(numeric, target.location, target.scale, target.transform, wide, members, target.limits)

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every tensor of the checkpoint."""
        noise = noise_tensors(self.likelihood.make(self.architecture.members))
        return self.architecture.shapes() | {name: tuple(tensor.shape) for name, tensor in noise.items()}

    def made_now(self, **changes: Any) -> Self:
        """Copy with changes, and with the present time and version of Murho.

        Args:
            changes: New values of attributes.
        """
        created = datetime.now(UTC).isoformat(timespec="seconds")
        return replace(self, created=created, murho=version("murho"), **changes)

    def to_json(self) -> dict[str, Any]:
        """The content of ``model.json``, without its `FILE_FIELDS`."""
        return {
            "created": self.created,
            "murho": self.murho,
            "architecture": self.architecture.to_json(),
            "prior": None if self.prior is None else prior_to_json(self.prior),
            "likelihood": self.likelihood.to_json(),
            "target": target_to_json(self.schema.target, self.target),
            "schema": self.schema.to_json(),
            "encoding": self.encoder.to_json(),
            "beyond": self.beyond.to_json(),
            "calibration": None if self.calibration is None else self.calibration.to_json(),
            "default_seed": self.default_seed,
            "training": dict(self.training),
            "metrics": dict(self.metrics),
            **self.records,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`; `FILE_FIELDS` are ignored.

        Raises:
            CheckpointError: A field is missing, malformed or does not fit the others; the message begins with its path.
        """
        for name in _PARTS:
            if name not in data:
                raise CheckpointError(f"{name}: the field is missing")
        schema = Schema.from_json(data["schema"])
        created, murho = (
            None if data[name] is None else expect_text(data[name], name) for name in ("created", "murho")
        )
        prior, calibration = data["prior"], data["calibration"]
        return cls(
            created=created,
            murho=murho,
            architecture=Architecture.from_json(data["architecture"]),
            prior=None if prior is None else prior_from_json(prior),
            likelihood=LikelihoodSpec.from_json(data["likelihood"]),
            target=target_from_json(data["target"], schema.target),
            schema=schema,
            encoder=Encoder.from_json(data["encoding"], schema),
            beyond=BeyondRule.from_json(data["beyond"]),
            calibration=None if calibration is None else _calibration(calibration, schema),
            default_seed=expect_whole(data["default_seed"], "default_seed"),
            training=_training(data["training"]),
            metrics=expect_object(data["metrics"], "metrics"),
            records=_records({key: value for key, value in data.items() if key not in (*FILE_FIELDS, *_PARTS)}),
        )


def _calibration(data: object, schema: Schema) -> ConformalMap | ClassCalibration:
    if schema.target.classes is None:
        return ConformalMap.from_json(data)
    return ClassCalibration.from_json(data)


def _training(data: object) -> dict[str, Any]:
    facts = expect_object(data, "training")
    if "rows" in facts:
        expect_whole(facts["rows"], "training.rows")
    if "temperature" in facts:
        expect_number(facts["temperature"], "training.temperature")
    return facts


def _records(data: dict[str, Any]) -> dict[str, Any]:
    for name in ("update", "pruning", "estimator"):
        if name in data:
            expect_object(data[name], name)
    if "total_rows" in data.get("update", {}):
        expect_whole(data["update"]["total_rows"], "update.total_rows")
    return data
