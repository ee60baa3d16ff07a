"""Checkpoints of a mixed encoding: answers, updates and prunings know which inputs a member does not read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from murho.model.bbb.network import inputs_read
from murho.model.checkpoint.checkpoint import write_checkpoint
from murho.model.checkpoint.posterior import Posterior
from murho.model.errors import OptionError
from murho.model.predictive.prediction import PredictOptions
from murho.model.tables.schema_inference import columns_from_table
from murho.model.training.options import UpdateOptions
from murho.model.training.pruning import prune
from murho.model.training.revisions import labelled_rows
from murho.model.training.updating import update
from tests.model.conftest import Notes, make_table, train_quickly
from tests.model.rooms import rooms_table, train_rooms

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of four members in four folds."""
    trained = train_rooms(rooms_table(), encoding="mixed")
    return write_checkpoint(tmp_path_factory.mktemp("mixed"), "rooms", trained.spec, trained.posterior.tensors)


def test_both_engines_answer_alike(mixed: Path) -> None:
    first, second = (Posterior.load(mixed, engine=engine) for engine in ("torch", "auto"))
    columns = columns_from_table(rooms_table(rows=60, seed=5), first.schema)
    for calibrated in (True, False):
        one, other = (each.predict(columns, PredictOptions(calibrated=calibrated)) for each in (first, second))
        np.testing.assert_allclose(one.probabilities, other.probabilities, atol=1e-5)
        np.testing.assert_allclose(one.probabilities.sum(axis=1), 1.0)
        assert one.prediction_set is not None
        np.testing.assert_array_equal(one.prediction_set, other.prediction_set)


def test_an_update_leaves_out_the_same_inputs(mixed: Path) -> None:
    revision = Posterior.load(mixed)
    before = inputs_read(revision.tensors)
    rows = labelled_rows(rooms_table(rows=80, seed=3), revision)
    new = update(revision, rows, UpdateOptions(epochs=10), reporter=Notes())
    after = inputs_read(new.posterior.tensors)
    assert before is not None
    assert after is not None
    assert torch.equal(before, after)
    assert 0.0 < new.shift.kl < 1e4


def test_a_pruning_does_not_count_what_is_not_read(mixed: Path) -> None:
    revision = Posterior.load(mixed)
    pruned = prune(revision, 0.1)
    before, after = inputs_read(revision.tensors), inputs_read(pruned.posterior.tensors)
    assert before is not None
    assert after is not None
    assert torch.equal(before, after)
    free = pruned.cut.weights - pruned.cut.held
    assert pruned.cut.removed == round(0.1 * free)


def test_numbers_refuse_it() -> None:
    with pytest.raises(OptionError, match="--encoding mixed is for classes, and 'rent' is a number"):
        train_quickly(make_table(), encoding="mixed")
