"""Observation models: what holds for every one of them, and what only one has."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from murho.model.bbb.likelihood import NOISE_FLOOR, Bernoulli, Categorical, Likelihood
from murho.model.bbb.number_likelihoods import (
    LARGEST_COUNT,
    FixedNoise,
    GaussianMixtureLikelihood,
    HeteroscedasticNoise,
    MixtureNoise,
    NegativeBinomial,
    noise_of,
)
from murho.model.bbb.registry import LIKELIHOODS, NOISE_KINDS, make_likelihood
from murho.model.checkpoint.spec import ClassShares, LikelihoodSpec
from murho.model.distributions.target_transforms import Limits, Logarithm, Standardisation
from murho.model.errors import OptionError, TableError
from murho.model.training.candidates import Reporter
from murho.model.training.options import make_options
from murho.model.training.train import train
from tests.model.conftest import QUICK, make_table, present
from tests.support import ROOT

MEMBERS, ROWS = 2, 7
GAUSSIANS = [kind for kind in NOISE_KINDS if LIKELIHOODS[kind].mixture_outputs]


SPECS = [
    LikelihoodSpec("fixed", sigma=0.4),
    LikelihoodSpec("homoscedastic"),
    LikelihoodSpec("heteroscedastic"),
    LikelihoodSpec("mixture", components=3),
    LikelihoodSpec("negative-binomial"),
    LikelihoodSpec("bernoulli", shares=ClassShares((0.25, 0.75), 0.01)),
    LikelihoodSpec("categorical", shares=ClassShares((0.4, 0.3, 0.2, 0.1), 0.01)),
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.kind)
def test_what_holds_for_every_model(spec: LikelihoodSpec) -> None:
    again = LikelihoodSpec.from_json(spec.to_json())
    assert again == spec
    made, remade = spec.make(MEMBERS), again.make(MEMBERS)
    assert (type(made), made.outputs, made.means) == (type(remade), remade.outputs, remade.means)
    assert set(made.initial_outputs) <= set(range(made.outputs))
    outputs = torch.randn(MEMBERS, ROWS, made.outputs, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(made.with_scatter_of(outputs, outputs), outputs)
    if made.outputs == made.means:
        assert torch.equal(made.with_scatter_of(outputs, outputs.flip(1)), outputs)


def test_two_logits_and_one_say_the_same() -> None:
    logit = torch.linspace(-30.0, 30.0, 13)[None, :, None]
    one = Bernoulli().log_probabilities(logit)
    two = Categorical(2).log_probabilities(torch.cat((torch.zeros_like(logit), logit), dim=-1))
    torch.testing.assert_close(one, two)
    assert torch.isfinite(one).all()


def test_the_log_density_is_the_log_probability_of_the_count_after_a_fits_standardisation() -> None:
    counts = np.array([0.0, 1.0, 7.0, 250.0, 40_000.0, LARGEST_COUNT])
    likelihood = NegativeBinomial()
    likelihood.learn_target(Standardisation(Logarithm(0.5, float(np.log(LARGEST_COUNT + 0.5))), 3.0, 1.7))
    outputs = torch.tensor([[[0.1, -0.5]]]).expand(1, 6, 2)
    mean = np.exp(0.1 * 1.7 + 3.0)
    size = 1.0 / (1e-5 + np.log1p(np.exp(-0.5)))
    targets = likelihood.standardisation.forward(torch.from_numpy(counts)).float()
    expected = stats.nbinom.logpmf(counts, size, size / (size + mean))
    assert likelihood.log_density(outputs, targets)[0].numpy() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("bad", [-1.0, 2.5, LARGEST_COUNT + 1.0])
def test_a_target_that_is_no_count_is_refused_with_its_row(bad: float) -> None:
    with pytest.raises(TableError, match=r"column 'visits', row 3: .* is not a count.*--noise"):
        NegativeBinomial.require_targets(np.array([0.0, np.nan, bad]), "visits")


def test_missing_targets_and_limits_at_zero_or_below_are_allowed() -> None:
    NegativeBinomial.require_targets(np.array([0.0, np.nan, 3.0]), "visits")
    assert NegativeBinomial.allows(Limits(0.0, np.inf))
    assert not NegativeBinomial.allows(Limits(0.0, 10.0))
    assert not NegativeBinomial.allows(Limits(1.0, np.inf))


@pytest.mark.parametrize("kind", GAUSSIANS)
def test_log_density_is_that_of_a_mixture_of_torch(kind: str) -> None:
    likelihood = make_likelihood(kind, members=2, sigma=0.3, components=3)
    assert isinstance(likelihood, GaussianMixtureLikelihood)
    generator = torch.Generator().manual_seed(0)
    outputs, targets = torch.randn(2, 5, likelihood.outputs, generator=generator), torch.randn(5, generator=generator)
    means, noise, weights = likelihood.components(outputs)
    shares = torch.distributions.Categorical(torch.ones_like(means) if weights is None else weights)
    normals = torch.distributions.Normal(means, noise.expand_as(means))
    expected = torch.distributions.MixtureSameFamily(shares, normals).log_prob(targets)
    torch.testing.assert_close(likelihood.log_density(outputs, targets), expected)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("fixed", {}, "--noise-sigma"),
        ("fixed", {"sigma": -1.0}, "positive"),
        ("mixture", {}, "--noise-components"),
        ("mixture", {"components": 21}, "1 to 20"),
        ("poisson", {}, "poisson"),
        ("categorical", {}, "two or more classes, not None"),
        ("categorical", {"classes": 1}, "two or more classes"),
        ("bernoulli", {"classes": 3}, "two classes, not 3"),
    ],
)
def test_bad_kinds_and_values_are_refused(kind: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        make_likelihood(kind, members=1, **options)


def test_a_component_that_counts_at_the_edge_for_nothing_counts_for_nothing_beyond() -> None:
    likelihood = MixtureNoise(2)
    edge = torch.tensor([[[1.0, 50.0, -2.0, -2.0, 20.0, -20.0]]])
    beyond = torch.tensor([[[1.5, 900.0, 3.0, 3.0, -20.0, 20.0]]])
    means, noise, weights = likelihood.components(likelihood.with_scatter_of(beyond, edge))
    _, noise_there, weights_there = likelihood.components(edge)
    torch.testing.assert_close(means, torch.tensor([[[1.5, 50.5]]]))
    torch.testing.assert_close(noise, noise_there)
    torch.testing.assert_close(present(weights), present(weights_there))


def test_with_beta_of_one_rows_pull_their_means_as_if_all_had_the_same_noise() -> None:
    outputs = torch.zeros(1, 4, 2)
    outputs[0, :, 1] = torch.tensor([-3.0, 0.0, 1.0, 4.0])
    likelihood, targets = HeteroscedasticNoise(), torch.ones(4)
    _, exact = _log_density_and_gradient(likelihood, outputs, targets)
    torch.testing.assert_close(exact[0, :, 0], likelihood.noise(outputs)[0].square().reciprocal())
    _, weighted = _log_density_and_gradient(likelihood, outputs, targets, beta=1.0)
    torch.testing.assert_close(weighted[0, :, 0], weighted[0, :1, 0].expand(4))
    torch.testing.assert_close(weighted[..., 1], exact[..., 1])


def test_learned_noise_never_falls_below_the_floor() -> None:
    outputs = torch.full((1, 3, 2), -200.0)
    assert float(HeteroscedasticNoise().noise(outputs).min()) == pytest.approx(NOISE_FLOOR)
    mixture = MixtureNoise(1)
    assert float(mixture.components(outputs.repeat(1, 1, 2)[..., :3])[1].min()) == pytest.approx(NOISE_FLOOR)


LIMITS = (-1.0, 2.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("side", [1.0, -1.0])
def test_a_target_at_a_limit_has_the_density_and_the_slope_of_the_tail(side: float, dtype: torch.dtype) -> None:
    reach = torch.tensor([-30.0, -3.0, 0.0, 2.0, 9.9, 10.1, 35.0], dtype=dtype)
    limit = LIMITS[1] if side > 0.0 else LIMITS[0]
    likelihood = FixedNoise(1.0)
    likelihood.limits = LIMITS
    outputs = (limit - side * reach)[None, :, None]
    log_tail, slope = _log_density_and_gradient(likelihood, outputs, torch.full_like(reach, limit))
    exact = reach.double().numpy()
    ratio = np.exp(stats.norm.logpdf(exact) - stats.norm.logsf(exact))
    np.testing.assert_allclose(log_tail[0], stats.norm.logsf(exact), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(slope[0, :, 0], side * ratio, rtol=1e-3, atol=1e-6)


def _log_density_and_gradient(
    likelihood: Likelihood, outputs: Tensor, targets: Tensor, weights: Tensor | None = None, beta: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Return the log density, and the gradient of its weighted sum by the outputs, with even pulls on the means."""
    weights, leaf = torch.ones_like(targets) if weights is None else weights, outputs.clone().requires_grad_()
    log_density = likelihood.log_density(likelihood.reweight_mean_gradient(leaf, weights, beta), targets)
    (gradient,) = torch.autograd.grad((log_density * weights).sum(), leaf)
    return log_density.detach(), gradient


def test_far_beyond_all_is_finite() -> None:
    likelihood = HeteroscedasticNoise()
    likelihood.limits = LIMITS
    outputs = torch.tensor([[[-1e6, 0.0], [1e6, 0.0]]])
    for term in _log_density_and_gradient(likelihood, outputs, torch.full((2,), LIMITS[1]), beta=0.5):
        assert bool(term.isfinite().all())


def test_without_dispersion_it_is_poisson() -> None:
    likelihood = NegativeBinomial()
    outputs = torch.tensor([[[2.0, -60.0]]])
    target = likelihood.standardisation.forward(torch.tensor([5.0]))
    expected = stats.poisson.logpmf(5, np.exp(2.0))
    assert float(likelihood.log_density(outputs, target)) == pytest.approx(expected, abs=2e-4)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("noise", NOISE_KINDS)
def test_rows_inside_the_limits_are_as_without_and_pull_their_means_evenly(noise: str, *, weighted: bool) -> None:
    plain, limited = (make_likelihood(noise, members=2, sigma=0.3, components=2) for _ in range(2))
    limited.limits = LIMITS
    outputs = torch.randn(2, 5, plain.outputs, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([-0.9, 0.0, 0.5, 1.0, 1.9])
    weights = torch.tensor([0.5, 2.0, 1.0, 1.0, 0.5]) if weighted else torch.ones(5)
    for beta in (0.0, 0.5):
        found, expected = (
            _log_density_and_gradient(each, outputs, targets, weights, beta) for each in (limited, plain)
        )
        torch.testing.assert_close(found, expected)


def test_the_worked_example_of_the_documentation_is_a_likelihood_that_a_training_can_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names: dict[str, Any] = {}
    text = (ROOT / "docs" / "architecture.md").read_text()
    exec(text.partition("<!-- student noise -->\n```python\n")[2].partition("```")[0], names)  # noqa: S102 - our own page
    student: type[Likelihood] = names["StudentNoise"]
    outputs = torch.tensor([[[0.3, 0.0]]])
    targets = torch.linspace(-4.0, 4.0, 41)
    found = student().log_density(outputs, targets).exp()[0]
    exact = stats.t.pdf(targets, 4.0, loc=0.3, scale=float(noise_of(torch.zeros(()))))
    np.testing.assert_allclose(found, exact, atol=0.02)
    monkeypatch.setitem(LIKELIHOODS, "student", student)
    options = make_options(QUICK | {"members": 2, "epochs": 20}).model_copy(update={"noise": "student"})
    trained = train(make_table(), "rent", options, reporter=Reporter())
    assert trained.spec.likelihood.kind == "student"
    assert 0.0 < trained.spec.metrics["crps"] < 1.0e3
