"""Answers for rows with cells that no training row lacked."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch

from murho.model.checkpoint.posterior import Posterior
from murho.model.checkpoint.row_answers import mostly_imputed
from murho.model.checkpoint.spec import ModelSpec
from murho.model.distributions.predictive import Predictive
from murho.model.encoding.imputation import IMPUTATIONS
from murho.model.errors import CheckpointError, TableError
from murho.model.evaluation.judging import evaluate_table
from murho.model.predictive.prediction import Prediction, PredictOptions
from murho.model.tables.schema_inference import columns_from_table
from murho.model.training.revisions import labelled_rows
from tests.model.conftest import make_table, train_quickly

if TYPE_CHECKING:
    from murho.model.encoding.encoder import Encoded
    from murho.model.tables.schema import Columns

OPTIONS = PredictOptions(samples=128, draws=True, thresholds=(600.0,))
ARRAYS = ("mean", "std", "epistemic_std", "aleatoric_std", "percentiles", "exceedance", "draws")


def holed(rows: int = 40, share: float = 0.3) -> pa.Table:
    """Rows with cells missing in all columns but the target; only ``size`` had missing cells in training."""
    table = make_table(rows, seed=9)
    generator = np.random.default_rng(0)
    for name in ("district", "lift", "day"):
        gone = pa.array(generator.random(rows) < share)
        cells = pc.if_else(gone, pa.scalar(None, table[name].type), table[name])
        table = table.set_column(table.column_names.index(name), name, cells)
    return table


def columns_of(posterior: Posterior, table: pa.Table | None = None) -> Columns:
    return columns_from_table(holed() if table is None else table, posterior.schema)


def row_of(columns: Columns, row: int) -> Columns:
    return {name: column[row : row + 1] for name, column in columns.items()}


def assert_same(one: Prediction, other: Prediction, rows: slice | np.ndarray = slice(None)) -> None:
    for name in ARRAYS:
        np.testing.assert_allclose(getattr(one, name), getattr(other, name)[rows], rtol=1e-5, atol=1e-3)  # in euro


@pytest.mark.parametrize("engine", ["torch", "auto"])
def test_a_rows_answer_does_not_depend_on_its_batch_mates(rent: Posterior, engine: str) -> None:
    posterior = Posterior(rent.spec, rent.tensors, engine=engine)
    columns = columns_of(posterior)
    whole = posterior.predict(columns, OPTIONS)
    for row in range(0, 40, 7):
        assert_same(posterior.predict(row_of(columns, row), OPTIONS), whole, slice(row, row + 1))


def test_both_engines_give_the_same_answer(rent: Posterior) -> None:
    reference, quick = (Posterior(rent.spec, rent.tensors, engine=engine) for engine in ("torch", "auto"))
    assert_same(quick.predict(columns_of(rent), OPTIONS), reference.predict(columns_of(rent), OPTIONS))


def test_rows_without_missing_cells_are_answered_as_alone(rent: Posterior) -> None:
    complete = columns_of(rent, make_table(3, seed=9))
    mixed = {name: np.concatenate([complete[name], column[:9]]) for name, column in columns_of(rent).items()}
    assert_same(rent.predict(complete, OPTIONS), rent.predict(mixed, OPTIONS), slice(3))


def test_fewer_rows_share_a_pass_without_draws_where_cells_are_missing(rent: Posterior) -> None:
    complete = rent.rows_without_draws(columns_of(rent, make_table(40, seed=9)), 0.04)
    assert rent.rows_without_draws(row_of(columns_of(rent, make_table(1, seed=9)), 0), 0.04) == complete
    assert 1 < rent.rows_without_draws(columns_of(rent), 0.04) < complete / 4


def test_a_draw_is_the_same_whatever_the_number_of_draws(rent: Posterior) -> None:
    few, many = (rent.predict(columns_of(rent), dataclasses.replace(OPTIONS, samples=count)) for count in (20, 200))
    assert few.draws is not None
    assert many.draws is not None
    np.testing.assert_allclose(few.draws, many.draws[:, :20], rtol=1e-5)


def copy_of(copies: Encoded, number: int) -> Encoded:
    return replace(copies, inputs=copies.inputs[number], beyond=copies.beyond[number])


def test_a_draw_is_that_of_its_copy(rent: Posterior) -> None:
    columns = row_of(columns_of(rent), int(np.argmax([cell is None for cell in columns_of(rent)["district"]])))
    answer = rent.predict(columns, OPTIONS)
    copies = rent.encoder.encode_copies(columns)
    assert answer.draws is not None
    for draw in (0, 5, 40, 127):
        alone = rent.predict_encoded(copy_of(copies, draw % IMPUTATIONS), OPTIONS)
        assert alone.draws is not None
        assert answer.draws[0, draw] == pytest.approx(alone.draws[0, draw], rel=1e-4)


def test_the_answer_widens_by_what_the_cell_would_have_told(rent: Posterior) -> None:
    known = columns_of(rent, make_table(20, seed=9))
    unknown = {**known, "district": np.full(20, None, dtype=object)}
    before, after = (rent.predict(columns, OPTIONS) for columns in (known, unknown))
    assert before.epistemic_std is not None
    assert after.epistemic_std is not None
    assert (after.epistemic_std > before.epistemic_std).mean() > 0.9
    west = known["district"] == "west"
    assert (after.mean[west] < before.mean[west]).all()  # rents are higher in the west


def test_without_draws_the_mean_network_is_averaged_over_all_copies(rent: Posterior) -> None:
    columns = columns_of(rent)
    none = PredictOptions(samples=0)
    answer = rent.predict(columns, none)
    encoded = rent.encoder.encode_copies(columns)
    copies = [rent.predict_encoded(copy_of(encoded, number), none).mean for number in range(IMPUTATIONS)]
    np.testing.assert_allclose(answer.mean, np.mean(copies, axis=0), rtol=1e-5)
    np.testing.assert_array_equal(rent.predict(columns, none).mean, answer.mean)
    assert answer.std is None


def test_a_row_of_missing_cells_alone_is_about_an_average_row(rent: Posterior) -> None:
    columns = {
        name: np.array([None if column.dtype == object else np.nan], dtype=column.dtype)
        for name, column in columns_of(rent).items()
    }
    answer = rent.predict(columns, PredictOptions())
    rents = make_table()["rent"].to_numpy()
    assert abs(answer.mean[0] - rents.mean()) < 2.0 * rents.std()
    assert answer.unlike is not None
    assert not answer.unlike[0]


def test_monte_carlo_errors_are_in_the_order_of_the_rows(rent: Posterior) -> None:
    columns = columns_of(rent)
    options = PredictOptions(samples=64, mc_error=True)
    whole = rent.predict(columns, options).mc_error
    alone = rent.predict(row_of(columns, 11), options).mc_error
    assert whole is not None
    assert alone is not None
    np.testing.assert_allclose(alone.mean, whole.mean[11:12], rtol=1e-4)


def test_missing_cells_are_judged_in_the_order_of_the_rows(rent: Posterior) -> None:
    table = holed(120)
    known = pc.is_valid(table["district"])
    # Targets out of reach, where the district is known: the bands miss these rows alone.
    table = table.set_column(4, "rent", pc.if_else(known, pa.scalar(1e6), table["rent"]))
    report = evaluate_table(rent, table)
    assert report["n"] == 120
    groups = report["coverage_by_category"]["district"]
    assert {group["category"]: group["raw"] > 0.5 for group in groups if not group.get("merged")} == {
        "east": False,
        "north": False,
        "west": False,
        None: True,
    }


def test_refusing_is_as_before() -> None:
    trained = train_quickly(make_table(), epochs=3, missing="refuse")
    assert trained.spec.training["options"]["missing"] == "refuse"
    assert {feature.name: feature.accepts_missing for feature in trained.spec.schema.features} == {
        "size": True,
        "district": False,
        "lift": False,
        "day": False,
    }
    with pytest.raises(TableError, match=r"column '(district|lift|day)', row 1?[0-9]: the cell is missing"):
        columns_of(trained.posterior)


def test_an_update_refuses_missing_cells(rent: Posterior) -> None:
    with pytest.raises(TableError, match="the cell is missing, and no cell of this column was missing in training"):
        labelled_rows(holed(), rent)


def test_a_checkpoint_without_a_distribution_can_not_impute(rent: Posterior) -> None:
    data = rent.spec.to_json()
    data["encoder"]["distribution"] = None
    with pytest.raises(
        CheckpointError, match=r"^encoder\.distribution: expected one, because a feature has imputed cells"
    ):
        ModelSpec.from_json(data)


@pytest.mark.parametrize(("spread", "expected"), [(0.1, False), (3.0, True)])
def test_spread_is_mostly_imputed_where_copies_differ_more_than_draws(spread: float, expected: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    copies = spread * torch.randn(IMPUTATIONS, 1, generator=generator, dtype=torch.float64)
    draws = copies[torch.arange(256) % IMPUTATIONS] + torch.randn(256, 1, generator=generator, dtype=torch.float64)
    predictive = Predictive.of(draws.unsqueeze(2), torch.full((256, 1, 1), 0.5, dtype=torch.float64))
    assert mostly_imputed(predictive, IMPUTATIONS).tolist() == [expected]
    few = Predictive.of(draws[:40].unsqueeze(2), torch.full((40, 1, 1), 0.5, dtype=torch.float64))
    assert mostly_imputed(few, IMPUTATIONS).tolist() == [False]
