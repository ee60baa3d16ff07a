"""Options are validated by name, from the command line and from TOML alike."""

from pathlib import Path

import pytest

from murho.cli.train import read_config
from murho.model.bbb.priors import EmpiricalBayesPrior, GaussianPrior, ScaleMixturePrior
from murho.model.errors import OptionError
from murho.model.tables.schema import FeatureKind
from murho.model.training.options import make_options, option_texts


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"hidden": (0,)}, "--hidden"),
        ({"prior": "horseshoe"}, "--prior"),
        ({"prior_sigma": float("inf")}, "--prior-sigma"),
        ({"noise": "fixed"}, "--noise-sigma"),
        ({"noise": "fixed", "noise_sigma": 1.0, "transform": "log"}, "--transform none"),
        ({"hiden": (5,)}, "--hiden"),
        ({"columns": {"x": {"kind": "number"}}}, "columns.x.kind"),
        ({"columns": {"x": {"unti": "m"}}}, "columns.x.unti"),
    ],
)
def test_a_bad_value_is_refused_by_the_name_of_its_option(values: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        make_options(values)


def test_priors_take_their_parameters() -> None:
    assert make_options({}).make_prior() == EmpiricalBayesPrior()
    assert make_options({"prior": "gaussian", "prior_sigma": 2.0}).make_prior() == GaussianPrior(2.0)
    mixture = make_options({"prior": "scale-mixture", "prior_pi": 0.25, "prior_sigma1": 1.5, "prior_sigma2": 0.2})
    assert mixture.make_prior() == ScaleMixturePrior(0.25, 1.5, 0.2)


def test_a_toml_file_says_the_same(tmp_path: Path) -> None:
    path = tmp_path / "fit.toml"
    path.write_text('hidden = [20]\nkl-weights = "geometric"\n[columns."Weight (lb)"]\nkind = "numeric"\nunit = "lb"\n')
    options = make_options(read_config(path))
    assert options.hidden == (20,)
    assert options.kl_weights == "geometric"
    override = options.columns["Weight (lb)"]
    assert (override.kind, override.unit) == (FeatureKind.NUMERIC, "lb")


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("epochs", "integer", "Most epochs of a fit.  [at least 1; default: by table size]"),
        ("temperature", "number", "[above 0, at most 1; default: by validation, from 0.01 to 1]"),
        ("kl_weights", "string", "[uniform or geometric; default: uniform]"),
        ("hidden", "integers", "[each 1 to 16,384; default: 64,64]"),
        ("group", "strings", "They are not features."),
    ],
)
def test_range_choices_and_default_are_said(name: str, kind: str, said: str) -> None:
    (text,) = (text for text in option_texts() if text.name == name)
    assert text.type == kind
    assert text.help.endswith(said)
