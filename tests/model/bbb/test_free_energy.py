"""The free energy: its gradient against that of its definition, its sum over an epoch, clipping, non-finite fits."""

from typing import Any

import pytest
import torch
from torch import Tensor

from murho.model.bbb.fit import fit
from murho.model.bbb.fit_rows import Rows
from murho.model.bbb.free_energy import GRADIENT_NORM, FreeEnergy, GradientStep, kl_weights, require_finite
from murho.model.bbb.network import ACTIVATIONS, Architecture, BayesianNetwork
from murho.model.bbb.number_likelihoods import FixedNoise
from murho.model.bbb.priors import EmpiricalBayesPrior, GaussianPrior, Prior, ScaleMixturePrior
from murho.model.bbb.registry import NOISE_KINDS, make_likelihood
from murho.model.bbb.schedule import FitOptions
from murho.model.errors import FitError
from tests.model.conftest import present, small_fit, small_model, small_rows
from tests.model.gradient_checks import assert_gradient_is_of_the_free_energy, small_network
from tests.model.oracles import kl


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
@pytest.mark.parametrize("noise", NOISE_KINDS)
@pytest.mark.parametrize("prior", [GaussianPrior(0.7), ScaleMixturePrior(0.3, 1.5, 0.1), EmpiricalBayesPrior()])
@pytest.mark.parametrize(("members", "draws", "skip"), [(1, 1, False), (3, 2, True)])
def test_loss_and_gradient_are_those_of_the_definition(
    activation: str, noise: str, prior: Prior, members: int, draws: int, skip: bool
) -> None:
    likelihood = make_likelihood(noise, members=members, sigma=0.3, components=2).double()
    network = small_network(likelihood, activation=activation, members=members, skip=skip)
    with torch.no_grad():
        network.rho.add_(1.5)
    assert_gradient_is_of_the_free_energy(network, likelihood, prior, draws)


@pytest.mark.parametrize("noise", NOISE_KINDS)
@pytest.mark.parametrize("limits", [None, (-0.3, 0.4), (-float("inf"), 0.1)])
def test_with_weights_and_targets_at_a_limit_too(noise: str, limits: tuple[float, float] | None) -> None:
    likelihood = make_likelihood(noise, members=2, sigma=0.3, components=2).double()
    likelihood.limits = limits
    network = small_network(likelihood, members=2, skip=True)
    assert_gradient_is_of_the_free_energy(network, likelihood, EmpiricalBayesPrior(), 2, weighted=True)


def test_the_kl_of_a_member_with_half_of_the_rows_counts_twice() -> None:
    """A row counts the same for all members, so the prior weighs more for a member with fewer rows."""
    network, likelihood = small_model("fixed", members=2, known={"sigma": 0.5})

    def gradient(ratios: Tensor | None, temperature: float) -> Tensor:
        step = GradientStep(network, likelihood, GaussianPrior(), total_rows=10, kl_ratios=ratios)
        generator = torch.Generator().manual_seed(3)
        step(
            torch.ones(5, 2), torch.ones(5), kl_weight=1.0, minibatches=1, temperature=temperature, generator=generator
        )
        return present(network.mu.grad).clone()

    uneven = gradient(torch.tensor([2.0, 1.0]), 1.0)
    torch.testing.assert_close(uneven[0], gradient(None, 2.0)[0])
    torch.testing.assert_close(uneven[1], gradient(None, 1.0)[1])


@pytest.mark.parametrize("minibatches", [1, 2, 7, 1500])
@pytest.mark.parametrize("kind", ["uniform", "geometric"])
def test_kl_weights_sum_to_one_and_geometric_ones_are_those_of_blundell(kind: str, minibatches: int) -> None:
    weights = kl_weights(kind, minibatches)
    assert len(weights) == minibatches
    assert sum(weights) == pytest.approx(1.0, abs=1e-12)
    expected = [2.0 ** (5 - i) / (2.0**5 - 1.0) for i in range(1, 6)]
    assert kl_weights("geometric", 5) == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["uniform", "geometric"])
def test_mean_loss_of_an_epoch_is_free_energy_per_row_also_for_uneven_minibatches(kind: str) -> None:
    generator = torch.Generator().manual_seed(0)
    network = BayesianNetwork(Architecture(inputs=3, hidden=(4,), outputs=1), generator)
    with torch.no_grad():
        network.rho.fill_(-30.0)  # no noise: the expected likelihood is that of the mean network
    rows, targets = torch.randn(10, 3, generator=generator), torch.randn(10, generator=generator)
    prior, likelihood = GaussianPrior(1.0), FixedNoise(0.5)
    step = GradientStep(network, likelihood, prior, total_rows=10)
    losses = [
        step(part_rows, part_targets, kl_weight=weight, minibatches=3, generator=generator).loss
        for part_rows, part_targets, weight in zip(
            rows.tensor_split(3), targets.tensor_split(3), kl_weights(kind, 3), strict=True
        )
    ]
    mean = network(rows, generator)[0, :, 0].detach()
    log_likelihood = torch.distributions.Normal(mean, 0.5).log_prob(targets).sum()
    expected = (kl(prior, network.mu.detach(), network.sigma().detach(), network.groups)[0] - log_likelihood) / 10
    torch.testing.assert_close(torch.stack(losses).mean(), expected, rtol=1e-5, atol=1e-5)


FINE = FreeEnergy(torch.tensor(1.0), torch.tensor(1.0), torch.tensor(1.0))


@pytest.mark.parametrize(
    ("target", "cell", "options", "named"),
    [
        (torch.inf, 0.0, {}, r"the targets\); use a smaller --learning-rate"),
        (0.0, torch.nan, {}, r"the inputs\)"),
        (0.0, 0.0, {"learning_rate": 1e39}, r"layers\.\d\.(weight|bias)\.(mu|rho)\)"),
        (0.0, 0.0, {"learning_rate": 1e30, "noise": "fixed", "known": {"sigma": 0.5}}, r"the log likelihood\)"),
    ],
)
def test_what_is_first_not_finite_is_named_with_the_epoch(
    target: float, cell: float, options: dict[str, Any], named: str
) -> None:
    rows = small_rows()
    features, targets = rows.features.clone(), rows.targets.clone()
    features[7, 1] += cell
    targets[7] += target
    with pytest.raises(FitError, match=rf"in epoch 1 \({named}"):
        small_fit(Rows(features, targets), rows, **options)


def test_a_gradient_is_named_before_it_spoils_the_parameters() -> None:
    rows, (network, likelihood) = small_rows(), small_model(hidden=(6, 5))
    for part in ("weight", "bias"):
        # The square of sigma underflows: epsilon / deviation is infinite, while loss and parameters are finite.
        network.named_tensors()[f"layers.1.{part}.rho"].fill_(-60.0)
    with pytest.raises(FitError, match=r"in epoch 1 \(the gradient of layers\.1\.(weight|bias)\.rho\)"):
        fit(network, likelihood, GaussianPrior(), rows, rows, FitOptions(batch_size=16, epochs=2))


def test_each_member_is_clipped_by_itself() -> None:
    network, likelihood = small_model(members=2)
    for parameter in (network.mu, network.rho, *likelihood.parameters()):
        parameter.grad = torch.ones_like(parameter)
        parameter.grad[1] = 1e6
    before = present(network.mu.grad)[0].clone()
    GradientStep(network, likelihood, GaussianPrior(), total_rows=1).clip(FINE, torch.zeros(1), torch.zeros(1), 1)
    gradients = [network.mu.grad, network.rho.grad, *(p.grad for p in likelihood.parameters())]
    squares = sum(gradient.square().sum(dim=1) for gradient in gradients if gradient is not None)
    assert isinstance(squares, torch.Tensor)
    torch.testing.assert_close(present(network.mu.grad)[0], before)
    assert float(squares[1]) == pytest.approx(GRADIENT_NORM**2, rel=1e-4)


def test_large_finite_gradients_do_not_stop_a_fit() -> None:
    network, likelihood = small_model()
    for parameter in (network.mu, network.rho, *likelihood.parameters()):
        parameter.grad = torch.full_like(parameter, 1e30)  # its square is not finite
    GradientStep(network, likelihood, GaussianPrior(), total_rows=1).clip(FINE, torch.zeros(1), torch.zeros(1), 1)
    assert bool(torch.isfinite(present(network.mu.grad)).all())


def test_a_validation_that_is_not_finite_names_the_parameter() -> None:
    network, likelihood = small_model()
    require_finite(network, likelihood, 3, {"the validation": torch.tensor(1.0)})
    with pytest.raises(FitError, match=r"epoch 3 \(the validation\)"):
        require_finite(network, likelihood, 3, {"the validation": torch.tensor(torch.inf)})
    with torch.no_grad():
        network.rho[0, -1] = torch.nan  # the last entry is the last layer's bias: names follow the parameters
    with pytest.raises(FitError, match=r"epoch 4 \(layers\.1\.bias\.rho\)"):
        require_finite(network, likelihood, 4, {"the validation": torch.tensor(torch.nan)})


@pytest.mark.parametrize("noise", NOISE_KINDS)
@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_a_row_of_weight_two_counts_as_the_row_twice(noise: str, beta: float) -> None:
    likelihood = make_likelihood(noise, members=2, sigma=0.3, components=2).double()
    network = small_network(likelihood, members=2, skip=True)
    with torch.no_grad():
        network.rho.fill_(-40.0)  # no draw differs from the next
    generator = torch.Generator().manual_seed(4)
    rows, targets = torch.randn(6, 4, generator=generator).double(), torch.randn(6, generator=generator).double()
    counts = torch.tensor([2, 1, 1, 3, 1, 1])
    found = []
    for inputs, observed, weights in (
        (rows, targets, counts.double()),
        (rows.repeat_interleave(counts, dim=0), targets.repeat_interleave(counts), None),
    ):
        step = GradientStep(network, likelihood, GaussianPrior(), total_rows=9)
        energy = step(inputs, observed, weights, kl_weight=1.0, minibatches=1, beta=beta)
        gradients = [present(parameter.grad).clone() for parameter in (network.mu, *likelihood.parameters())]
        found.append([energy.loss, energy.kl, *gradients])
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)
