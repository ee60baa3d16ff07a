"""Draws of the weights spread as far as training and held-out rows together say that the mean is wrong."""

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.nn import functional

from murho.model.checkpoint.posterior import Posterior
from murho.model.evaluation.judged_rows import RowWeights
from murho.model.predictive.prediction import PredictOptions
from murho.model.tables.schema_inference import columns_from_table
from murho.model.tables.splits import HeldOut
from murho.model.training import weight_spread
from murho.model.training.weight_spread import FunctionShare, MemberRows, scale_weights, weight_factor
from tests.model.conftest import make_table, train_quickly

MEMBERS, FOLDS = 10, 5


def least_squares(rows: int, features: int, seed: int) -> tuple[FunctionShare, float]:
    """Return the share of ten least-squares fits of all but a fifth of the rows, and the true one on fresh rows."""
    generator = np.random.default_rng(seed)
    x, fresh = generator.normal(size=(rows, features)), generator.normal(size=(4_000, features))
    effects = generator.normal(size=features)
    y = x @ effects + generator.normal(size=rows)
    judged, found = np.zeros((MEMBERS, rows), dtype=bool), []
    for member in range(MEMBERS):
        if member % FOLDS == 0:
            folds = generator.permutation(rows) % FOLDS
        judged[member] = folds == member % FOLDS
        found.append(np.linalg.lstsq(x[~judged[member]], y[~judged[member]], rcond=None)[0])
    means, none = np.stack([x @ fit for fit in found], axis=1), np.zeros((rows, MEMBERS))
    share = FunctionShare.of(MemberRows(y, judged.T, means, none, none + 1.0), RowWeights.of(rows))
    error = np.square(fresh @ (np.mean(found, axis=0) - effects)).mean()
    return share, float(error / (1.0 + error))


@pytest.mark.parametrize(("rows", "features"), [(200, 10), (400, 40), (400, 100)])
def test_the_share_of_least_squares_is_that_of_its_true_error(rows: int, features: int) -> None:
    repeats = [least_squares(rows, features, seed) for seed in range(20)]
    found, errors, true = np.array([(share.share, share.error, truth) for share, truth in repeats]).T
    assert found.mean() == pytest.approx(true.mean(), rel=0.15)
    # Their spread is about the standard error that each has.
    assert found.std() == pytest.approx(errors.mean(), rel=0.6)


def test_the_wanted_variance_gives_the_function_a_share_between_what_rows_say_and_its_own() -> None:
    share = FunctionShare(within=0.6, between=0.1, noise=1.0, share=0.2, error=0.01, residual=1.0)
    function = share.within_of_share + share.between
    assert 0.2 < function / (function + share.noise) < 0.7 / 1.7
    surer = FunctionShare(within=0.6, between=0.5, noise=1.0, share=0.1, error=0.01, residual=1.0)
    assert surer.within_of_share < 0.0  # the members alone disagree about more


def test_only_standard_deviations_of_weights_are_scaled() -> None:
    tensors = train_quickly(make_table(), members=2).posterior.tensors
    for name, scaled in scale_weights(tensors, 0.5).items():
        if name.endswith(".rho") and name.startswith("layers."):
            np.testing.assert_allclose(functional.softplus(scaled), 0.5 * functional.softplus(tensors[name]), rtol=1e-4)
        else:
            assert torch.equal(scaled, tensors[name])


def line(rows: int = 400, seed: int = 3) -> pa.Table:
    generator = np.random.default_rng(seed)
    columns = {name: generator.random(rows) for name in ("size", "x1", "x2", "x3")}
    return pa.table({**columns, "rent": 3.0 * columns["size"] - columns["x1"] + generator.normal(size=rows)})


def test_weights_that_spread_too_far_get_a_smaller_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    caught = []

    def keep(posterior: Posterior, *rest: object) -> float:
        caught.append((posterior, rest))
        return 1.0

    with monkeypatch.context() as patch:
        patch.setattr("murho.model.training.train.weight_factor", keep)
        train_quickly(line(), members=10, temperature=None)
    posterior, rest = caught[0]
    wider = Posterior(posterior.spec, scale_weights(posterior.tensors, 1.5), engine="torch")
    factors = [weight_factor(each, *rest) for each in (posterior, wider)]  # type: ignore[arg-type]
    assert weight_spread.LEAST < factors[1] < factors[0]
    assert 1.5 * factors[1] == pytest.approx(factors[0], rel=0.25)


def test_doubt_of_a_line_is_about_its_true_error() -> None:
    trained = train_quickly(line(), members=10, temperature=None, epochs=None)
    fresh = line(2_000, seed=4)
    answer = trained.posterior.predict(columns_from_table(fresh, trained.posterior.schema), PredictOptions())
    truth = 3.0 * fresh["size"].to_numpy() - fresh["x1"].to_numpy()
    error = np.sqrt(np.square(answer.mean - truth).mean())
    assert 0.7 < np.sqrt(np.square(answer.epistemic_std).mean()) / error < 1.5


def test_the_factor_does_not_depend_on_the_targets_unit() -> None:
    table = line()
    huge = table.set_column(4, "rent", pa.array(1e30 * table["rent"].to_numpy()))
    factors = [
        train_quickly(each, members=10, temperature=None).spec.training["weight_spread"] for each in (table, huge)
    ]
    assert factors[0] != 1.0
    assert factors[1] == pytest.approx(factors[0], rel=0.02)


def test_one_member_a_given_temperature_and_groups_keep_the_weights_as_they_were_fitted() -> None:
    alone = train_quickly(make_table(), members=1, temperature=None)
    exact = train_quickly(make_table(), members=10)
    grouped = train_quickly(make_table(), members=10, temperature=None, group=("district",))
    assert {each.spec.training["weight_spread"] for each in (alone, exact, grouped)} == {1.0}


def test_rows_that_all_members_know_say_nothing() -> None:
    posterior = train_quickly(make_table(), members=2).posterior
    encoded = posterior.encoder.encode(columns_from_table(make_table(), posterior.schema))
    assert weight_factor(posterior, encoded, np.ones(160), [HeldOut(np.arange(10), None)]) == 1.0
