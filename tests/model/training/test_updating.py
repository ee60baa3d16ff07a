"""Bayes' rule in two steps: known answers, few rows, held-out rows, and interruptions."""

from dataclasses import replace
from typing import Any, cast

import numpy as np
import orjson
import pyarrow as pa
import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence
from torch.nn import functional

from murho.model.bbb.fit import Epoch
from murho.model.bbb.likelihood import NOISE_FLOOR
from murho.model.bbb.network import inverse_softplus
from murho.model.calibration.conformal import POOLED
from murho.model.checkpoint.posterior import Posterior
from murho.model.distributions.predictive import Predictive
from murho.model.evaluation.held_out import calibrate_held_out
from murho.model.evaluation.judging import evaluate_table
from murho.model.predictive.prediction import PredictOptions
from murho.model.tables.splits import Units
from murho.model.training.options import UpdateOptions, make_options
from murho.model.training.revisions import LabelledRows, Revised, labelled_rows
from murho.model.training.train import train
from murho.model.training.updating import split_new_rows, temperature_of, update
from tests.model.conftest import Notes, make_table, present, train_quickly
from tests.model.maps import calibration_of
from tests.model.rooms import CLASSES, rooms_table, train_rooms

NOISE = 0.5
LINEAR = {"hidden": (), "members": 1, "prior": "gaussian", "temperature": 1.0, "encoding": "standard"}
LINEAR |= {"transform": "none", "epochs": 60}


def _linear_table(design: np.ndarray, noise: float = NOISE, seed: int = 0) -> pa.Table:
    errors = noise * np.random.default_rng(seed).normal(size=len(design))
    columns = {f"x{number}": design[:, number] for number in range(design.shape[1])}
    return pa.table(columns | {"y": 1.5 + design @ np.array([1.0, -0.5, 0.25]) + errors})


def _correlated(rows: int) -> np.ndarray:
    design = np.random.default_rng(7).normal(size=(rows, 3))
    design[:, 1] += 0.7 * design[:, 0]
    return design


def _linear(table: pa.Table) -> tuple[Posterior, int]:
    """Return a linear checkpoint of known noise, and the number of its weights and its bias."""
    options = make_options(LINEAR | {"noise": "fixed", "noise_sigma": NOISE, "epochs": 1})
    trained = train(table, "y", options, reporter=Notes()).posterior
    return trained, trained.architecture.inputs + 1


def _with_posterior(plain: Posterior, mean: Tensor, sigma: Tensor) -> Posterior:
    """Return the same with a given posterior of its inputs' weights and its bias, ``[D + 1]`` each."""
    parts = {"mu": mean, "rho": inverse_softplus(sigma)}
    tensors = {}
    for name, values in parts.items():
        tensors[f"layers.0.weight.{name}"] = values[:-1].reshape(1, -1, 1).float()
        tensors[f"layers.0.bias.{name}"] = values[-1:].reshape(1, 1, 1).float()
    return Posterior(plain.spec, tensors)


def _exact(posterior: Posterior, rows: LabelledRows, mean: Tensor, precision: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and precision of Bayesian linear regression from a Gaussian prior; the bias comes last (Bishop 3.50)."""
    design = functional.pad(torch.from_numpy(rows.encoded.inputs).double(), (0, 1), value=1.0)
    weight = present(posterior.spec.likelihood.sigma) ** -2
    after = precision + weight * design.T @ design
    moment = precision @ mean + weight * design.T @ rows.standardise_targets(posterior).double()
    return torch.linalg.solve(after, moment), after


def _flat(posterior: Posterior, parameter: str) -> Tensor:
    """Mu or rho of all weights and biases of the first member."""
    parts = [tensor[0].flatten() for name, tensor in posterior.tensors.items() if name.endswith(f".{parameter}")]
    return torch.cat(parts).double()


def _update(posterior: Posterior, rows: LabelledRows, **options: Any) -> Revised:
    return update(posterior, rows, UpdateOptions(**options), reporter=Notes())


def _assert_exact(posterior: Posterior, mean: Tensor, precision: Tensor) -> None:
    assert float(((_flat(posterior, "mu") - mean) * precision.diag().sqrt()).abs().max()) < 0.1
    sigma = functional.softplus(_flat(posterior, "rho"))
    torch.testing.assert_close(sigma, precision.diag().rsqrt(), rtol=0.1, atol=0.0)


def test_a_learned_noise_is_that_of_old_and_new_rows_together() -> None:
    """A linear model whose prior holds it where it is: only the noise can follow new rows of twice the noise."""
    options = make_options(LINEAR | {"noise": "homoscedastic"})
    trained = train(_linear_table(_correlated(200)), "y", options, reporter=Notes()).posterior
    tensors = {
        name: torch.full_like(tensor, -5.0) if name.startswith("layers") and name.endswith("rho") else tensor
        for name, tensor in trained.tensors.items()
    }
    old = Posterior(trained.spec, tensors)
    rows = labelled_rows(_linear_table(_correlated(120), 2.0 * NOISE, seed=9), old)
    updated, split = _update(old, rows), split_new_rows(120, old.seed, 1)
    predicted = cast("Predictive", old.draw_rows(rows.encoded, 1, 0).predictive()).means[0].numpy()
    residual = ((rows.targets - predicted) / old.scale)[split.training]

    def variance(of: Posterior) -> float:
        return float((NOISE_FLOOR + functional.softplus(of.tensors["noise.rho"].double())).square())

    before, learned = old.spec.rows_learned, len(split.training)
    expected = (before * variance(old) + float(np.sum(residual**2))) / (before + learned)
    assert variance(updated.posterior) == pytest.approx(expected, rel=0.05)
    assert expected > 1.3 * variance(old)


@pytest.fixture(scope="module")
def old() -> Posterior:
    """Two members, homoscedastic."""
    return train_quickly(make_table(), members=2, epochs=120, temperature=0.5).posterior


def _rows(posterior: Posterior, count: int, seed: int = 11) -> LabelledRows:
    return labelled_rows(make_table(rows=count, seed=seed), posterior)


def test_its_shift_is_the_divergence_of_torch_distributions(old: Posterior) -> None:
    before, updated = (
        {name: tensor.clone() for name, tensor in old.tensors.items()},
        _update(old, _rows(old, 60), epochs=40),
    )
    assert all(torch.equal(old.tensors[name], tensor) for name, tensor in before.items())
    names = [name.removesuffix("mu") for name in before if name.endswith("mu")]
    new, earlier = (
        [Normal(of[f"{name}mu"].double(), functional.softplus(of[f"{name}rho"].double())) for name in names]
        for of in (updated.posterior.tensors, before)
    )
    pairs = list(zip(new, earlier, strict=True))
    kl = sum(float(kl_divergence(*pair).sum()) for pair in pairs) / 2
    assert updated.facts["kl"] == pytest.approx(kl, rel=1e-4)
    beyond = torch.cat([((one.mean - other.mean).abs() > other.stddev).flatten() for one, other in pairs])
    assert updated.facts["moved"] == pytest.approx(float(beyond.double().mean()))


def test_a_handful_of_rows_is_learned_by_all_members_and_leaves_the_calibration(old: Posterior) -> None:
    notes = Notes()
    updated = update(old, _rows(old, 9), UpdateOptions(epochs=30), reporter=notes)
    assert updated.posterior.spec.calibration == old.spec.calibration
    assert updated.posterior.spec.metrics == old.spec.metrics
    assert updated.judged is None
    names = ("calibration", "held_out", "learned_rows", "total_rows")
    assert [updated.facts[name] for name in names] == ["kept", False, 9, 169]
    assert updated.facts["temperature"] == pytest.approx(0.5 ** (81 / (81 + 625)))
    assert any("9 new rows are too few" in line for line in notes.lines)


@pytest.mark.parametrize("count", [10, 60])
def test_more_rows_are_cross_fitted_judged_and_calibrate_with_the_earlier_ones(old: Posterior, count: int) -> None:
    rows = _rows(old, count)
    updated = _update(old, rows, epochs=30)
    spec = updated.posterior.spec
    assert (updated.facts["held_out"], updated.facts["calibration"]) == (True, "pooled")
    assert len(present(updated.judged)) == count
    assert calibration_of(spec).rows == calibration_of(old.spec).rows + count
    assert calibration_of(spec).method == POOLED
    assert (spec.metrics == old.spec.metrics) == (count < 50)
    groups = split_new_rows(count, old.seed, 2).held_out_groups(2)
    for when, posterior in (("before", old), ("after", updated.posterior)):
        judged = calibrate_held_out(posterior, rows.encoded, rows.targets, groups, calibrating=())
        assert updated.facts[when]["nll"] == pytest.approx(judged.metrics["nll"])


def test_the_temperature_falls_from_one_to_that_of_the_training_without_a_jump(old: Posterior) -> None:
    temperatures = [temperature_of(old.spec, rows) for rows in range(1, 2_000)]
    assert (temperatures[0], temperatures[-1]) == pytest.approx((1.0, 0.5), abs=0.002)
    assert max(np.abs(np.diff(np.log(temperatures)))) < 0.02


@pytest.mark.parametrize("count", [9, 49])
def test_one_row_more_changes_the_answers_little(old: Posterior, count: int) -> None:
    rows, answers, moved = _rows(old, 100), [], []
    for number in (count, count + 1):
        units = Units(rows.units.of_rows[:number])
        some = replace(rows, encoded=rows.encoded[:number], targets=rows.targets[:number], units=units)
        updated = _update(old, some, epochs=120)
        encoded = labelled_rows(make_table(rows=60, seed=3), old).encoded
        answers.append(updated.posterior.predict_encoded(encoded, PredictOptions()))
        moved.append(updated.facts["kl"])
    fewer, more = answers
    assert float(np.abs(more.mean - fewer.mean).mean() / present(fewer.std).mean()) < 0.1
    widths = [float(np.ptp(present(answer.percentiles), axis=1).mean()) for answer in answers]
    assert widths[1] == pytest.approx(widths[0], rel=0.06)
    assert moved[1] == pytest.approx(moved[0], rel=0.5, abs=0.4)  # nats; the tenth row begins the cross-fitting


def test_schema_encoding_standardisation_and_the_original_prior_stay_and_updates_add_up(old: Posterior) -> None:
    table = make_table(rows=60, seed=11)
    table = table.set_column(1, "district", pa.array(["south", *table.column("district").to_pylist()[1:]]))
    once = _update(old, labelled_rows(table, old), epochs=5)
    for part in ("schema", "encoder", "target", "architecture", "prior", "training"):
        assert once.posterior.facts[part] == old.facts[part]
    assert once.facts["outside"]["district"] == 1
    orjson.dumps(once.posterior.facts, option=orjson.OPT_SERIALIZE_NUMPY)
    twice = _update(once.posterior, _rows(old, 30, seed=12), epochs=5)
    assert (once.facts["total_rows"], twice.facts["total_rows"]) == (220, 250)


def test_the_doubt_about_an_unseen_category_shrinks_only_with_rows_of_it(old: Posterior) -> None:
    number = old.encoder.names.index("district is unseen")

    def scale(of: Posterior) -> float:
        hidden = of.architecture.hidden[-1]  # of the skip, to the mean
        return float(functional.softplus(of.tensors["layers.1.weight.rho"])[:, hidden + number, 0].mean())

    table = make_table(rows=60, seed=11)
    without = _update(old, labelled_rows(table, old), epochs=200)
    assert scale(without.posterior) == pytest.approx(scale(old), rel=0.02)
    table = table.set_column(1, "district", pa.array(["south"] * 60))
    learned = _update(old, labelled_rows(table, old), epochs=200)
    assert scale(learned.posterior) < 0.95 * scale(old)


def test_an_interrupted_update_keeps_the_best_so_far(old: Posterior) -> None:
    class Impatient(Notes):
        def epoch(self, epoch: Epoch) -> None:
            if epoch.number == 5:
                raise KeyboardInterrupt

    notes = Impatient()
    updated = update(old, _rows(old, 60), UpdateOptions(epochs=500), reporter=notes)
    assert (updated.facts["interrupted"], updated.facts["epochs"]) == (True, 5)
    assert any("interrupted" in line for line in notes.lines)
    assert all(bool(torch.isfinite(tensor).all()) for tensor in updated.posterior.tensors.values())


def _turned(table: pa.Table) -> pa.Table:
    """Return the table with the first two classes exchanged: what the checkpoint has learned is wrong there."""
    swapped = {CLASSES[0]: CLASSES[1], CLASSES[1]: CLASSES[0]}
    labels = [swapped.get(label, label) for label in table.column("room").to_pylist()]
    return table.set_column(table.column_names.index("room"), "room", [labels])


@pytest.fixture(scope="module")
def turned(rooms: Posterior) -> Revised:
    return _update(rooms, labelled_rows(_turned(rooms_table(rows=400, seed=3)), rooms), epochs=100)


def test_a_classifier_learns_what_is_new(rooms: Posterior, turned: Revised) -> None:
    before, after = present(turned.before), present(turned.after)
    assert after["log_loss"] < 0.7 * before["log_loss"]
    assert after["accuracy"] > before["accuracy"] + 0.2
    judged = evaluate_table(turned.posterior, _turned(rooms_table(rows=300, seed=11)))
    assert judged["log_loss"] == pytest.approx(after["log_loss"], rel=0.25)
    pooled = calibration_of(turned.posterior.spec)
    assert pooled.rows == calibration_of(rooms.spec).rows + 400 == turned.facts["total_rows"] == 640
    assert pooled.map.floor == pytest.approx(0.25 / 641)
    assert pooled.sets.method == POOLED
    counts = np.zeros(3)
    for table in (rooms_table(), _turned(rooms_table(rows=400, seed=3))):
        counts += [table.column("room").to_pylist().count(name) for name in CLASSES]
    shares = present(turned.posterior.spec.likelihood.shares)
    assert shares.values == pytest.approx((counts + 1.0) / (counts.sum() + 3.0))
    assert shares.weight < present(rooms.spec.likelihood.shares).weight


@pytest.mark.parametrize(("count", "calibration"), [(40, "none"), (60, "made")])
def test_a_version_without_calibration_gets_one_from_fifty_rows_on(
    rooms: Posterior, count: int, calibration: str
) -> None:
    raw = Posterior(replace(rooms.spec, calibration=None), rooms.tensors)
    updated = _update(raw, labelled_rows(rooms_table(rows=count, seed=7), raw), epochs=5)
    assert updated.facts["calibration"] == calibration


def test_members_of_a_mixed_encoding_leave_out_the_same_inputs() -> None:
    mixed = train_rooms(rooms_table(), encoding="mixed").posterior
    new = _update(mixed, labelled_rows(rooms_table(rows=80, seed=3), mixed), epochs=10)
    assert new.posterior.spec.architecture == mixed.architecture
    assert any(mixed.architecture.unread)
    assert 0.0 < new.facts["kl"] < 1e4


def test_a_linear_update_ends_at_the_exact_posterior() -> None:
    table, generator = _linear_table(_correlated(80)), torch.Generator().manual_seed(2)
    plain, width = _linear(table)
    mean = 0.3 * torch.randn(width, generator=generator, dtype=torch.float64)
    sigma = 0.05 + 0.3 * torch.rand(width, generator=generator, dtype=torch.float64)
    old = _with_posterior(plain, mean, sigma)
    rows = labelled_rows(table.slice(40), old)
    learned = split_new_rows(len(rows), 0, 1).training  # the others calibrate
    seen = replace(rows, encoded=rows.encoded[learned], targets=rows.targets[learned])
    _assert_exact(_update(old, rows).posterior, *_exact(old, seen, mean, torch.diag(sigma**-2)))
