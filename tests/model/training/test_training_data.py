"""Training data: encoded rows and standardised targets of a table."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from murho.model.encoding.encoder import InputChoice
from murho.model.errors import OptionError, TableError
from murho.model.tables.schema import Feature, FeatureKind, Schema, Target
from murho.model.tables.splits import split_rows
from murho.model.training.rows import TrainingData


def _training_data(targets: np.ndarray) -> TrainingData:
    feature = Feature("x", FeatureKind.NUMERIC, None, missing=False, minimum=0.0, maximum=1.0, categories=())
    columns = {"x": np.linspace(0.0, 1.0, len(targets))}
    return TrainingData(
        Schema((feature,), Target("y", None), left_out={}), columns, targets, split_rows(len(targets), 0, 5)
    )


def test_targets_are_standardised_behind_the_transform() -> None:
    targets = np.exp(np.random.default_rng(0).normal(3.0, 2.0, 200))
    training, validation = _training_data(targets).rows(InputChoice("standard"), "log")
    assert float(training.targets.mean()) == pytest.approx(0.0, abs=1e-5)
    assert float(training.targets.std(correction=0)) == pytest.approx(1.0, abs=1e-5)
    assert training.folds is not None
    assert len(validation) == 200


def test_encodings_and_targets_are_those_of_the_same_rows() -> None:
    targets = np.linspace(5.0, 9.0, 100)
    training, validation = _training_data(targets).rows(InputChoice("piecewise"), "none")
    for rows in (training, validation):
        order = rows.features[:, 0].argsort()
        assert bool((rows.targets[order].diff() > 0).all())


def test_a_transform_out_of_its_domain_is_refused_with_the_least_target() -> None:
    data = _training_data(np.linspace(-2.5, 9.0, 100))
    assert not data.fits("log")
    with pytest.raises(OptionError, match=r"-2\.5"):
        data.standardisation("log")


def test_a_constant_target_teaches_nothing() -> None:
    with pytest.raises(TableError, match="same value"):
        _training_data(np.full(60, 3.0)).standardisation("none")


def test_an_encoding_is_fitted_once() -> None:
    data = _training_data(np.linspace(0.0, 1.0, 60))
    assert data.encoder(InputChoice("standard")) is data.encoder(InputChoice("standard"))
    assert data.encoded(InputChoice("standard")) is data.encoded(InputChoice("standard"))
    assert torch.equal(
        data.rows(InputChoice("standard"), "none")[0].features, data.rows(InputChoice("standard"), "none")[0].features
    )
