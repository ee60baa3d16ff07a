"""Pruning removes the weights of the lowest |mu| / sigma of all layers and members, except held ones."""

from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from murho.model.bbb.network import Architecture, BayesianNetwork, removed_weights
from murho.model.checkpoint.posterior import Posterior
from murho.model.distributions.predictive import Predictive
from murho.model.encoding.encoder import Encoded
from murho.model.errors import OptionError
from murho.model.evaluation.held_out import SAMPLES
from murho.model.predictive.prediction import PredictOptions
from murho.model.training.pruning import cut, extrapolation_inputs, prune
from murho.model.training.revisions import labelled_rows
from tests.model.conftest import make_table, present, train_quickly
from tests.model.maps import calibration_of
from tests.model.rooms import rooms_table, train_rooms

ARCHITECTURE = Architecture(5, (6, 4), 2, "silu", members=2, skip=True)
HELD = [1, 4]


def _tensors(seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    tensors = BayesianNetwork(ARCHITECTURE, generator).named_tensors() | {"noise.rho": torch.ones(2, 1)}
    return {
        name: tensor + torch.randn(tensor.shape, generator=generator) if name.endswith("rho") else tensor.clone()
        for name, tensor in tensors.items()
    }


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), fraction=st.floats(0.01, 0.99))
def test_exactly_the_lowest_ratios_go_whatever_the_layer_and_the_member(seed: int, fraction: float) -> None:
    tensors = _tensors(seed)
    pruned, done = cut(tensors, ARCHITECTURE, fraction, HELD)
    masks = removed_weights(pruned)
    ratios: dict[str, list[Tensor]] = {"removed": [], "kept": [], "held": []}
    # What is held, spelled out: the last layer reads the inputs after four hidden units.
    for index, rows in {0: HELD, 1: [], 2: [4 + number for number in HELD]}.items():
        name = f"layers.{index}.weight"
        ratio = tensors[f"{name}.mu"].double().abs() / functional.softplus(tensors[f"{name}.rho"].double())
        gone = masks[index]
        held = torch.zeros_like(gone)
        held[:, rows] = True
        for part, where in (("removed", gone), ("kept", ~gone & ~held), ("held", held)):
            ratios[part].append(ratio[where])
    removed, kept, held = (torch.cat(part) for part in ratios.values())
    free = 2 * (3 * 6 + 6 * 4 + (4 + 3) * 2)
    assert len(removed) == done.removed == round(fraction * free)
    assert len(kept) == free - len(removed)
    assert len(held) == done.held == done.weights - free
    assert float(removed.max()) == pytest.approx(done.threshold, rel=1e-12)
    assert not len(kept) or float(removed.max()) <= float(kept.min())


def test_a_second_pruning_removes_what_the_first_one_has_removed_and_more() -> None:
    tensors = _tensors()
    once, first = cut(tensors, ARCHITECTURE, 0.3, HELD)
    # The tensors of removed weights say nothing: here they have the highest ratios of all.
    loud = {
        name: torch.where(mask, 99.0 if part == "mu" else -9.0, tensors[name])
        for layer, mask in enumerate(removed_weights(once))
        for part in ("mu", "rho")
        for name in [f"layers.{layer}.weight.{part}"]
    }
    twice, second = cut(loud, once, 0.6, HELD)
    directly, straight = cut(tensors, ARCHITECTURE, 0.6, HELD)
    assert (twice, second) == (directly, straight)
    assert first.removed < second.removed


def test_a_fraction_that_removes_nothing_new_is_refused(rent: Posterior) -> None:
    with pytest.raises(OptionError, match="less than one"):
        prune(rent, 0.001)
    with pytest.raises(OptionError, match=r"0\.5 of the weights that this version has lost"):
        prune(prune(rent, 0.5).posterior, 0.5)


def _beyond(posterior: Posterior, distance: float) -> Encoded:
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
    rows.inputs[:, posterior.encoder.names.index("size beyond the training rows")] = distance
    return rows


def _doubt(posterior: Posterior, distance: float = 8.0) -> float:
    answer = posterior.predict_encoded(_beyond(posterior, distance), PredictOptions(samples=1000))
    return float(present(answer.epistemic_std).mean())


@pytest.mark.parametrize("skip", [True, False])
def test_the_doubt_beyond_the_training_range_survives(skip: bool) -> None:
    """It would not survive if the held weights were removed like others: their signal-to-noise ratio is zero."""
    trained = train_quickly(make_table(), members=2, epochs=150, skip=skip).posterior
    spec = replace(trained.spec, calibration=None)
    before = _doubt(trained)
    assert before > 3.0 * _doubt(trained, 0.0)
    assert _doubt(prune(Posterior(spec, trained.tensors), 0.75).posterior) > 0.6 * before
    careless, _ = cut(trained.tensors, trained.architecture, 0.75, [])
    assert _doubt(Posterior(replace(spec, architecture=careless), trained.tensors)) < 0.5 * before
    names = [trained.encoder.names[number] for number in extrapolation_inputs(trained.encoder)]
    beyond = [f"{name} beyond the training rows" for name in ("size", "day", "combination")]
    assert names == ["district is unseen", *beyond]


def test_without_rows_the_calibration_is_kept_and_old_metrics_are_not_claimed(rent: Posterior, tmp_path: Path) -> None:
    tensors = {name: tensor.clone() for name, tensor in rent.tensors.items()}
    pruned = prune(rent, 0.6)
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in rent.tensors.items())
    assert pruned.posterior.spec.calibration == rent.spec.calibration
    assert (pruned.posterior.spec.metrics, pruned.before, pruned.after) == ({}, None, None)
    said = {"from_version": "1", "fraction": 0.6, "rows": None, "calibration": "kept"}
    assert said.items() <= pruned.facts.items()
    # A file may hold any mu and rho of removed weights: the specification says that they are gone.
    loaded = Posterior.load(Posterior(pruned.posterior.spec, rent.tensors).save(tmp_path, "rent"))
    ours, theirs = (one.predict_encoded(_beyond(loaded, 0.0), PredictOptions()) for one in (pruned.posterior, loaded))
    np.testing.assert_array_equal(ours.percentiles, theirs.percentiles)


def test_with_rows_it_is_judged_and_calibrated_anew(rent: Posterior) -> None:
    rows = labelled_rows(make_table(rows=200, seed=8), rent)
    pruned = prune(rent, 0.6, rows)
    spec, before, after = pruned.posterior.spec, present(pruned.before), present(pruned.after)
    assert (pruned.facts["calibration"], spec.metrics) == ("made", after)
    assert calibration_of(spec).rows == after["n"] == before["n"] == 200
    assert 0.8 < after["calibrated"]["coverage"]["90"] <= 1.0
    answer = cast("Predictive", rent.draw_rows(rows.encoded, SAMPLES, rent.seed).predictive())
    assert before["raw"]["crps"] == pytest.approx(float(answer.crps(torch.from_numpy(rows.targets)).mean()), rel=1e-5)
    assert after["crps"] < 1.1 * before["crps"]
    assert before["crps"] < 0.9 * present(prune(rent, 0.99, rows).after)["crps"]


def test_weights_of_inputs_that_a_member_does_not_read_are_not_counted() -> None:
    mixed = train_rooms(rooms_table(), encoding="mixed").posterior
    pruned = prune(mixed, 0.1)
    assert pruned.posterior.architecture.unread == mixed.architecture.unread
    assert pruned.facts["removed"] == round(0.1 * (pruned.facts["weights"] - pruned.facts["held"]))
