"""The rule of wide components: its weight, its width, and its place in a checkpoint."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from murho.model.checkpoint.posterior import Posterior
from murho.model.distributions.mixtures import WideRule
from murho.model.errors import CheckpointError
from murho.model.predictive.prediction import PredictOptions
from murho.model.tables.schema_inference import columns_from_table
from tests.model.conftest import make_table, present, train_quickly


def test_its_weight_is_the_rule_of_succession_and_it_adds_a_twentieth_of_the_noise_variance() -> None:
    for rows in (20, 700, 50_000):
        rule = WideRule.after(rows)
        assert rule.weight == pytest.approx(1.0 / (rows + 1))
        assert rule.weight * rule.widening**2 == pytest.approx(0.05)


def test_it_has_the_spread_of_its_mixture_and_a_wider_noise_up_to_that_of_the_targets() -> None:
    spreads, noise = torch.tensor([5.0, 5.0, 5.0]).double(), torch.tensor([0.5, 3.0, 0.0]).double()
    wide = WideRule(0.01, 8.0).noise(spreads, noise, most=12.0)
    assert wide.tolist() == pytest.approx([(25.0 + 16.0) ** 0.5, 13.0, 5.0])


def test_json_gives_it_back() -> None:
    rule = WideRule.after(100)
    assert WideRule.from_json(rule.to_json()) == rule


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ({"weight": 0.0, "widening": 3.0}, "likelihood.wide.weight"),
        ({"weight": 1.0, "widening": 3.0}, "likelihood.wide.weight"),
        ({"weight": "a", "widening": 3.0}, "likelihood.wide.weight"),
        ({"weight": 0.1, "widening": -3.0}, "likelihood.wide.widening"),
        ({"weight": 0.1}, "likelihood.wide"),
        ([0.1, 3.0], "likelihood.wide"),
    ],
)
def test_what_is_wrong_in_a_checkpoint_is_named(data: object, named: str) -> None:
    with pytest.raises(CheckpointError, match=named):
        WideRule.from_json(data, "likelihood.wide")


@pytest.mark.slow
def test_a_learned_noise_gets_one_and_a_known_noise_none() -> None:
    trained = train_quickly(make_table())
    rows = trained.spec.training["rows"]
    assert trained.spec.likelihood.wide == WideRule.after(rows)
    known = train_quickly(make_table(), noise="fixed", noise_sigma=40.0)
    assert known.spec.likelihood.wide is None


def test_it_adds_to_the_noise_alone_and_answers_of_a_checkpoint_without_are_as_before() -> None:
    trained = train_quickly(make_table())
    spec = replace(trained.spec, calibration=None)
    without = replace(spec, likelihood=replace(spec.likelihood, wide=None))
    columns = columns_from_table(make_table(rows=50, seed=3), trained.posterior.schema)
    options = PredictOptions(percentiles=(5.0, 50.0, 95.0), thresholds=(5_000.0,), draws=True)
    wide, plain = (Posterior(some, trained.posterior.tensors).predict(columns, options) for some in (spec, without))
    for name in ("mean", "epistemic_std", "draws"):
        assert present(getattr(wide, name)) == pytest.approx(present(getattr(plain, name)), rel=1e-12)
    noise, rule = present(plain.aleatoric_std), WideRule.after(spec.training["rows"])
    added = rule.weight * (rule.widening * noise).clip(max=spec.target.scale) ** 2
    assert (added > 0.0).all()
    assert present(wide.aleatoric_std) == pytest.approx((noise**2 + added) ** 0.5)
    assert (present(wide.exceedance) > present(plain.exceedance)).all()
    band, narrower = (present(some.percentiles)[:, 2] - present(some.percentiles)[:, 0] for some in (wide, plain))
    assert band == pytest.approx(narrower, rel=0.02)
