"""The pruned version: the weights it keeps, its facts, and its epistemic uncertainty beyond the training range."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import orjson
import pytest
import torch

from murho.model.checkpoint.checkpoint import write_checkpoint
from murho.model.checkpoint.posterior import Posterior
from murho.model.errors import OptionError
from murho.model.predictive.prediction import PredictOptions
from murho.model.training.pruning import cut, prune
from murho.model.training.revisions import labelled_rows
from tests.model.conftest import make_table, train_quickly
from tests.model.maps import calibration_of

if TYPE_CHECKING:
    from pathlib import Path

    from murho.model.encoding.encoder import Encoded


@pytest.fixture(scope="module")
def revision(rent_checkpoints: Path) -> Posterior:
    return Posterior.load(rent_checkpoints / "rent" / "1")


def _rows(posterior: Posterior, *, beyond: float = 0.0) -> Encoded:
    """Twenty rows of sizes seen in training, and the input that tells how far beyond its range a size lies.

    That input alone is moved: a truly large flat would also ask the weights of the size itself.
    """
    rows = posterior.encoder.encode(
        {
            "size": np.linspace(30.0, 110.0, 20),
            "district": np.array(["east", "west"] * 10, dtype=object),
            "lift": np.tile([0.0, 1.0], 10),
            "day": np.linspace(18_100, 18_900, 20),
        }
    )
    rows.inputs[:, posterior.encoder.names.index("size beyond the training rows")] = beyond
    return rows


def _doubt(posterior: Posterior, rows: Encoded) -> float:
    answer = posterior.predict_encoded(rows, PredictOptions(samples=1000))
    assert answer.epistemic_std is not None
    return float(answer.epistemic_std.mean())


@pytest.mark.parametrize("skip", [True, False])
def test_the_doubt_beyond_the_training_range_survives(skip: bool) -> None:
    """It would not survive if the held weights were removed like others: their signal-to-noise ratio is zero."""
    trained = train_quickly(make_table(), members=2, epochs=150, skip=skip)
    spec = replace(trained.spec, calibration=None)
    revision = Posterior(spec, trained.posterior.tensors)
    rows = _rows(trained.posterior, beyond=8.0)
    before = _doubt(trained.posterior, rows)
    pruned = prune(revision, 0.75).posterior
    assert before > 3.0 * _doubt(trained.posterior, _rows(trained.posterior))
    assert _doubt(pruned, rows) > 0.6 * before
    careless, _ = cut(trained.posterior.tensors, trained.posterior.architecture, 0.75, [])
    assert _doubt(Posterior(spec, careless), rows) < 0.5 * before


def test_the_pruned_version_is_written_and_loaded_like_any_other(revision: Posterior, tmp_path: Path) -> None:
    pruned = prune(revision, 0.6)
    loaded = Posterior.load(write_checkpoint(tmp_path, "rent", pruned.posterior.spec, pruned.posterior.tensors))
    rows = _rows(loaded)
    ours = pruned.posterior.predict_encoded(rows, PredictOptions())
    theirs = loaded.predict_encoded(rows, PredictOptions())
    np.testing.assert_array_equal(ours.percentiles, theirs.percentiles)
    facts = loaded.spec.records["pruning"]
    assert facts["from_version"] == "1"
    assert facts["fraction"] == 0.6
    assert facts["kept"] + facts["removed"] == facts["weights"]


def test_the_version_it_came_from_is_untouched(revision: Posterior) -> None:
    facts = orjson.dumps(revision.spec.to_json())
    tensors = {name: tensor.clone() for name, tensor in revision.tensors.items()}
    prune(revision, 0.9, labelled_rows(make_table(rows=60, seed=8), revision))
    assert orjson.dumps(revision.spec.to_json()) == facts
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in revision.tensors.items())


def test_without_rows_the_calibration_is_kept_and_old_metrics_are_not_claimed(revision: Posterior) -> None:
    pruned = prune(revision, 0.6)
    assert pruned.calibration == "kept"
    assert pruned.posterior.spec.calibration == revision.spec.calibration
    assert pruned.posterior.spec.metrics == {}
    assert pruned.before is pruned.after is None
    assert pruned.posterior.spec.records["pruning"]["rows"] is None


def test_with_rows_it_is_judged_and_calibrated_anew(revision: Posterior) -> None:
    rows = labelled_rows(make_table(rows=200, seed=8), revision)
    pruned = prune(revision, 0.6, rows)
    spec = pruned.posterior.spec
    assert pruned.calibration == spec.records["pruning"]["calibration"] == "made anew"
    assert calibration_of(spec).rows == 200
    assert spec.calibration != revision.spec.calibration
    assert spec.metrics == pruned.after
    assert pruned.before is not None
    assert pruned.after is not None
    assert pruned.after["n"] == pruned.before["n"] == 200
    assert spec.records["pruning"]["after"]["crps"] == pruned.after["crps"] != pruned.before["crps"]
    assert 0.8 < pruned.after["calibrated"]["coverage"]["90"] <= 1.0

    answer = revision.drawn(rows.encoded, 256, revision.seed).predictive()
    crps = float(answer.crps(torch.from_numpy(rows.targets)).mean())
    assert pruned.before["crps"] == pytest.approx(crps, rel=1e-5)


def test_too_few_rows_judge_but_do_not_calibrate(revision: Posterior) -> None:
    pruned = prune(revision, 0.6, labelled_rows(make_table(rows=40, seed=8), revision))
    assert pruned.calibration == "kept"
    assert pruned.posterior.spec.calibration == revision.spec.calibration
    assert pruned.after is not None
    assert pruned.after["n"] == 40


def test_a_checkpoint_without_calibration_stays_without(revision: Posterior) -> None:
    spec = replace(revision.spec, calibration=None)
    bare = Posterior(spec, revision.tensors)
    assert prune(bare, 0.6).calibration == "none"


def test_removing_little_changes_little_and_removing_nearly_all_leaves_the_mean_behind(
    revision: Posterior,
) -> None:
    rows = labelled_rows(make_table(rows=300, seed=8), revision)
    scores = {}
    for fraction in (0.3, 0.99):
        pruned = prune(revision, fraction, rows)
        assert pruned.before is not None
        assert pruned.after is not None
        scores[fraction] = pruned.after["crps"] / pruned.before["crps"]
    assert scores[0.3] < 1.1
    assert scores[0.99] > 1.5


def test_a_fraction_out_of_range_is_an_error_of_the_option(revision: Posterior) -> None:
    with pytest.raises(OptionError, match="--fraction"):
        prune(revision, 1.0)
