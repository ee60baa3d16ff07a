"""Options are validated by name, from the command line and from TOML alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import pytest

from murho.cli.train import read_config
from murho.model.bbb.network import ACTIVATIONS
from murho.model.bbb.numbers import MOST_COMPONENTS
from murho.model.bbb.priors import EmpiricalBayesPrior, GaussianPrior, ScaleMixturePrior
from murho.model.bbb.registry import NOISE_KINDS
from murho.model.distributions.transforms import TRANSFORMS
from murho.model.encoding.encoder import ENCODINGS, MIXED
from murho.model.errors import OptionError
from murho.model.tables.schema import FeatureKind
from murho.model.training.options import TrainOptions, make_options

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"hidden": (0,)}, "--hidden"),
        ({"members": 0}, "--members"),
        ({"prior": "horseshoe"}, "--prior"),
        ({"prior_pi": 1.5}, "--prior-pi"),
        ({"prior_sigma": float("inf")}, "--prior-sigma"),
        ({"noise": "fixed"}, "--noise-sigma"),
        ({"noise_sigma": -1.0}, "--noise-sigma"),
        ({"learning_rate": 0.0}, "--learning-rate"),
        ({"seed": -1}, "--seed"),
        ({"hiden": (5,)}, "--hiden"),
        ({"columns": {"x": {"kind": "number"}}}, "columns.x.kind"),
        ({"columns": {"x": {"unti": "m"}}}, "columns.x.unti"),
    ],
)
def test_a_bad_value_is_refused_by_the_name_of_its_option(values: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        make_options(values)


@pytest.mark.parametrize(
    ("option", "implemented"),
    [
        ("noise", NOISE_KINDS),
        ("encoding", (*ENCODINGS, MIXED)),
        ("transform", TRANSFORMS),
        ("kl_weights", ("uniform", "geometric")),
        ("activation", ACTIVATIONS),
    ],
)
def test_choices_are_those_that_are_implemented(option: str, implemented: Collection[str]) -> None:
    choices = get_args(TrainOptions.model_fields[option].annotation)
    assert set(choices) - {"auto"} == set(implemented)


@pytest.mark.parametrize(
    ("values", "more"),
    [
        ({"noise_components": MOST_COMPONENTS}, {"noise_components": MOST_COMPONENTS + 1}),
        ({"members": 64}, {"members": 64 + 1}),
        ({"hidden": (16_384,)}, {"hidden": (16_384 + 1,)}),
        ({"hidden": (1,) * 16}, {"hidden": (1,) * (16 + 1)}),
    ],
)
def test_limits_are_those_of_the_network_and_the_noise(values: dict[str, object], more: dict[str, object]) -> None:
    make_options(values)
    with pytest.raises(OptionError):
        make_options(more)


@pytest.mark.parametrize("choice", get_args(TrainOptions.model_fields["prior"].annotation))
def test_every_choice_of_a_prior_makes_the_prior_of_that_name(choice: str) -> None:
    assert make_options({"prior": choice}).make_prior().kind == choice


def test_priors_take_their_parameters() -> None:
    assert make_options({}).make_prior() == EmpiricalBayesPrior()
    assert make_options({"prior": "gaussian", "prior_sigma": 2.0}).make_prior() == GaussianPrior(2.0)
    mixture = make_options({"prior": "scale-mixture", "prior_pi": 0.25, "prior_sigma1": 1.5, "prior_sigma2": 0.2})
    assert mixture.make_prior() == ScaleMixturePrior(0.25, 1.5, 0.2)


def test_known_noise_and_a_logarithm_do_not_go_together() -> None:
    with pytest.raises(OptionError, match="--transform none"):
        make_options({"noise": "fixed", "noise_sigma": 1.0, "transform": "log"})


def test_a_toml_file_says_the_same(tmp_path: Path) -> None:
    path = tmp_path / "fit.toml"
    path.write_text('hidden = [20]\nkl-weights = "geometric"\n[columns."Weight (lb)"]\nkind = "numeric"\nunit = "lb"\n')
    options = make_options(read_config(path))
    assert options.hidden == (20,)
    assert options.kl_weights == "geometric"
    override = options.columns["Weight (lb)"]
    assert (override.kind, override.unit) == (FeatureKind.NUMERIC, "lb")


def test_an_unreadable_configuration_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"none\.toml"):
        read_config(tmp_path / "none.toml")
    bad = tmp_path / "bad.toml"
    bad.write_text("hidden = [")
    with pytest.raises(OptionError, match=r"bad\.toml: not valid TOML"):
        read_config(bad)
