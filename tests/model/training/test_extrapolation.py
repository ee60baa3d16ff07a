"""Weights from inputs that are zero in training are set to their prior, with a known effect on answers."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from murho.model.bbb.network import Architecture, BayesianNetwork
from murho.model.checkpoint.posterior import Posterior
from murho.model.checkpoint.spec import LikelihoodSpec, ModelSpec
from murho.model.distributions.target_transforms import Identity, Standardisation
from murho.model.encoding.encoder import Encoder
from murho.model.predictive.draws import DrawMaker
from murho.model.predictive.forward import forward
from murho.model.tables.schema import Columns
from murho.model.training.extrapolation import (
    FOLLOWED,
    INNER,
    LEAST_FACTOR,
    LEAST_SLOPE,
    extrapolation_trial,
    with_extrapolation_prior,
)
from tests.model.encoding.distribution_tables import schema_of


def _tensors(architecture: Architecture) -> dict[str, torch.Tensor]:
    network = BayesianNetwork(architecture, torch.Generator().manual_seed(0))
    return {name: tensor.detach() for name, tensor in network.named_tensors().items()}


@pytest.mark.parametrize("hidden", [(), (9,), (9, 7)])
def test_every_draw_leaves_the_range_on_a_line_of_its_own(hidden: tuple[int, ...]) -> None:
    """The standard deviation over draws is the slope times the distance, for every row."""
    architecture = Architecture(4, hidden, 2, "silu", members=3, skip=bool(hidden))
    tensors = with_extrapolation_prior(_tensors(architecture), architecture, {2: 0.5, 3: 0.1})
    draws = DrawMaker(tensors, architecture).make(seed=1, samples=3000)
    rows = torch.randn(5, 4, generator=torch.Generator().manual_seed(2))
    rows[:, 2:] = 0.0
    moved = {}
    for distance in (1.0, 4.0):
        beyond = rows.clone()
        beyond[:, 2] = distance
        moved[distance] = forward(draws, beyond)[..., 0] - forward(draws, rows)[..., 0]  # [S, B]
    torch.testing.assert_close(moved[4.0], 4.0 * moved[1.0], atol=0.02, rtol=0.0)
    torch.testing.assert_close(moved[1.0], moved[1.0][:, :1].expand(-1, 5), atol=0.02, rtol=0.0)
    # 3,000 draws: the standard deviation is known to 1.3 %, the mean to 0.009.
    torch.testing.assert_close(moved[1.0].std(dim=0), torch.full((5,), 0.5), atol=0.0, rtol=0.06)
    assert float(moved[1.0].mean(dim=0).abs().max()) < 0.05


def test_without_a_skip_the_first_layer_doubts() -> None:
    architecture = Architecture(3, (16,), 1, "silu", skip=False)
    tensors = with_extrapolation_prior(_tensors(architecture), architecture, {2: 0.5})
    assert not tensors["layers.0.weight.mu"][:, 2].any()
    sigma = functional.softplus(tensors["layers.0.weight.rho"][:, 2])
    torch.testing.assert_close(sigma, torch.full_like(sigma, 0.125))


ROWS = 240
COLUMNS: dict[str, np.ndarray] = {
    "x": np.linspace(0.0, 10.0, ROWS),
    "idle": np.random.default_rng(0).permutation(np.linspace(-1.0, 1.0, ROWS)),
    "day": np.random.default_rng(1).permutation(np.arange(18_000.0, 18_000.0 + ROWS)),
    "place": np.random.default_rng(2).choice(np.array(["A", "B"], dtype=object), ROWS),
}


def posterior_of(
    first: list[tuple[str, float, float]], last: list[float], skip: dict[str, float], columns: Columns
) -> Posterior:
    """Return the posterior of a known function: relu units ``(input, weight, bias)``, last weights, a linear part."""
    schema = schema_of(columns, imputed=False)
    encoder = Encoder.fit(schema, columns)
    architecture = Architecture(encoder.width, (len(first),), 1, "relu", members=1, skip=True)
    spec = ModelSpec(
        architecture=architecture,
        likelihood=LikelihoodSpec("fixed", sigma=0.1),
        target=Standardisation(Identity(), 0.0, 1.0),
        schema=schema,
        encoder=encoder,
    )
    tensors = {
        name: torch.full(shape, -30.0 if name.endswith("rho") else 0.0) for name, shape in spec.tensor_shapes().items()
    }
    for unit, (name, weight, bias) in enumerate(first):
        tensors["layers.0.weight.mu"][0, encoder.names.index(name), unit] = weight
        tensors["layers.0.bias.mu"][0, 0, unit] = bias
        tensors["layers.1.weight.mu"][0, unit, 0] = last[unit]
    for name, weight in skip.items():
        tensors["layers.1.weight.mu"][0, len(first) + encoder.names.index(name), 0] = weight
    return Posterior(spec, tensors, engine="torch")


def test_a_straight_line_is_followed_as_far_as_it_was_tested_and_has_a_random_slope_of_a_tenth_of_its_own() -> None:
    posterior = posterior_of([("x", 0.0, 0.0)], [0.0], {"x": 0.8, "day": -0.4, "place=A": 0.6}, COLUMNS)
    found = extrapolation_trial(posterior, COLUMNS, 1.0)
    names = posterior.encoder.names
    slopes = {names[number]: slope for number, slope in found.slopes.items()}
    least = LEAST_SLOPE / 4**0.5
    assert slopes == pytest.approx(
        {
            "x beyond the training rows": 0.8 * (1.0 - FOLLOWED),
            "idle beyond the training rows": least,
            "day beyond the training rows": 0.4,
            "place is unseen": 0.6 / 2**0.5,
        },
        rel=1e-3,
    )
    assert set(found.continuations) == {"x", "idle"}  # dates go on
    followed, unit = found.continuations["x"], slopes["x beyond the training rows"]
    assert followed.share == pytest.approx(1.0, abs=1e-4)
    assert followed.tested == pytest.approx((10.0 * INNER[0], 10.0 * (1 - INNER[1])))
    slope = np.hypot(0.8 * LEAST_FACTOR, least)
    np.testing.assert_allclose(
        np.multiply(unit, [followed.slopes, followed.bends, followed.stops]),
        [[slope] * 2, [0.0] * 2, [0.8] * 2],
        atol=0.01,
    )


def test_a_parabola_is_uncertain_as_it_bends_at_each_edge() -> None:
    """``x^2`` of relu units at many places: slope and curvature at the ends, and what a line leaves over at the thirds.

    From the edge of the inner third, at 1/sqrt(3) std, a parabola ``z^2`` changes by twice that slope times the
    distance d, which is followed, and by d^2.
    """
    columns = {"x": COLUMNS["x"]}
    knots = np.linspace(-1.75, 1.75, 71)
    units = [("x", sign, -sign * knot) for knot in knots for sign in (1.0, -1.0) if sign * knot >= 0.0]
    posterior = posterior_of(
        [(name, s, b) for name, s, b in units], [0.1 if b else 0.05 for *_, b in units], {}, columns
    )
    found = extrapolation_trial(posterior, columns, 1.0).continuations["x"]
    (unit,) = extrapolation_trial(posterior, columns, 1.0).slopes.values()
    end = 3**0.5
    distances = np.abs(np.linspace(-end, end, 2001))
    distances = distances[distances > end / 3] - end / 3
    linear, bend = 2.0 * end / 3 * distances, distances**2
    assert found.share == 1.0
    factor = np.hypot(np.sqrt(np.square(bend).sum() / (np.square(linear).sum() + np.square(bend).sum())), LEAST_FACTOR)
    np.testing.assert_allclose(np.multiply(unit, found.slopes), factor * 2.0 * end, rtol=0.05)
    np.testing.assert_allclose(np.multiply(unit, found.bends), factor * 2.0, rtol=0.1)


def test_the_variances_of_numbers_that_leave_their_ranges_together_are_divided_by_their_number() -> None:
    both = {"x": COLUMNS["x"], "again": 3.0 * COLUMNS["x"] + 1.0}
    found = extrapolation_trial(posterior_of([("x", 0.0, 0.0)], [0.0], {"x": 4.0, "again": 4.0}, both), both, 1.0)
    expected = np.hypot(LEAST_FACTOR * 4.0, LEAST_SLOPE) / 2**0.5
    for unit, continuation in zip(found.slopes.values(), found.continuations.values(), strict=True):
        np.testing.assert_allclose(np.multiply(unit, continuation.slopes), expected, rtol=0.01)


def test_a_line_that_bends_is_followed_by_the_share_that_it_kept() -> None:
    """Beyond z = 1 and below z = -1 the function is flat: of what is extrapolated, only the first part comes."""
    columns = {"x": COLUMNS["x"]}
    posterior = posterior_of([("x", 1.0, 1.0), ("x", 1.0, -1.0)], [1.0, -1.0], {}, columns)
    share = extrapolation_trial(posterior, columns, 1.0).continuations["x"].share
    z = (columns["x"] - columns["x"].mean()) / columns["x"].std()
    low, high = np.quantile(z, INNER)
    extrapolated = z - np.clip(z, low, high)
    change = np.clip(z, -1.0, 1.0) - np.clip(z, low, high)
    assert share == pytest.approx((extrapolated * change).sum() / np.square(extrapolated).sum(), abs=1e-3)
    assert 0.2 < share < 0.8


def test_columns_without_spread_and_with_missing_cells_are_no_trouble() -> None:
    columns = {"x": np.where(np.arange(ROWS) < 3, 7.0, np.nan), "idle": np.zeros(ROWS)}
    found = extrapolation_trial(posterior_of([("x", 0.0, 0.0)], [0.0], {}, columns), columns, 1.0)
    assert all(each.share == 0.0 for each in found.continuations.values())
    assert all(slope > 0.0 for slope in found.slopes.values())
