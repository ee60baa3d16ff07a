"""The specification of a checkpoint: the content of ``model.json``, read once and checked.

The seal of ``model.json``: a last field with the SHA-256 of all other fields.

It is computed from the parsed content in one canonical form, keys sorted and without spaces. So indentation and the
order of keys may change; names and values may not.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
import orjson
import torch

from murho.model.bbb.likelihood import ClassLikelihood
from murho.model.bbb.network import Architecture, noise_tensors
from murho.model.bbb.priors import prior_from_json, prior_to_json
from murho.model.bbb.registry import KINDS, make_likelihood
from murho.model.calibration.classes import ClassCalibration
from murho.model.calibration.conformal import ConformalMap
from murho.model.distributions.mixtures import WideRule
from murho.model.distributions.transforms import Limits, Standardisation, transform_from_json
from murho.model.encoding.encoder import Encoder
from murho.model.encoding.training_range import BeyondRule
from murho.model.errors import CheckpointError
from murho.model.json_validation import (
    expect_fields,
    expect_number,
    expect_numbers,
    expect_object,
    expect_text,
    expect_whole,
    option_errors_at,
    wrong,
)
from murho.model.predictive.target_models import ClassTargetModel, TargetModel
from murho.model.tables.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray
    from torch import Tensor

    from murho.model.bbb.likelihood import Likelihood, NumericLikelihood
    from murho.model.bbb.priors import Prior
    from murho.model.predictive.target_models import AnyTargetModel
    from murho.model.tables.schema import Target

__all__ = [
    "FILE_FIELDS",
    "SEAL",
    "ClassShares",
    "LikelihoodSpec",
    "ModelSpec",
    "check_seal",
    "sealed",
    "target_from_json",
    "target_to_json",
]


SEAL = "sha256_of_the_rest"
"""Key of the seal."""


def sealed(facts: Mapping[str, Any]) -> bytes:
    """The content of ``model.json``, indented, with its seal as the last field.

    Args:
        facts: All other fields, as JSON data; numpy arrays are written as lists.
    """
    # What a reader parses, not what is written: arrays, and numbers of single precision, have become plain JSON.
    plain = orjson.loads(orjson.dumps(facts, option=orjson.OPT_SERIALIZE_NUMPY))
    return orjson.dumps({**plain, SEAL: _digest(plain)}, option=orjson.OPT_INDENT_2)


def check_seal(facts: Mapping[str, Any]) -> None:
    """Check the seal of parsed content.

    Raises:
        CheckpointError: There is no seal, the content differs from what was sealed, or is nested too deeply for any.
    """
    if SEAL not in facts:
        raise CheckpointError(f"{SEAL} is missing: the file was damaged or edited; restore it or train again")
    try:
        actual = _digest({key: value for key, value in facts.items() if key != SEAL})
    except TypeError as error:
        raise CheckpointError(f"the values are nested too deeply ({error})") from error
    if facts[SEAL] != actual:
        raise CheckpointError(
            f"{SEAL} is {str(facts[SEAL])[:12]}…, but the other fields have {actual[:12]}…: "
            "the file was damaged or edited; restore it or train again"
        )


def _digest(plain: Mapping[str, Any]) -> str:
    return hashlib.sha256(orjson.dumps(plain, option=orjson.OPT_SORT_KEYS)).hexdigest()


ROWS_OF_SHARES = 1.0
"""The shares weigh as much as this number of rows beside the N training rows: N rows can't tell a smaller probability
of an exception from none. Fits on small tables lost .003 nats a row with 0.5 (docs/experiments.md)."""


@dataclass(frozen=True, slots=True)
class ClassShares:
    """The class shares of a checkpoint.

    Attributes:
        values: Share of each class, positive, of sum 1.
        weight: Least weight of the shares in an answer, from 0 to 1.
    """

    values: tuple[float, ...]
    weight: float

    @classmethod
    def even(cls, classes: int) -> Self:
        """The same share for each of C classes, without a weight."""
        return cls((1.0 / classes,) * classes, 0.0)

    @classmethod
    def of(cls, codes: NDArray[np.float64], classes: int, weights: NDArray[np.float64] | None = None) -> Self:
        """The shares of training rows, as if there were one more row of each class: none is 0.

        Args:
            codes: Index of the class of each row, ``[N]``.
            classes: C.
            weights: Weights of the rows, ``[N]``; None: all count alike.
        """
        counts = np.bincount(codes.astype(np.int64), weights, minlength=classes) + 1.0
        return cls(tuple((counts / counts.sum()).tolist()), ROWS_OF_SHARES / (len(codes) + 1.0))

    def after(self, rows_before: int, codes: NDArray[np.float64]) -> Self:
        """The shares after an update.

        Args:
            rows_before: Number of rows behind these shares.
            codes: Index of the class of each new row, ``[N]``.
        """
        counts = np.array(self.values) * (rows_before + len(self.values))
        counts += np.bincount(codes.astype(np.int64), minlength=len(self.values))
        return type(self)(tuple((counts / counts.sum()).tolist()), ROWS_OF_SHARES / (rows_before + len(codes) + 1.0))

    def tensor(self, device: torch.device) -> Tensor:
        """The shares, ``[C]``, float64."""
        return torch.tensor(self.values, dtype=torch.float64, device=device)

    def to_json(self) -> dict[str, Any]:
        """The shares as JSON data."""
        return {"values": list(self.values), "weight": self.weight}

    @classmethod
    def from_json(cls, data: object) -> Self:
        """The inverse of `to_json`.

        Raises:
            CheckpointError: The shares are not positive numbers of sum 1, or the weight is not between 0 and 1.
        """
        fields = expect_fields(data, "likelihood.shares", ("values", "weight"))
        values = expect_numbers(fields["values"], "likelihood.shares.values")
        if min(values, default=0.0) <= 0.0 or not math.isclose(sum(values), 1.0, abs_tol=1e-6):
            raise wrong("likelihood.shares.values", "positive numbers of sum 1", values)
        weight = expect_number(fields["weight"], "likelihood.shares.weight")
        if not 0.0 <= weight <= 1.0:
            raise wrong("likelihood.shares.weight", "a number from 0 to 1", weight)
        return cls(tuple(values), weight)


@dataclass(frozen=True, slots=True)
class LikelihoodSpec:
    """The observation model of a checkpoint.

    Attributes:
        kind: One of `model.bbb.registry.KINDS`.
        sigma: Known noise in standardised units, for ``fixed``.
        components: K, for ``mixture``.
        wide: The rule of the wide component; None: there is none.
        shares: Shares of the classes; None: the target is a number.
    """

    kind: str
    sigma: float | None = None
    components: int | None = None
    wide: WideRule | None = None
    shares: ClassShares | None = None

    def make(self, members: int) -> Likelihood:
        """Build the observation model of M members, before its parameters are loaded.

        Raises:
            OptionError: ``sigma`` or ``components`` is out of range, or missing although ``kind`` needs it.
        """
        classes = None if self.shares is None else len(self.shares.values)
        return make_likelihood(
            self.kind, members=members, sigma=self.sigma, components=self.components, classes=classes
        )

    def to_json(self) -> dict[str, Any]:
        """The likelihood as an object of ``model.json``."""
        return {
            "kind": self.kind,
            "sigma": self.sigma,
            "components": self.components,
            "wide": None if self.wide is None else self.wide.to_json(),
            **({} if self.shares is None else {"shares": self.shares.to_json()}),
        }

    @classmethod
    def from_json(cls, data: object) -> Self:
        """The inverse of `to_json`.

        Raises:
            CheckpointError: A field is missing, unknown, of another type or out of range.
        """
        fields = expect_fields(data, "likelihood", ("kind", "sigma", "components", "wide"), optional=("shares",))
        kind = expect_text(fields["kind"], "likelihood.kind")
        if kind not in KINDS:
            raise wrong("likelihood.kind", f"one of {', '.join(KINDS)}", kind)
        sigma, components, shares = (fields.get(name) for name in ("sigma", "components", "shares"))
        spec = cls(
            kind,
            None if sigma is None else expect_number(sigma, "likelihood.sigma"),
            None if components is None else expect_whole(components, "likelihood.components", least=1),
            WideRule.from_json(fields["wide"]),
            None if shares is None else ClassShares.from_json(shares),
        )
        with option_errors_at("likelihood"):
            spec.make(members=1)
        return spec


def target_to_json(target: Target, standardisation: Standardisation) -> dict[str, Any]:
    """The target, its transform and its standardisation as an object of ``model.json``."""
    return {
        "name": target.name,
        "unit": target.unit,
        "transform": standardisation.transform.to_json(),
        "location": standardisation.location,
        "scale": standardisation.scale,
        **(standardisation.limits or Limits()).to_json(),
    }


def target_from_json(data: object, target: Target) -> Standardisation:
    """The inverse of `target_to_json`.

    Raises:
        CheckpointError: A field is missing, unknown, of another type or out of range, or name or unit differ from the
            schema's target.
    """
    fields = expect_fields(data, "target", ("name", "unit", "transform", "location", "scale", "minimum", "maximum"))
    for name in ("name", "unit"):
        known = getattr(target, name)
        if fields[name] != known:
            raise wrong(f"target.{name}", f"{known!r} as in the schema", fields[name])
    location, scale = (expect_number(fields[name], f"target.{name}") for name in ("location", "scale"))
    if scale <= 0.0:
        raise wrong("target.scale", "a number above 0", scale)
    return Standardisation(transform_from_json(fields["transform"]), location, scale, _limits(fields))


def _limits(fields: Mapping[str, Any]) -> Limits | None:
    given = {
        name: expect_number(fields[name], f"target.{name}")
        for name in ("minimum", "maximum")
        if fields[name] is not None
    }
    with option_errors_at("target"):
        return Limits(**given) if given else None


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
