"""Bayes' rule in two steps: known answers, few rows, held-out rows, and refused revisions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from murho.model.bbb.fit import fit
from murho.model.bbb.likelihood import NOISE_FLOOR
from murho.model.bbb.network import inverse_softplus, learned_tensors
from murho.model.bbb.priors import PosteriorPrior
from murho.model.checkpoint.posterior import Posterior
from murho.model.distributions.mixtures import WideRule
from murho.model.errors import FitError, OptionError
from murho.model.evaluation.held_out import calibrate_held_out
from murho.model.predictive.prediction import PredictOptions
from murho.model.tables.splits import Units, single_rows
from murho.model.training import updating as updating_module
from murho.model.training.options import UpdateOptions, make_options, validated
from murho.model.training.pruning import prune
from murho.model.training.revisions import labelled_rows
from murho.model.training.train import train
from murho.model.training.updating import PosteriorShift, Updated, split_new_rows, temperature_of, update
from tests.model.conftest import Notes, make_table, present, train_quickly
from tests.model.maps import calibration_of

if TYPE_CHECKING:
    from murho.model.bbb.fit import Epoch
    from murho.model.training.revisions import LabelledRows

NOISE = 0.5


def _linear_table(design: np.ndarray, seed: int = 0) -> pa.Table:
    noise = NOISE * np.random.default_rng(seed).normal(size=len(design))
    columns = {f"x{number}": design[:, number] for number in range(design.shape[1])}
    return pa.table(columns | {"y": 1.5 + design @ np.array([1.0, -0.5, 0.25]) + noise})


def _correlated(rows: int = 80) -> np.ndarray:
    design = np.random.default_rng(7).normal(size=(rows, 3))
    design[:, 1] += 0.7 * design[:, 0]
    return design


def _orthogonal() -> np.ndarray:
    """Columns of -1 and 1, orthogonal to each other and to the bias in every four rows."""
    return np.tile([[1.0, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]], (20, 1))


def _linear_revision(table: pa.Table) -> Posterior:
    """A linear checkpoint of known noise; what it has learned does not matter."""
    options = make_options(
        {
            "hidden": (),
            "noise": "fixed",
            "noise_sigma": NOISE,
            "prior": "gaussian",
            "members": 1,
            "epochs": 2,
            "temperature": 1.0,
            "encoding": "standard",
            "transform": "none",
        }
    )
    trained = train(table, "y", options, reporter=Notes())
    return trained.posterior


def _with_posterior(revision: Posterior, mean: Tensor, sigma: Tensor) -> Posterior:
    """The same checkpoint with a given posterior of its inputs' weights and its bias, ``[D + 1]`` each."""
    rho = inverse_softplus(sigma)
    tensors = {
        "layers.0.weight.mu": mean[:-1].reshape(1, -1, 1),
        "layers.0.weight.rho": rho[:-1].reshape(1, -1, 1),
        "layers.0.bias.mu": mean[-1:].reshape(1, 1, 1),
        "layers.0.bias.rho": rho[-1:].reshape(1, 1, 1),
    }
    tensors = {name: tensor.float() for name, tensor in tensors.items()}
    return Posterior(revision.spec, tensors)


def _exact(revision: Posterior, rows: LabelledRows, mean: Tensor, precision: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and precision of Bayesian linear regression from a Gaussian prior; the bias comes last (Bishop 3.50)."""
    features = torch.from_numpy(rows.encoded.inputs).double()
    design = torch.cat([features, torch.ones(len(rows), 1, dtype=torch.float64)], dim=1)
    targets = rows.standardised(revision).double()
    sigma = revision.spec.likelihood.sigma
    assert sigma is not None
    weight = sigma**-2
    posterior = precision + weight * design.T @ design
    return torch.linalg.solve(posterior, precision @ mean + weight * design.T @ targets), posterior


def _learned(revision: Posterior) -> tuple[Tensor, Tensor]:
    return _flat(revision, "mu"), functional.softplus(_flat(revision, "rho"))


def _flat(revision: Posterior, parameter: str) -> Tensor:
    """Mu or rho of all weights and biases of the first member."""
    parts = [tensor[0].flatten() for name, tensor in revision.tensors.items() if name.endswith(f".{parameter}")]
    return torch.cat(parts).double()


def _learned_of(rows: LabelledRows, seed: int = 0) -> LabelledRows:
    """The rows that a single member learns from; the others calibrate."""
    learned = split_new_rows(len(rows), seed, 1).training
    return replace(rows, encoded=rows.encoded[learned], targets=rows.targets[learned])


def _update(revision: Posterior, rows: LabelledRows, **options: Any) -> Updated:
    return update(revision, rows, UpdateOptions(**options), reporter=Notes())


def test_a_linear_update_ends_at_the_exact_posterior() -> None:
    table = _linear_table(_correlated())
    plain = _linear_revision(table)
    rows = labelled_rows(table.slice(40), plain)
    generator = torch.Generator().manual_seed(2)
    width = plain.architecture.inputs + 1
    mean = 0.3 * torch.randn(width, generator=generator, dtype=torch.float64)
    sigma = 0.05 + 0.3 * torch.rand(width, generator=generator, dtype=torch.float64)
    revision = _with_posterior(plain, mean, sigma)
    exact, precision = _exact(revision, _learned_of(rows), mean, torch.diag(sigma**-2))
    mu, after = _learned(_update(revision, rows).posterior)
    assert float(((mu - exact) * precision.diag().sqrt()).abs().max()) < 0.1
    torch.testing.assert_close(after, precision.diag().rsqrt(), rtol=0.1, atol=0.0)


def test_the_second_half_on_top_of_the_first_is_a_fit_to_all_rows() -> None:
    """Bayes' rule in two steps is exact if a mean-field posterior is exact (an orthogonal design)."""
    table = _linear_table(_orthogonal())
    plain = _linear_revision(table)
    width = plain.architecture.inputs + 1
    zero, one = torch.zeros(width, dtype=torch.float64), torch.eye(width, dtype=torch.float64)
    first, second, both = (labelled_rows(part, plain) for part in (table.slice(0, 40), table.slice(40), table))
    mean, precision = _exact(plain, first, zero, one)
    revision = _with_posterior(plain, mean, precision.diag().rsqrt())
    # All of the second half is learned from: the rows that are held out come twice.
    split = split_new_rows(46, plain.seed, 1)
    order = np.zeros(46, dtype=np.int64)
    order[split.training] = np.arange(40)
    rows = replace(second, encoded=second.encoded[order], targets=second.targets[order], units=single_rows(46))
    mu, sigma = _learned(_update(revision, rows).posterior)
    exact, precision = _exact(plain, both, zero, one)
    assert float(((mu - exact) * precision.diag().sqrt()).abs().max()) < 0.1
    torch.testing.assert_close(sigma, precision.diag().rsqrt(), rtol=0.1, atol=0.0)
    # And it had something to learn: the first half alone is elsewhere.
    assert float(((mean - exact) * precision.diag().sqrt()).abs().max()) > 0.5


@pytest.fixture(scope="module")
def revision() -> Posterior:
    """Two members, homoscedastic."""
    trained = train_quickly(make_table(), members=2, epochs=120, temperature=0.5)
    return trained.posterior


def _first(rows: LabelledRows, count: int) -> LabelledRows:
    units = Units(rows.units.of_rows[:count])
    return replace(rows, encoded=rows.encoded[:count], targets=rows.targets[:count], units=units)


def _rows(revision: Posterior, count: int, seed: int = 11) -> LabelledRows:
    return labelled_rows(make_table(rows=count, seed=seed), revision)


def test_one_row_hardly_moves_it_and_more_rows_move_it_further(revision: Posterior) -> None:
    one = _update(revision, _rows(revision, 1), epochs=400)
    forty = _update(revision, _rows(revision, 40), epochs=400)
    assert one.shift.kl < 0.5
    assert one.shift.moved == 0.0
    assert max(layer.shift for layer in one.shift.layers) < 0.2
    assert forty.shift.kl > 3.0 * one.shift.kl


def test_a_handful_of_rows_is_learned_by_all_members_and_leaves_the_calibration(
    revision: Posterior, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = _watch(monkeypatch)
    notes = Notes()
    updated = update(revision, _rows(revision, 9), UpdateOptions(epochs=30), reporter=notes)
    spec = updated.posterior.spec
    assert spec.calibration == revision.spec.calibration
    assert spec.metrics == revision.spec.metrics
    assert updated.calibration == "kept"
    assert not updated.held_out
    assert spec.records["update"]["learned_rows"] == 9
    assert spec.records["update"]["total_rows"] == 169
    assert any("9 new rows are too few" in line for line in notes.lines)
    training, _, options, *_ = seen[0]
    assert len(training) == 9
    assert training.folds is None
    assert options.temperature == pytest.approx(0.5 ** (81 / (81 + 625)))


@pytest.mark.parametrize("count", [10, 30, 60])
def test_more_rows_are_cross_fitted_judged_and_calibrate_with_the_earlier_ones(
    revision: Posterior, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    seen = _watch(monkeypatch)
    rows = _rows(revision, count)
    updated = _update(revision, rows, epochs=30)
    spec = updated.posterior.spec
    assert updated.held_out
    assert updated.calibration == "pooled"
    assert calibration_of(spec).rows == calibration_of(revision.spec).rows + count
    assert calibration_of(spec).method == "pooled-conformal"
    assert (spec.metrics == revision.spec.metrics) == (count < 50)
    groups = split_new_rows(count, revision.seed, 2).held_out(2)
    arguments = (rows.encoded, rows.targets, groups)
    before = calibrate_held_out(revision, *arguments, calibrating=()).metrics
    after = calibrate_held_out(updated.posterior, *arguments, calibrating=()).metrics
    assert spec.records["update"]["before"]["nll"] == pytest.approx(before["nll"])
    assert spec.records["update"]["after"]["nll"] == pytest.approx(after["nll"])
    training, validation, options, *_ = seen[0]
    assert training.folds is not None
    assert len(training) == len(validation) == count
    assert options.patience is None


@pytest.mark.parametrize("members", [1, 2, 10])
def test_the_share_of_rows_that_a_member_learns_from_hardly_depends_on_their_number(members: int) -> None:
    shares = []
    for count in (10, 20, 21, 49, 50, 99, 100, 1_000):
        split = split_new_rows(count, 0, members)
        seen = len(split.training)
        if split.folds is not None:
            seen = int((split.folds[0] != 0).sum())
            further = split_new_rows(count + 1, 0, members).folds
            assert np.array_equal(present(further)[:, :count], split.folds)
        shares.append(seen / count)
    fewest = {1: 0.83, 2: 0.5, 10: 0.8}[members]
    assert min(shares) >= fewest - 0.05
    assert max(shares) <= fewest + 0.08


def test_the_temperature_falls_from_one_to_that_of_the_training_without_a_jump(revision: Posterior) -> None:
    temperatures = [temperature_of(revision.spec, rows) for rows in range(1, 2_000)]
    assert temperatures[0] == pytest.approx(1.0, abs=0.002)
    assert temperatures[-1] == pytest.approx(0.5, abs=0.002)
    assert max(np.abs(np.diff(np.log(temperatures)))) < 0.02


@pytest.mark.parametrize("count", [9, 20, 49, 99])
def test_one_row_more_changes_the_answers_little(revision: Posterior, count: int) -> None:
    fewer, more = (_update(revision, _first(_rows(revision, 100), rows), epochs=40) for rows in (count, count + 1))
    table = make_table(rows=60, seed=3)
    encoded = labelled_rows(table, revision).encoded
    answers = [updated.posterior.predict_encoded(encoded, PredictOptions()) for updated in (fewer, more)]
    std = present(answers[0].std)
    assert float(np.abs(answers[1].mean - answers[0].mean).mean() / std.mean()) < 0.1
    widths = [
        float((present(answer.percentiles)[:, -1] - present(answer.percentiles)[:, 0]).mean()) for answer in answers
    ]
    assert widths[1] == pytest.approx(widths[0], rel=0.06)
    assert more.shift.kl == pytest.approx(fewer.shift.kl, rel=0.5)


def _watch(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Remembers what fits were asked for, and lets them run."""
    seen: list[tuple[Any, ...]] = []

    def watched(
        network: Any, likelihood: Any, prior: Any, training: Any, validation: Any, options: Any, **rest: Any
    ) -> Any:
        initial = {name: tensor.clone() for name, tensor in learned_tensors(network, likelihood).items()}
        seen.append((training, validation, options, initial, prior))
        return fit(network, likelihood, prior, training, validation, options, **rest)

    monkeypatch.setattr(updating_module, "fit", watched)
    return seen


def test_it_starts_at_the_old_posterior_which_is_the_prior_without_a_warm_up(
    revision: Posterior, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = _watch(monkeypatch)
    before = {name: tensor.clone() for name, tensor in revision.tensors.items()}
    updated = _update(revision, _rows(revision, 60), epochs=40)
    _, _, options, initial, prior = seen[0]
    assert set(initial) == set(before)
    assert all(torch.equal(initial[name], tensor) for name, tensor in before.items())
    assert isinstance(prior, PosteriorPrior)
    assert torch.equal(prior.mean[0].double(), _flat(revision, "mu"))
    assert options.warm_up_steps == 0
    # The version it came from is as it was, and the new one is elsewhere.
    assert all(torch.equal(revision.tensors[name], tensor) for name, tensor in before.items())
    moved = PosteriorShift.between(before, updated.posterior.tensors)
    assert updated.shift == moved
    assert moved.kl > 0.0


def test_a_learned_noise_is_that_of_old_and_new_rows_together() -> None:
    """A linear model whose prior holds it where it is: only the noise can follow new rows of twice the noise."""
    options = make_options(
        {"hidden": (), "noise": "homoscedastic", "members": 1, "epochs": 60, "temperature": 1.0, "encoding": "standard"}
        | {"transform": "none", "prior": "gaussian"}
    )
    trained = train(_linear_table(_correlated(200)), "y", options, reporter=Notes())
    names = trained.posterior.architecture.shapes()
    tensors = {
        name: torch.full_like(tensor, -5.0) if name in names and name.endswith("rho") else tensor
        for name, tensor in trained.posterior.tensors.items()
    }
    revision = Posterior(trained.spec, tensors)
    table = _linear_table(_correlated(120), seed=5)
    noise = 2.0 * NOISE * np.random.default_rng(9).normal(size=120)
    design = np.stack([table.column(f"x{number}").to_numpy() for number in range(3)], axis=1)
    table = table.set_column(3, "y", pa.array(1.5 + design @ np.array([1.0, -0.5, 0.25]) + noise))
    rows = labelled_rows(table, revision)
    updated = _update(revision, rows)
    split = split_new_rows(120, revision.seed, 1)
    predicted = revision.drawn(rows.encoded, 1, 0).predictive().means[0].numpy()
    residual = ((rows.targets - predicted) / trained.spec.target.scale)[split.training]

    def variance(of: dict[str, Tensor]) -> float:
        return float((NOISE_FLOOR + functional.softplus(of["noise.rho"].double())).square())

    before, learned = revision.spec.rows_learned, len(split.training)
    expected = (before * variance(tensors) + float(np.sum(residual**2))) / (before + learned)
    assert variance(updated.posterior.tensors) == pytest.approx(expected, rel=0.05)
    assert expected > 1.3 * variance(tensors)


@pytest.mark.parametrize("noise", ["heteroscedastic", "mixture"])
def test_other_kinds_of_noise_are_updated_too(noise: str) -> None:
    trained = train_quickly(make_table(), members=2, noise=noise)
    revision = trained.posterior
    updated = _update(revision, _rows(revision, 60), epochs=10)
    assert np.isfinite(updated.after["nll"])
    spec = updated.posterior.spec
    wide = WideRule.after(spec.records["update"]["total_rows"])
    assert spec.likelihood == replace(trained.spec.likelihood, wide=wide)
    assert set(updated.posterior.tensors) == set(trained.posterior.tensors)


def test_a_single_network_holds_out_rows_of_its_own() -> None:
    trained = train_quickly(make_table(), members=1)
    revision = trained.posterior
    updated = _update(revision, _rows(revision, 100), epochs=10)
    spec = updated.posterior.spec
    assert spec.records["update"]["learned_rows"] == 100 - 15
    assert spec.records["update"]["total_rows"] == trained.spec.training["rows"] + 85
    assert calibration_of(spec).rows == calibration_of(trained.spec).rows + 15


def test_schema_encoding_standardisation_and_the_original_prior_stay(revision: Posterior) -> None:
    table = make_table(rows=60, seed=11)
    districts = ["south", *table.column("district").to_pylist()[1:]]
    table = table.set_column(1, "district", pa.array(districts))
    rows = labelled_rows(table, revision)
    updated = _update(revision, rows, epochs=5)
    spec = updated.posterior.spec
    for part in ("schema", "encoder", "target", "architecture", "prior", "training"):
        assert updated.posterior.facts[part] == revision.facts[part]
    assert spec.records["update"]["outside"]["district"] == 1
    orjson.dumps(spec.to_json(), option=orjson.OPT_SERIALIZE_NUMPY)


def test_the_doubt_about_an_unseen_category_shrinks_only_with_rows_of_it(revision: Posterior) -> None:
    name = "district is unseen"
    number = revision.encoder.names.index(name)

    def scale(of: Posterior) -> float:
        hidden = of.architecture.hidden[-1]  # of the skip, to the mean
        return float(functional.softplus(of.tensors["layers.1.weight.rho"])[:, hidden + number, 0].mean())

    table = make_table(rows=60, seed=11)
    without = _update(revision, labelled_rows(table, revision), epochs=200)
    assert scale(without.posterior) == pytest.approx(scale(revision), rel=0.02)
    table = table.set_column(1, "district", pa.array(["south"] * 60))
    learned = _update(revision, labelled_rows(table, revision), epochs=200)
    assert scale(learned.posterior) < 0.95 * scale(revision)


def test_updates_add_up(revision: Posterior) -> None:
    once = _update(revision, _rows(revision, 20), epochs=5).posterior
    twice = _update(once, _rows(revision, 30, seed=12), epochs=5).posterior
    assert once.spec.records["update"]["total_rows"] == 180
    assert twice.spec.records["update"]["total_rows"] == 210


def test_the_same_seed_gives_the_same_version_and_another_one_does_not(revision: Posterior) -> None:
    rows = _rows(revision, 60)
    first, second, third = (_update(revision, rows, epochs=4, seed=seed).posterior.tensors for seed in (3, 3, 4))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["layers.0.weight.mu"], third["layers.0.weight.mu"])


def test_an_interrupted_update_keeps_the_best_so_far(revision: Posterior) -> None:
    class Impatient(Notes):
        def epoch(self, epoch: Epoch) -> None:
            if epoch.number == 5:
                raise KeyboardInterrupt

    notes = Impatient()
    updated = update(revision, _rows(revision, 60), UpdateOptions(epochs=500), reporter=notes)
    facts = updated.posterior.spec.records["update"]
    assert facts["interrupted"] is True
    assert facts["epochs"] == 5
    assert any("interrupted" in line for line in notes.lines)
    assert all(bool(torch.isfinite(tensor).all()) for tensor in updated.posterior.tensors.values())


def test_a_pruned_version_is_refused_with_the_one_to_take_instead(revision: Posterior) -> None:
    pruned = prune(revision, 0.5).posterior
    records = {"pruning": {**pruned.spec.records["pruning"], "from_version": "7"}}
    spec = replace(pruned.spec, records=records)
    with pytest.raises(OptionError, match="--version 7"):
        _update(Posterior(spec, pruned.tensors), _rows(revision, 20))


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"epochs": 0}, "--epochs"),
        ({"learning_rate": 0.0}, "--learning-rate"),
        ({"learning_rate": float("nan")}, "--learning-rate"),
        ({"seed": -1}, "--seed"),
        ({"seed": 2**63}, "--seed"),
    ],
)
def test_options_out_of_range_are_refused_by_name(options: dict[str, Any], name: str) -> None:
    with pytest.raises(OptionError, match=name):
        validated(UpdateOptions, options)


def test_the_progress_ends_although_the_fit_fails() -> None:
    class Bar(Notes):
        ended = 0

        def end(self) -> None:
            self.ended += 1

    table = _linear_table(_orthogonal())
    revision = _linear_revision(table)
    rows = labelled_rows(table, revision)
    broken = {name: torch.full_like(tensor, torch.nan) for name, tensor in revision.tensors.items()}
    bar = Bar()
    with pytest.raises(FitError, match="non-finite in epoch 1"):
        update(Posterior(revision.spec, broken), rows, UpdateOptions(), reporter=bar)
    assert (len(bar.titles), bar.ended) == (1, 1)
