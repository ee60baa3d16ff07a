"""The fit: exact posteriors recovered, reproducible, interruptible; its schedule, optimiser and averaging."""

import itertools
import signal
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from murho.model.bbb.fit import Epoch
from murho.model.bbb.fit_rows import Rows
from murho.model.bbb.optimisers import FitState
from murho.model.bbb.priors import GaussianPrior
from murho.model.bbb.schedule import FINAL_RATE_OF_PATH, FitOptions, Schedule
from murho.model.bbb.steps import CompiledSteps, PlainSteps
from tests.model.conftest import small_fit, small_rows

NOISE, PRIOR = 0.5, 1.0


def _linear_rows(design: Tensor, seed: int = 0) -> Rows:
    generator = torch.Generator().manual_seed(seed)
    weights = torch.tensor([1.0, -0.5, 0.25])[: design.shape[1]]
    noise = NOISE * torch.randn(len(design), generator=generator)
    return Rows(design, design @ weights + 0.3 + noise)


def _exact_posterior(rows: Rows) -> tuple[Tensor, Tensor]:
    """Mean and precision of Bayesian linear regression with known noise; the bias comes last (Bishop 3.50)."""
    design = torch.cat([rows.features, torch.ones(len(rows), 1)], dim=1).double()
    precision = design.T @ design / NOISE**2 + torch.eye(design.shape[1]).double() / PRIOR**2
    return torch.linalg.solve(precision, design.T @ rows.targets.double() / NOISE**2), precision


def _fit_linear(rows: Rows) -> tuple[Tensor, Tensor]:
    network = small_fit(
        rows,
        rows,
        prior=GaussianPrior(PRIOR),
        noise="fixed",
        known={"sigma": NOISE},
        hidden=(),
        batch_size=len(rows),
        epochs=2500,
        draws_per_step=8,
        learning_rate=0.02,
        warm_up_steps=0,
        patience=None,
    ).network
    return network.mu[0].detach().double(), network.sigma()[0].detach().double()


def test_orthogonal_design_recovers_the_exact_variances() -> None:
    # Columns of a Hadamard-like design, orthogonal to each other and to the bias.
    base = torch.tensor([[1.0, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]])
    rows = _linear_rows(base.repeat(12, 1))
    exact, precision = _exact_posterior(rows)
    mu, sigma = _fit_linear(rows)
    exact_std = precision.diag().rsqrt()
    assert float(((mu - exact) / exact_std).abs().max()) < 0.1
    torch.testing.assert_close(sigma, exact_std, rtol=0.05, atol=0.0)


def test_the_same_seed_gives_the_same_parameters_bit_for_bit() -> None:
    rows = small_rows()
    first, second = (small_fit(rows, rows, seed=4).network for _ in range(2))
    assert torch.equal(first.mu, second.mu)
    assert torch.equal(first.rho, second.rho)
    assert not torch.equal(first.mu, small_fit(rows, rows, seed=5).network.mu)


def test_an_interrupted_fit_keeps_the_best_so_far() -> None:
    class InterruptAtTen:
        def epoch(self, epoch: Epoch) -> None:
            if epoch.number == 10:
                raise KeyboardInterrupt

    rows = small_rows()
    outcome = small_fit(rows, rows, epochs=500, progress=InterruptAtTen())
    assert outcome.stopped == "interrupted"
    assert outcome.epochs == 10
    assert bool(torch.isfinite(outcome.network.mu).all())


def test_a_fit_that_is_interrupted_in_its_first_epoch_has_nothing_to_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for steps in (PlainSteps, CompiledSteps):
        monkeypatch.setattr(steps, "take", interrupted)
    rows = small_rows()
    with pytest.raises(KeyboardInterrupt):
        small_fit(rows, rows, epochs=500)


@pytest.mark.usefixtures("heed_interrupts")
def test_an_interruption_after_the_last_epoch_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[bool] = []
    of_last = 0

    def counted(state: FitState, values: Any) -> Any:
        calls.append(True)
        if len(calls) == of_last:
            signal.raise_signal(signal.SIGINT)
        return load(state, values)

    load = FitState.load
    monkeypatch.setattr(FitState, "load", counted)
    rows = small_rows()
    whole = small_fit(rows, rows, epochs=3)
    of_last = 2 * len(calls)  # the last call takes the best parameters
    outcome = small_fit(rows, rows, epochs=3)
    assert (whole.stopped, outcome.stopped) == ("epochs", "interrupted")
    assert torch.equal(whole.network.mu, outcome.network.mu)


def test_it_stops_when_validation_stops_improving() -> None:
    generator = torch.Generator().manual_seed(0)
    noise = Rows(torch.randn(40, 2, generator=generator), torch.randn(40, generator=generator))
    outcome = small_fit(noise, noise, epochs=3000, patience=2, learning_rate=0.05)
    assert outcome.stopped == "converged"
    assert outcome.best_epoch < outcome.epochs < 3000


@pytest.mark.parametrize("by_clock", [False, True])
def test_a_budget_ends_the_fit(by_clock: bool) -> None:
    rows = small_rows()
    outcome = small_fit(rows, rows, epochs=10**6, patience=10**6, budget=0.2, budget_by_clock=by_clock)
    assert outcome.stopped == "budget"
    assert by_clock or 0.18 < outcome.work < 0.21


def test_with_folds_a_member_never_sees_its_own_rows() -> None:
    rows = small_rows(40)
    folds = (torch.arange(40) % 2).unsqueeze(0)
    poisoned = torch.where(folds[0] == 0, 1e3, rows.targets)  # member 0 must not feel this, member 1 must
    judging = Rows(rows.features, rows.targets, folds)
    clean = small_fit(judging, judging, members=2, epochs=4)
    spoilt = small_fit(Rows(rows.features, poisoned, folds), judging, members=2, epochs=4)
    assert torch.equal(clean.network.mu[0], spoilt.network.mu[0])
    assert not torch.equal(clean.network.mu[1], spoilt.network.mu[1])


def test_a_rising_temperature_grows_by_the_same_ratio_each_step() -> None:
    schedule = Schedule(FitOptions(learning_rate=0.1, warm_up_steps=4, temperature=None), 10)
    rates, temperatures = [], []
    while not schedule.done:
        assert schedule.warm
        options = schedule.step(1.0)
        rates.append(options.learning_rate)
        temperatures.append(options.temperature)
    ratios = [after / before for before, after in itertools.pairwise(temperatures)]
    assert ratios == pytest.approx([100.0**0.1] * 9)
    assert temperatures[-1] == pytest.approx(1.0)
    assert rates == sorted(rates, reverse=True)
    assert schedule.learning_rate == pytest.approx(0.1 * FINAL_RATE_OF_PATH)


def test_under_a_budget_it_goes_through_in_the_steps_that_there_is_time_for() -> None:
    schedule = Schedule(FitOptions(budget=100.0), 1000)
    for _ in range(10):
        schedule.step(1.0)
    schedule.keep_within_budget(19.0)  # 76 seconds left of 95, at 1.9 seconds a step: 40 steps
    steps = 0
    while not schedule.done:
        schedule.step(1.0)
        steps += 1
    assert steps == 40


RATES = [0.1 / (step + 1) for step in range(12)]


def _parameters() -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((3, 40), (3, 1))]


def _gradients() -> list[list[Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [[torch.randn(shape, generator=generator) for shape in ((3, 40), (3, 1))] for _ in RATES]


def test_steps_are_those_of_the_class() -> None:
    parameters, expected = _parameters(), _parameters()
    state, of_class = FitState(parameters), torch.optim.Adam(expected, 1.0)
    for rate, gradients in zip(RATES, _gradients(), strict=True):
        for found, other, gradient in zip(parameters, expected, gradients, strict=True):
            found.grad = other.grad = gradient
        of_class.param_groups[0]["lr"] = rate
        state.step(rate)
        of_class.step()
    for found, other in zip(parameters, expected, strict=True):
        torch.testing.assert_close(found, other, rtol=1e-5, atol=1e-6)
