"""Standardised mixtures: tails and derivatives against closed forms in double precision."""

from __future__ import annotations

import pytest
import torch

from murho.model.distributions import standard_mixtures as module
from murho.model.distributions.quantile_steps import DOUBLE
from murho.model.distributions.standard_mixtures import StandardMixture, slices
from tests.model.mixture_references import bisect, make, tail


def _standard(kind: str, dtype: torch.dtype = torch.float64) -> StandardMixture:
    mixture = make(kind)
    return StandardMixture.of(mixture.means, mixture.noise, mixture.weights, mixture.wide, kind=dtype)


@pytest.mark.parametrize("tile", [1, 2**16])
@pytest.mark.parametrize(
    "kind",
    [
        "smooth",
        "weighted",
        "identical components",
        "a mean of ten million",
        "smooth, and wide",
        "weighted, and wide",
    ],
)
def test_tails_and_derivatives_are_those_of_the_mixture(
    kind: str, tile: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TILE_VALUES", tile)
    mixture, standard = make(kind), _standard(kind)
    values = torch.linspace(-3.0, 3.0, 7, dtype=torch.float64).repeat(6, 1).requires_grad_()
    signs = torch.where(values > 0.0, 1.0, -1.0).double()
    found = standard.tails(values.detach(), signs, DOUBLE)
    expected = tail(mixture, standard.centre + standard.unit * values, signs)
    torch.testing.assert_close(found.tail, expected.detach(), rtol=1e-6, atol=1e-12)
    rising = -signs * expected
    for part in (found.density, found.slope, found.curvature):
        (rising,) = torch.autograd.grad(rising.sum(), values, create_graph=True)
        torch.testing.assert_close(part, rising.detach(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", ["smooth", "weighted", "one component", "a tiny unit", "a huge unit"])
def test_single_precision_is_near_double(kind: str) -> None:
    single, double = _standard(kind, torch.float32), _standard(kind)
    values = torch.linspace(-3.0, 3.0, 7).double().repeat(6, 1)
    signs = torch.where(values > 0.0, 1.0, -1.0).double()
    near, exact = single.tails(values, signs), double.tails(values, signs, DOUBLE)
    for name in ("tail", "density", "slope", "curvature"):
        torch.testing.assert_close(getattr(near, name), getattr(exact, name), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["smooth", "weighted", "identical components"])
def test_the_centre_and_the_unit_are_mean_and_standard_deviation(kind: str) -> None:
    standard, (mean, spread) = _standard(kind), make(kind).moments()
    torch.testing.assert_close(standard.centre.squeeze(1), mean)
    torch.testing.assert_close(standard.unit.squeeze(1), spread)


def test_of_two_far_equal_components_shape_and_power_are_known() -> None:
    means, noise = torch.tensor([[-1.0], [1.0]]).double(), torch.tensor([[1e-3]]).double()
    skewness, kurtosis = StandardMixture.of(means, noise, None, kind=torch.float64).shape()
    assert float(skewness) == pytest.approx(0.0, abs=1e-9)
    assert float(kurtosis) == -1.0  # held to what is of use; it is -2
    one = StandardMixture.of(torch.zeros(3, 1).double(), torch.full((3, 1), 5.0).double(), None)
    assert float(one.inverse_fourth()) == pytest.approx(1.0, rel=1e-6)
    assert [float(part) for part in one.shape()] == pytest.approx([0.0, 0.0], abs=1e-5)


@pytest.mark.parametrize("kind", ["smooth", "weighted"])
def test_a_wide_component_changes_neither_unit_nor_shape(kind: str) -> None:
    alone, beside = _standard(kind), _standard(f"{kind}, and wide")
    assert beside.wide is not None
    torch.testing.assert_close(beside.unit, alone.unit)
    torch.testing.assert_close(beside.shape(), alone.shape())


@pytest.mark.parametrize("kind", ["smooth", "a staircase", "an outlier", "smooth, and wide"])
def test_a_bracket_holds_the_quantile(kind: str) -> None:
    standard, mixture = _standard(kind), make(kind)
    for score in (-3.0, 0.0, 2.0):
        scores = torch.full((6, 1), score, dtype=torch.float64)
        lower, upper = standard.bracket(scores)
        lowest, highest = ((end - standard.centre) / standard.unit for end in bisect(mixture, scores))
        assert ((lower <= highest + 1e-9) & (lowest <= upper + 1e-9)).all()


def test_some_rows_are_those_rows() -> None:
    whole = _standard("weighted")
    some = whole.take(torch.tensor([4, 1, 1]))
    values, signs = torch.full((6, 1), 0.3).double(), torch.ones(6, 1).double()
    expected = whole.tails(values, signs, DOUBLE).tail[[4, 1, 1]]
    torch.testing.assert_close(some.tails(values[:3], signs[:3], DOUBLE).tail, expected)


@pytest.mark.parametrize(("length", "size"), [(0, 3), (7, 3), (6, 3), (5, 0), (2, 100)])
def test_slices_hold_all_of_a_length_once(length: int, size: int) -> None:
    numbers = list(range(length))
    parts = [numbers[part] for part in slices(length, size)]
    assert [number for part in parts for number in part] == numbers
    assert all(0 < len(part) <= max(1, size) for part in parts)
