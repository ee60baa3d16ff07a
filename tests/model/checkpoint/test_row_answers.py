"""Answers for encoded rows: tiles, threads and draws that are made anew change nothing."""

from __future__ import annotations

import dataclasses
from dataclasses import fields, is_dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from murho.model.checkpoint.posterior import Posterior
from murho.model.checkpoint.row_answers import NetworkOutputs, mostly_imputed
from murho.model.checkpoint.spec import ModelSpec
from murho.model.distributions.predictive import Predictive
from murho.model.encoding.encoder import Encoder
from murho.model.encoding.imputation import IMPUTATIONS
from murho.model.errors import CheckpointError, TableError
from murho.model.evaluation.judging import evaluate_table
from murho.model.predictive.draw_room import DrawRoom
from murho.model.predictive.draws import DrawMaker
from murho.model.predictive.prediction import Prediction, PredictOptions, Question
from murho.model.tables.schema import FeatureKind
from murho.model.tables.schema_inference import columns_from_table
from tests.model.conftest import make_table, present, train_quickly

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from murho.model.encoding.encoder import Encoded
    from murho.model.tables.schema import Columns


OPTIONS = PredictOptions(samples=33, thresholds=(500.0, 900.0), draws=True)


@pytest.fixture(scope="module")
def columns(rent: Posterior) -> Columns:
    return columns_from_table(make_table(rows=1000, seed=9), rent.schema)


def _assert_same(part: Prediction, whole: Prediction, rows: slice) -> None:
    """Equal to 1e-5 of the larger of the value and the row's std, DESIGN.md's rule."""
    assert whole.std is not None
    for field in ("mean", "std", "epistemic_std", "aleatoric_std", "percentiles", "exceedance", "draws"):
        expected, actual = getattr(whole, field)[rows], getattr(part, field)
        spread = whole.std[rows].reshape(-1, *([1] * (expected.ndim - 1)))
        assert (np.abs(actual - expected) <= 1e-5 * np.maximum(np.abs(expected), spread)).all(), field


def test_draws_that_may_not_be_kept_change_nothing_but_the_time(
    rent: Posterior, rent_checkpoints: Path, columns: Columns
) -> None:
    options = dataclasses.replace(OPTIONS, samples=200, mc_error=True)
    small = Posterior.load(rent_checkpoints / "rent" / "1", room=DrawRoom(1))
    part, whole = small.predict(columns, options), rent.predict(columns, options)
    _assert_same(part, whole, slice(None))
    np.testing.assert_allclose(present(part.mc_error).std, present(whole.mc_error).std, rtol=1e-4)


def test_draws_are_made_once_a_request(
    rent_checkpoints: Path, columns: Columns, monkeypatch: pytest.MonkeyPatch
) -> None:
    posterior = Posterior.load(rent_checkpoints / "rent" / "1")
    monkeypatch.setattr(posterior, "tile_values", 100 * OPTIONS.samples)
    options = dataclasses.replace(OPTIONS, mc_error=True)
    with patch.object(DrawMaker, "make", autospec=True, side_effect=DrawMaker.make) as make:
        first = posterior.predict(columns, options)
        assert make.call_count == 1
        again = posterior.predict(columns, options)
        assert make.call_count == 1
    np.testing.assert_array_equal(present(again.mc_error).std, present(first.mc_error).std)


def test_where_a_row_lies_is_found_out_once_a_request(
    rent: Posterior, columns: Columns, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = rent.architecture.outputs
    monkeypatch.setattr(rent, "tile_values", 600 * OPTIONS.samples * outputs)
    with patch.object(Encoder, "encode", autospec=True, side_effect=Encoder.encode) as encode:
        rent.predict(columns, dataclasses.replace(OPTIONS, mc_error=True))
    assert encode.call_count == 1


@pytest.mark.parametrize(
    ("draws_bytes", "rows_per_draw", "parts"),
    [
        (2**30, 500, [256, 256, 256, 232]),  # half of 500 by the two outputs of a row, but 256 at least
        (2**30, 100, [100] * 10),
        (1, 500, [500, 500]),  # draws are made anew for each tile
    ],
)
def test_tiles_are_small_but_not_where_products_are_slow_or_draws_are_made_anew(
    rent_checkpoints: Path,
    columns: Columns,
    monkeypatch: pytest.MonkeyPatch,
    draws_bytes: int,
    rows_per_draw: int,
    parts: list[int],
) -> None:
    posterior = Posterior.load(rent_checkpoints / "rent" / "1", room=DrawRoom(draws_bytes))
    assert posterior.architecture.outputs == 2
    monkeypatch.setattr(posterior, "tile_values", rows_per_draw * OPTIONS.samples)
    with patch.object(NetworkOutputs, "drawn", autospec=True, side_effect=NetworkOutputs.drawn) as outputs:
        posterior.predict(columns, OPTIONS)
    assert [len(call.args[3]) for call in outputs.call_args_list] == parts


IMPUTED = PredictOptions(samples=128, draws=True, thresholds=(600.0,))
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


def test_both_engines_give_the_same_answer(rent: Posterior) -> None:
    reference, quick = (Posterior(rent.spec, rent.tensors, engine=engine) for engine in ("torch", "auto"))
    assert_same(quick.predict(columns_of(rent), IMPUTED), reference.predict(columns_of(rent), IMPUTED))


def test_fewer_rows_share_a_pass_without_draws_where_cells_are_missing(rent: Posterior) -> None:
    complete = rent.rows_without_draws(columns_of(rent, make_table(40, seed=9)), 0.04)
    assert rent.rows_without_draws(row_of(columns_of(rent, make_table(1, seed=9)), 0), 0.04) == complete
    assert 1 < rent.rows_without_draws(columns_of(rent), 0.04) < complete / 4


def copy_of(copies: Encoded, number: int) -> Encoded:
    return replace(copies, inputs=copies.inputs[number], beyond=copies.beyond[number])


def test_a_draw_is_that_of_its_copy(rent: Posterior) -> None:
    columns = row_of(columns_of(rent), int(np.argmax([cell is None for cell in columns_of(rent)["district"]])))
    answer = rent.predict(columns, IMPUTED)
    copies = rent.encoder.encode_copies(columns)
    assert answer.draws is not None
    for draw in (0, 5, 40, 127):
        alone = rent.predict_encoded(copy_of(copies, draw % IMPUTATIONS), IMPUTED)
        assert alone.draws is not None
        assert answer.draws[0, draw] == pytest.approx(alone.draws[0, draw], rel=1e-4)


def test_the_answer_widens_by_what_the_cell_would_have_told(rent: Posterior) -> None:
    known = columns_of(rent, make_table(20, seed=9))
    unknown = {**known, "district": np.full(20, None, dtype=object)}
    before, after = (rent.predict(columns, IMPUTED) for columns in (known, unknown))
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


ASKED = (
    PredictOptions(),
    PredictOptions(percentiles=(), seed=0),
    PredictOptions(percentiles=(99.0, 0.001, 50.0), thresholds=(300.0, 900.0)),
    PredictOptions(noise=False, thresholds=(700.0,), draws=True),
    PredictOptions(calibrated=False, draws=True),
    PredictOptions(mc_error=True),
    PredictOptions(noise=False, mc_error=True),
)


@pytest.fixture(scope="module")
def mixture() -> Posterior:
    """A posterior with a mixture of three as noise, and the logarithm of the target."""
    return train_quickly(make_table(), members=2, noise="mixture", transform="log", epochs=10).posterior


@pytest.fixture(params=["auto", "torch"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def rows_of(posterior: Posterior, count: int, *, missing: bool) -> Columns:
    """Rows like the training rows, every fifth of them far out, and some with cells to impute."""
    columns = dict(columns_from_table(holed(count) if missing else make_table(count, seed=9), posterior.schema))
    columns["size"] = np.where(np.arange(count) % 5 == 1, 1e4, columns["size"])
    return columns


def questions_for(counts: list[int], generator: np.random.Generator, samples: int) -> list[Question]:
    ends = np.cumsum([0, *counts])
    return [
        Question(
            slice(int(start), int(stop)),
            replace(ASKED[generator.integers(len(ASKED))], samples=samples),
        )
        for start, stop in pairwise(ends)
    ]


def assert_answered_as_alone(posterior: Posterior, columns: Columns, questions: list[Question]) -> None:
    """Within 1e-5 of the larger of the value and the row's std, DESIGN.md's rule; errors within 1e-3 of std."""
    for question, together in zip(questions, posterior.predict_questions(columns, questions), strict=True):
        rows = {name: column[question.rows] for name, column in columns.items()}
        alone = posterior.predict(rows, question.options)
        assert (together.samples, together.seed, together.calibrated) == (alone.samples, alone.seed, alone.calibrated)
        spread = np.zeros(len(alone.mean)) if alone.std is None else alone.std
        assert_close(together, alone, spread, 1e-5)
        if alone.mc_error is not None:
            assert_close(present(together.mc_error), alone.mc_error, spread, 1e-3)


def assert_close(one: Any, other: Any, spread: np.ndarray, tolerance: float) -> None:
    for field in fields(other):
        actual, expected = getattr(one, field.name), getattr(other, field.name)
        if not isinstance(expected, np.ndarray):
            assert (actual is None) == (expected is None), field.name
        elif expected.dtype == np.bool_:
            np.testing.assert_array_equal(actual, expected, field.name)
        else:
            assert actual.shape == expected.shape
            scale = np.maximum(np.abs(expected), spread.reshape(-1, *[1] * (expected.ndim - 1)))
            assert (np.abs(actual - expected) <= tolerance * scale).all(), field.name


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("samples", [0, 1, 40])
@pytest.mark.parametrize("which", ["rent", "mixture"])
def test_each_question_is_answered_as_if_alone(
    which: str, samples: int, missing: bool, engine: str, request: pytest.FixtureRequest
) -> None:
    loaded = request.getfixturevalue(which)
    posterior = Posterior(loaded.spec, loaded.tensors, engine=engine)
    generator = np.random.default_rng(samples + missing)
    counts = [1, 3, 1, 1, 12, 2, 1, 1, 9]
    questions = questions_for(counts, generator, samples)
    if samples == 1:  # a single draw has no Monte Carlo error to compare
        questions = [Question(one.rows, replace(one.options, mc_error=False)) for one in questions]
    assert_answered_as_alone(posterior, rows_of(posterior, sum(counts), missing=missing), questions)


def test_a_question_that_spans_tiles_is_joined(rent: Posterior, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = [300, 1, 260, 1, 1, 500]
    generator = np.random.default_rng(0)
    columns, questions = rows_of(rent, sum(counts), missing=False), questions_for(counts, generator, 8)
    monkeypatch.setattr(rent, "tile_values", 1)  # tiles of 256 rows
    assert_answered_as_alone(rent, columns, questions)


def test_equal_questions_are_answered_together(rent: Posterior, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    answer = rent.engine.answer

    def counted(plan: Any, outputs: Any, *others: Any) -> Any:
        asked.append(outputs.shape[1])
        return answer(plan, outputs, *others)

    monkeypatch.setattr(rent.engine, "answer", counted)
    plain, thresholds = PredictOptions(), PredictOptions(thresholds=(500.0,))
    options = [plain, thresholds, plain, plain, thresholds]
    questions = [Question(slice(row, row + 1), each) for row, each in enumerate(options)]
    answers = rent.predict_questions(rows_of(rent, 5, missing=False), questions)
    assert asked == [3, 2]
    assert [answer.exceedance is not None for answer in answers if isinstance(answer, Prediction)] == [
        False,
        True,
        False,
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("slices", "options"),
    [
        ([slice(0, 2), slice(3, 4)], [PredictOptions()] * 2),  # a gap
        ([slice(0, 2), slice(2, 4)], [PredictOptions(), PredictOptions(samples=8)]),
        ([slice(0, 2), slice(2, 4)], [PredictOptions(seed=1), PredictOptions(seed=2)]),
        ([], []),
    ],
)
def test_questions_that_can_not_share_a_pass_are_refused(
    rent: Posterior, slices: list[slice], options: list[PredictOptions]
) -> None:
    questions = [Question(*each) for each in zip(slices, options, strict=True)]
    with pytest.raises(ValueError, match="questions"):
        rent.predict_questions(rows_of(rent, 4, missing=False), questions)


def test_no_rows_are_no_answer(rent: Posterior) -> None:
    assert rent.predict(rows_of(rent, 0, missing=False), PredictOptions()).mean.shape == (0,)


def with_rare_categories() -> Posterior:
    table = make_table()
    names = table["district"].to_pylist()
    names[:3] = ["rare", "rarer", "rarest"]
    return train_quickly(table.set_column(1, "district", pa.array(names)), epochs=3).posterior


@pytest.mark.parametrize("make", [None, with_rare_categories])
def test_the_rows_with_something_to_tell_are_those_with_a_warning(rent: Posterior, make: Any) -> None:
    posterior = rent if make is None else make()
    columns = dict(rows_of(posterior, 60, missing=True))
    columns["district"][::7] = "unheard of"
    columns["district"][3::7] = "east"
    answer = posterior.predict(columns, PredictOptions())
    listed = {warning.row for warning in posterior.input_warnings(columns)}
    told, unlike = present(answer.told), present(answer.unlike)
    assert listed == set(np.flatnonzero(told).tolist())
    assert (told | ~unlike).all()
    assert not told.all()
    if make is with_rare_categories:  # here `unlike` does not tell
        assert not listed <= set(np.flatnonzero(unlike).tolist())


@pytest.mark.parametrize("noise", [True, False])
def test_a_draw_is_the_same_whatever_the_number_of_draws(mixture: Posterior, noise: bool, engine: str) -> None:
    posterior = Posterior(mixture.spec, mixture.tensors, engine=engine)
    columns = rows_of(posterior, 20, missing=False)
    many = posterior.predict(columns, PredictOptions(samples=100, draws=True, noise=noise))
    for samples in (1, 2, 7, 64):
        few = posterior.predict(columns, PredictOptions(samples=samples, draws=True, noise=noise))
        apart = np.abs(present(few.draws) - present(many.draws)[:, :samples])
        assert (apart <= 1e-5 * np.maximum(np.abs(present(few.draws)), present(many.std)[:, None])).all()


ROWS, TO, ERRORS_TO = 200, 1e-5, 1e-3
NUMBERS = (
    PredictOptions(samples=64, draws=True, mc_error=True, thresholds=(500.0,), percentiles=(0.01, 5.0, 50.0, 99.0)),
    # With 41 draws these percentiles are function values of draws.
    PredictOptions(samples=41, draws=True, mc_error=True, noise=False),
    PredictOptions(samples=64, calibrated=False),
)
CLASSES = (
    PredictOptions(samples=64, draws=True, mc_error=True, percentiles=(0.5, 33.0, 99.9)),
    PredictOptions(samples=41, draws=True, calibrated=False),
)


def rows_near_and_far(posterior: Posterior) -> Columns:
    """Rows of every kind: like the training rows, up to 10,000 times their range away, and with missing cells."""
    generator, columns = np.random.default_rng(0), {}
    for feature in posterior.schema.features:
        if feature.kind is FeatureKind.CATEGORICAL:
            columns[feature.name] = generator.choice(np.array(feature.categories, dtype=object), ROWS)
            continue
        low, high = feature.minimum or 0.0, feature.maximum or 0.0
        away = generator.choice([-1.0, 1.0], ROWS) * 10.0 ** generator.uniform(-1.0, 4.0, ROWS) * (high - low)
        column = generator.uniform(low, high, ROWS) + np.where(generator.random(ROWS) < 0.4, away, 0.0)
        columns[feature.name] = np.where(generator.random(ROWS) < 0.04, np.nan, column)
    return columns


def assert_within_contract(
    one: Any, other: Any, where: str = "", spread: np.ndarray | None = None, to: float = TO
) -> None:
    """Within the contract: 1e-5 of the larger of |value| and std (of classes: of the probability's epistemic_std)."""
    if where == "":
        spread = other.epistemic_std if hasattr(other, "classes") else other.std
    for field in fields(other):
        actual, expected = getattr(one, field.name), getattr(other, field.name)
        if is_dataclass(expected):
            assert_within_contract(actual, expected, field.name, spread, ERRORS_TO)
        elif isinstance(expected, np.ndarray) and expected.dtype.kind == "f":
            assert spread is not None
            of_value = spread if spread.ndim == 1 or expected.ndim > 1 else spread.max(axis=1)
            if field.name == "draws" and spread.ndim == 2:
                of_value = of_value[:, np.newaxis]
            of_value = of_value.reshape(*of_value.shape, *(1,) * (expected.ndim - of_value.ndim))
            apart = np.abs(actual - expected) / np.maximum(np.abs(expected), of_value)
            assert apart.max(initial=0.0) <= to, (where, field.name, apart.max())
        else:
            np.testing.assert_array_equal(actual, expected, field.name)


@pytest.fixture(params=["auto", "torch"])
def reload(request: pytest.FixtureRequest) -> Callable[[Posterior], Posterior]:
    return lambda loaded: Posterior(loaded.spec, loaded.tensors, engine=str(request.param))


@pytest.mark.parametrize("which", ["rent", "rooms"])
def test_rows_alone_and_in_any_crowd_have_the_same_answers(
    which: str, reload: Callable[[Posterior], Posterior], request: pytest.FixtureRequest
) -> None:
    posterior = reload(request.getfixturevalue(which))
    columns = rows_near_and_far(posterior)
    all_options = NUMBERS if which == "rent" else CLASSES
    alone = [
        [
            posterior.predict({name: column[row : row + 1] for name, column in columns.items()}, options)
            for row in range(ROWS)
        ]
        for options in all_options
    ]
    before = torch.get_num_threads()

    @settings(deadline=None, max_examples=8, database=None)
    @given(
        shuffle=st.integers(0, 2**32),
        rows=st.integers(2, ROWS),
        threads=st.integers(1, 2),
        tile_values=st.sampled_from([1, 500, 2**19]),
        number=st.integers(0, len(all_options) - 1),
    )
    @example(0, ROWS, 1, 2**19, 0)
    @example(0, ROWS, 1, 2**19, 1)
    def compare(shuffle: int, rows: int, threads: int, tile_values: int, number: int) -> None:
        torch.set_num_threads(threads)
        posterior.tile_values = tile_values
        order = np.random.default_rng(shuffle).permutation(ROWS)[:rows]
        crowd = {name: column[order] for name, column in columns.items()}
        questions = [Question(slice(row, row + 1), all_options[number]) for row in range(rows)]
        for row, answer in zip(order, posterior.predict_questions(crowd, questions), strict=True):
            assert_within_contract(answer, alone[number][row])

    try:
        compare()
    finally:
        torch.set_num_threads(before)
