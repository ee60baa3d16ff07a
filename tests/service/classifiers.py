"""A classifier with random weights: its answers are those of the real network, made in a millisecond."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from murho.model.bbb.network import Architecture
from murho.model.calibration.class_calibration import ClassCalibration, ClassMap, fit_prediction_sets
from murho.model.checkpoint.posterior import Posterior
from murho.model.checkpoint.spec import ClassShares, LikelihoodSpec, ModelSpec
from murho.model.distributions.target_transforms import Identity, Standardisation
from murho.model.predictive.prediction import PredictOptions, Question
from murho.model.tables.schema import Columns, Schema, Target
from tests.service.support import SCHEMA, FakeModel, spec_of

CLASSES = ("5_doors", 'kei, "small"', "naïve")
"""Names that a separator of columns, a quote and a level could be confused with."""
CLASS_SCHEMA = replace(SCHEMA, target=Target("Body", None, CLASSES))
HELD_OUT_ROWS = 400
METRICS: dict[str, Any] = {
    "n": 60,
    "accuracy": 0.8,
    "log_loss": 0.5,
    "brier": 0.3,
    "auc": 0.9,
    "ece": 0.02,
    "raw": {"log_loss": 0.6, "brier": 0.35, "ece": 0.1},
    "calibrated": {"log_loss": 0.5, "brier": 0.3, "ece": 0.02},
    "sets": {"coverage": {"80": 0.82, "90": 0.91, "95": 0.96}, "size": {"80": 1.1, "90": 1.3, "95": 1.6}},
    "standard_errors": {"accuracy": 0.05},
}


def class_spec(schema: Schema = CLASS_SCHEMA, *, calibrated: bool = True) -> ModelSpec:
    """Return the specification of a classifier with a calibration from made-up rows."""
    classes = len(schema.target.classes or ())
    inputs = spec_of(replace(schema, target=Target("y", None))).encoder.width
    chance = torch.Generator().manual_seed(1)
    probabilities = torch.randn(HELD_OUT_ROWS, classes, generator=chance, dtype=torch.float64).mul(2.0).softmax(dim=1)
    labels = torch.multinomial(probabilities, 1, generator=chance)[:, 0]
    calibration = ClassCalibration(
        ClassMap((0.7,) * classes, (0.0,) * classes, 0.001), fit_prediction_sets(probabilities, labels)
    )
    outputs = 1 if classes == 2 else classes
    return spec_of(
        schema,
        architecture=Architecture(inputs, (4,), outputs, members=2),
        likelihood=LikelihoodSpec(
            "bernoulli" if classes == 2 else "categorical",
            shares=ClassShares.of(labels.double().numpy(), classes),
        ),
        target=Standardisation(Identity(), 0.0, 1.0),
        calibration=calibration if calibrated else None,
        training={"rows": 278, "targets": {"classes": dict.fromkeys(schema.target.classes or (), 90)}},
        metrics=METRICS,
    )


def random_tensors(spec: ModelSpec, seed: int = 0) -> dict[str, Tensor]:
    """Weights of a specification."""
    chance = torch.Generator().manual_seed(seed)
    return {
        name: torch.full(shape, -1.0) if name.endswith(".rho") else torch.randn(shape, generator=chance)
        for name, shape in spec.tensor_shapes().items()
    }


class Classifier(FakeModel):
    """A real posterior of a classifier, in the place of a fake model."""

    def __init__(
        self,
        name: str = "cars",
        version: str = "1",
        schema: Schema = CLASS_SCHEMA,
        *,
        calibrated: bool = True,
    ) -> None:
        # Not the initialiser of FakeModel: its specification is a regression's.
        self.name, self.version, self.schema = name, version, schema
        self.spec = class_spec(schema, calibrated=calibrated)
        self.posterior = Posterior(self.spec, random_tensors(self.spec), name=name, version=version, engine="torch")
        self.warm = False
        self.rows_of_pass = 256
        self.calls: list[PredictOptions] = []
        self.passes = 0
        self.before = lambda: None

    def predict(self, columns: Columns, options: PredictOptions) -> Any:
        self.calls.append(options)
        return self.posterior.predict(columns, options)

    def predict_questions(self, columns: Columns, questions: Sequence[Question]) -> list[Any]:
        self.passes += 1
        self.before()
        return self.posterior.predict_questions(columns, questions)


def write_classifier(root: Path, name: str = "cars", spec: ModelSpec | None = None) -> Path:
    """Write a checkpoint of a classifier, or of another specification, with random weights; return its directory."""
    spec = (spec or class_spec()).stamp()
    return Posterior(spec, random_tensors(spec)).save(root, name)
