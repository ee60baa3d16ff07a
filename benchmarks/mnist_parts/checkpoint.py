"""A fitted network as a checkpoint: the pixels are its features, the digits its classes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.mnist_parts.images import CLASSES, PIXEL_SCALE, SIDE
from murho.model.checkpoint.checkpoint import write_checkpoint
from murho.model.checkpoint.posterior import Posterior
from murho.model.checkpoint.spec import ClassShares, LikelihoodSpec, ModelSpec
from murho.model.distributions.transforms import Identity, Standardisation
from murho.model.encoding.encoder import Encoded, Encoder
from murho.model.encoding.transforms import Scale, Standard
from murho.model.evaluation.held_out import calibrate_held_out
from murho.model.tables.schema import Feature, FeatureKind, Schema, Target
from murho.model.tables.splits import HeldOut

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from benchmarks.mnist_parts.images import Images
    from murho.model.bbb.network import Architecture
    from murho.model.bbb.priors import Prior

__all__ = ["calibrated_spec", "image_columns", "make_spec", "pixel_names", "write_image_checkpoint"]

PARTS = 5
"""Parts of the validation images; the calibration of each part is judged by the others."""


def pixel_names() -> list[str]:
    """Names of the 784 features, row by row."""
    return [f"pixel_{row:02d}_{column:02d}" for row in range(SIDE) for column in range(SIDE)]


def image_columns(images: Images) -> dict[str, NDArray[np.float64]]:
    """The images as the columns of a table."""
    values = images.pixels.astype(np.float64)
    return {name: np.ascontiguousarray(values[:, number]) for number, name in enumerate(pixel_names())}


def make_spec(architecture: Architecture, prior: Prior, training: Images, facts: Mapping[str, Any]) -> ModelSpec:
    """The specification of a network of images, not calibrated.

    A pixel is divided by 126 and nothing else. It is bounded, so there are no inputs for the distance beyond its
    training range; values that no training image has at a pixel are still said in warnings.

    Args:
        architecture: The network's sizes.
        prior: Its prior.
        training: The training images.
        facts: Facts of the training, for ``model.json``.
    """
    least, most = training.pixels.min(axis=0), training.pixels.max(axis=0)
    features = tuple(
        Feature(name, FeatureKind.NUMERIC, None, False, float(low), float(high), ())
        for name, low, high in zip(pixel_names(), least, most, strict=True)
    )
    schema = Schema(features, Target("digit", None, tuple(str(digit) for digit in range(CLASSES))), {})
    parts = tuple(Standard(feature, Scale(0.0, PIXEL_SCALE), bounded=True) for feature in features)
    shares = ClassShares.of(training.digits.astype(np.float64), CLASSES)
    return ModelSpec(
        architecture=architecture,
        prior=prior,
        likelihood=LikelihoodSpec("categorical", shares=shares),
        target=Standardisation(Identity(), 0.0, 1.0),
        schema=schema,
        encoder=Encoder(schema, "standard", parts),
    ).made_now(training={"rows": len(training), **facts})


def calibrated_spec(spec: ModelSpec, tensors: Mapping[str, Tensor], validation: Images) -> ModelSpec:
    """The specification with a calibration on images that the network has not learned from, and their scores.

    Args:
        spec: The specification, not calibrated.
        tensors: mu and rho by name.
        validation: The images.
    """
    rows = np.arange(len(validation))
    judged = calibrate_held_out(
        Posterior(spec, tensors, engine="torch"),
        Encoded.like(validation.inputs()),
        validation.digits.astype(np.float64),
        [HeldOut(part, None) for part in np.array_split(rows, PARTS)],
        calibrating=range(PARTS),
    )
    return replace(spec, calibration=judged.conformal, metrics=judged.metrics)


def write_image_checkpoint(root: Path, name: str, spec: ModelSpec, tensors: Mapping[str, Tensor]) -> Path:
    """Write the next version of a checkpoint of images; returns its directory."""
    return write_checkpoint(root, name, spec, {key: tensor.detach().clone() for key, tensor in tensors.items()})
