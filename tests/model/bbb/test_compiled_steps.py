"""Compiled steps: the gradient of automatic differentiation, normal numbers, the same fit for any number of threads."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from murho.model.bbb import steps
from murho.model.bbb.fit_rows import Rows
from murho.model.bbb.likelihood import ClassLikelihood, Likelihood
from murho.model.bbb.network import ACTIVATIONS, Architecture, BayesianNetwork
from murho.model.bbb.priors import EmpiricalBayesPrior, GaussianPrior, PosteriorPrior, Prior, ScaleMixturePrior
from murho.model.bbb.registry import make_likelihood
from murho.model.bbb.schedule import StepOptions
from murho.model.bbb.steps import KINDS, CompiledSteps, PlainSteps, steps_of
from murho.model.runtime import at_most_threads
from tests.model.conftest import present, small_fit, small_rows

numba = pytest.importorskip("numba")
MEMBERS, INPUTS, ROWS = 2, 5, 23


def words(count: int, key: int, layer: int, step: int) -> NDArray[np.uint32]:
    """Return the random words of a layer in a step."""
    from murho.model.bbb.compiled.network_kernels import fill_words

    out = np.empty(count, np.uint32)
    fill_words(out, layer, step, np.uint64(key))
    return out


@pytest.fixture(scope="module")
def normals() -> Callable[..., NDArray[np.float32]]:
    """Return the normal numbers of a layer in a step."""
    from murho.model.bbb.compiled.network_kernels import normal

    @numba.njit  # type: ignore[untyped-decorator]
    def of_words(words: Any) -> Any:
        return [normal(word) for word in words]

    def numbers(count: int, key: int, layer: int, step: int) -> NDArray[np.float32]:
        return np.array(of_words(words(count, key, layer, step)), np.float32)

    return numbers


def made(
    kind: str, *, limits: tuple[float, float] | None = None, weighted: bool = False, **options: Any
) -> tuple[CompiledSteps, Rows, Prior]:
    likelihood = make_likelihood(
        kind, members=MEMBERS, sigma=0.3, components=3, classes=2 if kind == "bernoulli" else 4
    )
    likelihood.limits = limits
    hidden, skip = options.pop("hidden", (7, 6)), options.pop("skip", True)
    activation, unread = options.pop("activation", "silu"), ((), (2,))
    architecture = Architecture(INPUTS, hidden, likelihood.outputs, activation, MEMBERS, skip, unread)
    generator = torch.Generator().manual_seed(1)
    network = BayesianNetwork(architecture, generator, likelihood.initial_outputs)
    with torch.no_grad():
        network.mu.mul_(0.3)
        network.rho.add_(0.1 * torch.randn(network.rho.shape, generator=generator))
    prior = options.pop("prior", EmpiricalBayesPrior())
    if prior is None:
        shape = network.mu.shape
        prior = PosteriorPrior(torch.randn(shape, generator=generator), torch.rand(shape, generator=generator) + 0.5)
    targets = 0.4 * torch.randn(ROWS, generator=generator)
    if isinstance(likelihood, ClassLikelihood):
        targets = torch.arange(ROWS).remainder(2 if kind == "bernoulli" else 4).float()
    elif limits is not None:
        targets = targets.clamp(*limits)
    weights = torch.rand(ROWS, generator=generator) + 0.5 if weighted else None
    rows = Rows(torch.randn(ROWS, INPUTS, generator=generator), targets, weights=weights)
    draws = options.pop("draws", 1)
    plain = PlainSteps(*(network, likelihood, prior, rows, rows.seen_by(MEMBERS)), draws=draws, minibatches=3, seed=5)
    taken = steps_of(plain)
    assert isinstance(taken, CompiledSteps)
    return taken, rows, prior


def expected_gradients(
    taken: CompiledSteps, rows: Rows, prior: Prior, numbers: Tensor, normals: Any, options: StepOptions
) -> tuple[Tensor, list[Tensor]]:
    """Return the log likelihood and the gradient of a first step, by automatic differentiation."""
    network, likelihood, draws = taken.plain.network, taken.plain.likelihood, taken.plain.step.draws
    means, variances = network.parts(network.mu), network.parts(network.sigma().square())
    numbers = numbers.repeat(draws)
    hidden = inputs = rows.features[numbers] * present(network.reads)
    last = len(network.architecture.layers) - 1
    for layer in range(last + 1):
        if layer == last and layer and network.architecture.skip:
            hidden = torch.cat((hidden, inputs), dim=2)
        mean = torch.baddbmm(means[2 * layer + 1], hidden, means[2 * layer])
        variance = torch.baddbmm(variances[2 * layer + 1], hidden.square(), variances[2 * layer])
        drawn = [normals(mean[0].numel(), taken.keys[member], layer, 1) for member in range(MEMBERS)]
        hidden = mean + variance.sqrt() * torch.from_numpy(np.stack(drawn)).view_as(mean)
        if layer < last:
            hidden = ACTIVATIONS[network.architecture.activation](hidden)
    weights = torch.ones(len(numbers)) if rows.weights is None else rows.weights[numbers]
    even = likelihood.reweight_mean_gradient(hidden, weights, options.beta)
    log_likelihood = (likelihood.log_density(even, rows.targets[numbers]) * weights).sum()
    scale = taken.plain.minibatches / taken.plain.step.total_rows
    kl = prior.kl(network.mu, network.sigma(), network.groups)
    loss = scale * (options.temperature * options.kl_weight * kl.sum() - log_likelihood / draws)
    parameters = [network.mu, network.rho, *likelihood.parameters()]
    return log_likelihood.detach(), list(torch.autograd.grad(loss, parameters))


CASES: list[dict[str, Any]] = [
    *({"kind": kind} for kind in KINDS),
    {"kind": "heteroscedastic", "activation": "relu", "hidden": (7,), "skip": False, "draws": 3, "weighted": True},
    {"kind": "mixture", "activation": "sigmoid", "prior": GaussianPrior(0.7), "draws": 2},
    {"kind": "mixture", "limits": (-0.3, 0.2), "weighted": True},
    {"kind": "heteroscedastic", "limits": (-0.3, float("inf"))},
    {"kind": "homoscedastic", "limits": (-0.3, 0.2), "hidden": ()},
    {"kind": "homoscedastic", "prior": None},
    {"kind": "categorical", "weighted": True, "hidden": (16,)},
]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("beta", [0.0, 0.6])
def test_the_gradient_is_that_of_automatic_differentiation(case: dict[str, Any], beta: float, normals: Any) -> None:
    taken, rows, prior = made(**case)
    numbers, options = torch.randperm(ROWS)[:11], StepOptions(0.3, 0.2, beta, 0.0)
    log_likelihood, gradients = expected_gradients(taken, rows, prior, numbers, normals, options)
    found = -taken.take([numbers.unsqueeze(0)], [options], 1) * MEMBERS * 11 * taken.plain.step.draws
    assert found == pytest.approx(float(log_likelihood), rel=1e-5)
    norms = sum(gradient.square().sum(dim=1) for gradient in gradients)
    assert isinstance(norms, torch.Tensor)
    clipped = (10.0 / norms.sqrt()).clamp(max=1.0).unsqueeze(1)
    for gradient, average in zip(gradients, taken.state.first, strict=True):
        expected = gradient * clipped
        torch.testing.assert_close(average / 0.1, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))


PI = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0)
KNOWN_ANSWERS = [
    ((0,) * 6, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 6, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (PI, (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
]
"""Counter and key, words: ``philox4x32 10`` in the file kat_vectors of Random123 (Salmon et al. 2011)."""


@pytest.mark.parametrize(("given", "expected"), KNOWN_ANSWERS)
def test_the_random_words_are_those_of_random123(given: tuple[int, ...], expected: tuple[int, ...]) -> None:
    from murho.model.bbb.compiled.network_kernels import philox

    @numba.njit  # type: ignore[untyped-decorator]
    def of(counter: Any, key: Any) -> Any:
        return philox(counter[0], counter[1], counter[2], counter[3], key)

    found = of(np.array(given[:4], np.uint64), np.uint64(given[4] | given[5] << 32))
    assert tuple(word & 0xFFFFFFFF for word in found) == expected


def test_no_two_places_layers_steps_and_members_share_a_stream() -> None:
    """Pairs of neighbouring words: of 0.8 million, none is expected twice (8e5^2 / 2^65 = 2e-8)."""
    keys = [int(steps._key(seed, member)) for seed in (0, 1, 2**32) for member in range(5)]
    streams = {(keys[0], 0, step) for step in range(5000)}
    streams |= {(key, layer, step) for key in keys for layer in range(4) for step in range(25)}
    pairs = np.concatenate([words(256, *stream).view(np.uint64) for stream in streams])
    assert len(np.unique(pairs)) == len(pairs)


def test_the_normal_numbers_are_independent_and_normal(normals: Any) -> None:
    numbers = normals(500_000, 7, 0, 1).astype(float)
    assert stats.kstest(numbers, "norm").pvalue > 1e-3
    assert abs(stats.kurtosis(numbers)) < 0.03
    others = [numbers[1:], *(normals(500_000, *other) for other in OTHERS)]
    for other in others:
        assert abs(np.corrcoef(numbers[: len(other)], other)[0, 1]) < 0.006
    # The four words of a counter stand a quarter of the layer apart.
    assert np.abs(np.corrcoef(numbers.reshape(4, -1)) - np.eye(4)).max() < 0.012


def test_the_furthest_words_have_finite_symmetric_numbers() -> None:
    from murho.model.bbb.compiled.network_kernels import normal

    @numba.njit  # type: ignore[untyped-decorator]
    def of(word: Any) -> Any:
        return normal(word)

    least, most = of(np.uint32(0x80000000)), of(np.uint32(0x7FFFFFFF))
    assert -least == pytest.approx(most, rel=1e-6)
    assert most == pytest.approx(stats.norm.isf(2.0**-25), rel=1e-3)


OTHERS = [(8, 0, 1), (7 + 2**32, 0, 1), (7, 1, 1), (7, 0, 2)]
"""Another member, layer and step."""


def test_adam_and_the_average_are_those_of_the_plain_steps() -> None:
    """With next to no variance the draws of both are alike, and so are their steps."""
    options = [StepOptions(1e-9, 1.0, 0.0, 0.01)] * 4
    found = []
    for compiled in (True, False):
        taken, _, _ = made("homoscedastic")
        plain = taken.plain
        with torch.no_grad():
            plain.network.rho.fill_(-18.0)
        used = taken if compiled else plain
        used.take([torch.arange(start, ROWS, 4).unsqueeze(0) for start in range(4)], options, 1)
        noise = next(iter(plain.likelihood.parameters())).detach()
        found.append([plain.network.mu.detach(), noise, used.state.average[0], used.state.average[2]])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2e-4, atol=2e-5)


def test_outputs_of_a_validation_have_the_moments_of_the_network() -> None:
    taken, rows, _ = made("heteroscedastic")
    features = rows.features[:3].expand(MEMBERS, -1, -1).contiguous()
    ours = taken.outputs(features, torch.Generator().manual_seed(0), 4000).unflatten(1, (4000, 3))
    with torch.no_grad():
        theirs = taken.plain.network(features, torch.Generator().manual_seed(0), 4000).unflatten(1, (4000, 3))
    spread = theirs.std(dim=1)
    assert bool(((ours.mean(dim=1) - theirs.mean(dim=1)).abs() < 6.0 * spread / 4000**0.5).all())
    torch.testing.assert_close(ours.std(dim=1), spread, rtol=0.08, atol=1e-4)


@pytest.mark.usefixtures("two_threads")
def test_a_fit_is_the_same_to_the_bit_for_any_number_of_threads() -> None:
    found = []
    for threads in (1, 2):
        with at_most_threads(threads):
            found.append(small_fit(small_rows(), small_rows(), members=5, epochs=20))
    assert torch.equal(found[0].network.mu, found[1].network.mu)
    assert [epoch.validation for epoch in found[0].history] == [epoch.validation for epoch in found[1].history]


def test_what_has_no_compiled_steps_takes_plain_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, rows, _ = made("heteroscedastic")

    def of(likelihood: Likelihood, prior: Prior, removed: bytes = b"") -> type:
        architecture = Architecture(INPUTS, (4,), likelihood.outputs, removed=removed)
        network = BayesianNetwork(architecture, torch.Generator().manual_seed(0))
        options: dict[str, Any] = {"draws": 1, "minibatches": 3, "seed": 5}
        return type(steps_of(PlainSteps(network, likelihood, prior, rows, rows.seen_by(1), **options)))

    counts = make_likelihood("negative-binomial", members=1)
    assert of(counts, GaussianPrior()) is PlainSteps
    assert of(taken.plain.likelihood, ScaleMixturePrior()) is PlainSteps
    assert of(taken.plain.likelihood, GaussianPrior()) is CompiledSteps
    assert of(taken.plain.likelihood, GaussianPrior(), bytes(4)) is PlainSteps
    monkeypatch.setattr(steps, "kernels", lambda: None)
    assert of(taken.plain.likelihood, GaussianPrior()) is PlainSteps
