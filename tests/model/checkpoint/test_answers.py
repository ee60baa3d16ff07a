"""A row's answer depends on nothing else: not on its batch mates, tiles, threads, engines, or draws made anew."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from murho.model.checkpoint.posterior import Posterior
from murho.model.encoding import encoder
from murho.model.encoding.encoder import Encoder
from murho.model.encoding.imputation import IMPUTATIONS
from murho.model.encoding.outliers import Distances, unfamiliar_values
from murho.model.predictive.draw_cache import DrawCache
from murho.model.predictive.draws import DrawMaker
from murho.model.predictive.forward import NetworkOutputs
from murho.model.predictive.prediction import PredictOptions, Question
from murho.model.predictive.totals import Totals, TotalsOptions, default_statistic
from murho.model.tables.schema import Columns, FeatureKind, UnfamiliarValue
from murho.model.tables.schema_inference import columns_from_table
from tests.model.conftest import make_table, present, train_quickly

OPTIONS = PredictOptions(samples=33, thresholds=(500.0, 900.0), draws=True, mc_error=True)
IMPUTED = PredictOptions(samples=128, draws=True, thresholds=(600.0,))


def assert_same(one: Any, other: Any, spread: np.ndarray | None = None, to: float = 1e-5) -> None:
    """DESIGN.md's rule: 1e-5 of the larger of |value| and std, of classes epistemic_std; Monte Carlo errors 1e-3."""
    if spread is None:
        of_classes = hasattr(other, "probabilities")
        found = other.epistemic_std.max(axis=1) if of_classes and other.samples else getattr(other, "std", None)
        spread = np.zeros(len(other)) if found is None else found
    for field in fields(other):
        actual, expected = getattr(one, field.name), getattr(other, field.name)
        if is_dataclass(expected):
            assert_same(actual, expected, spread, 1e-3)
        elif isinstance(expected, np.ndarray) and expected.dtype.kind == "f":
            scale = np.maximum(np.abs(expected), spread.reshape(-1, *[1] * (expected.ndim - 1)))
            assert (np.abs(actual - expected) <= to * scale).all(), field.name
        else:
            np.testing.assert_array_equal(actual, expected, field.name)


def holed(rows: int = 40) -> pa.Table:
    """Rows with cells missing in all columns but the target; only ``size`` had missing cells in training."""
    table, generator = make_table(rows, seed=9), np.random.default_rng(0)
    for name in ("district", "lift", "day"):
        cells = pc.if_else(pa.array(generator.random(rows) < 0.3), pa.scalar(None, table[name].type), table[name])
        table = table.set_column(table.column_names.index(name), name, cells)
    return table


def columns_of(posterior: Posterior, table: pa.Table | None = None) -> dict[str, Any]:
    return dict(columns_from_table(holed() if table is None else table, posterior.schema))


def row_of(columns: Columns, row: int) -> Columns:
    return {name: column[row : row + 1] for name, column in columns.items()}


@pytest.mark.parametrize(
    ("draws_bytes", "rows_per_draw", "parts"),
    [(2**30, 500, [256, 256, 256, 232]), (1, 500, [500, 500])],  # 256 rows at least; draws are made anew for each tile
)
def test_tiles_change_nothing_and_each_row_is_encoded_once(
    rent: Posterior, draws_bytes: int, rows_per_draw: int, parts: list[int]
) -> None:
    columns = columns_of(rent, make_table(1_000, seed=9))
    posterior = Posterior(rent.spec, rent.tensors, cache=DrawCache(draws_bytes))
    posterior.tile_values = rows_per_draw * OPTIONS.samples

    def spy(of: type, name: str) -> Any:
        return patch.object(of, name, autospec=True, side_effect=getattr(of, name))

    with spy(NetworkOutputs, "draw_rows") as outputs, spy(Encoder, "encode") as encode, spy(DrawMaker, "make") as make:
        answer = posterior.predict(columns, OPTIONS)
    assert [len(call.args[3]) for call in outputs.call_args_list] == parts
    assert (encode.call_count, make.call_count == 1) == (1, draws_bytes > 1)
    assert_same(answer, rent.predict(columns, OPTIONS))


def test_a_draw_is_that_of_its_copy(rent: Posterior) -> None:
    columns = row_of(columns_of(rent), int(np.argmax([cell is None for cell in columns_of(rent)["district"]])))
    copies = rent.encoder.encode_copies(columns)
    for options in (IMPUTED, PredictOptions(samples=0)):
        answer = rent.predict(columns, options)
        alone = [
            rent.predict_encoded(replace(copies, inputs=inputs, out_of_range=beyond), options)
            for inputs, beyond in zip(copies.inputs, copies.out_of_range, strict=True)
        ]
        if options.samples == 0:  # the mean network is averaged over all copies
            np.testing.assert_allclose(answer.mean, np.mean([each.mean for each in alone], axis=0), rtol=1e-5)
            assert answer.std is None
        else:
            of_copies = [alone[draw % IMPUTATIONS].draws[0, draw] for draw in range(options.samples)]
            np.testing.assert_allclose(answer.draws[0], of_copies, rtol=1e-4)


@pytest.mark.parametrize("name", ["rent", "rooms"])
def test_missing_cells_of_many_rows_average_out_in_totals(name: str, request: pytest.FixtureRequest) -> None:
    posterior: Posterior = request.getfixturevalue(name)
    features = [feature.name for feature in posterior.schema.features]
    numbers = np.full(1, np.nan)
    row = {each: np.full(1, None, dtype=object) if each == "district" else numbers for each in features}
    alone = posterior.encoder.encode_copies(row)
    options = TotalsOptions(default_statistic(posterior.schema), of=PredictOptions(samples=256))
    found = []
    for count in (1, 100):
        columns = {each: np.repeat(cell, count) for each, cell in row.items()}
        totals = Totals.of(options, posterior.schema)
        answer = posterior.predict(columns, totals.asked)
        totals.add(answer, columns, [()] * count)
        found.append(totals.answer())
    of_row = posterior.predict(row, PredictOptions(samples=256, draws=True))
    np.testing.assert_allclose(present(found[0].epistemic_std).ravel(), of_row.epistemic_std.ravel(), rtol=1e-5)
    draws, functions = of_row.draws[0], present(answer.functions)[0]
    if name == "rent":
        of_copies = [
            posterior.predict_encoded(replace(alone, inputs=inputs, out_of_range=beyond), IMPUTED).draws[0]
            for inputs, beyond in zip(alone.inputs, alone.out_of_range, strict=True)
        ]
        np.testing.assert_allclose(functions[: IMPUTED.samples], np.mean(of_copies, axis=0), rtol=1e-4)
    else:  # their mean is the probability of the answer
        np.testing.assert_allclose(functions.mean(axis=0), of_row.probabilities[0], atol=1e-6)
    together = functions.var(axis=0) / draws.var(axis=0)  # the part that the same draw brings into all rows
    assert together.max() < 0.9
    variance = 100.0 * (1.0 - together) + 100.0**2 * together
    np.testing.assert_allclose(
        present(found[1].epistemic_std).ravel(), of_row.epistemic_std.ravel() * variance**0.5, rtol=1e-4
    )


def test_the_answer_widens_by_what_the_cell_would_have_told(rent: Posterior) -> None:
    known = columns_of(rent, make_table(20, seed=9))
    nowhere = {**known, "district": np.full(20, None, dtype=object)}
    before, after = (rent.predict(columns, PredictOptions()) for columns in (known, nowhere))
    assert (after.epistemic_std > before.epistemic_std).mean() > 0.9
    west = known["district"] == "west"
    assert (after.mean[west] < before.mean[west]).all()  # rents are higher in the west
    nothing = {name: column[:1] if name == "district" else column[:1] * np.nan for name, column in nowhere.items()}
    answer, rents = rent.predict(nothing, PredictOptions()), make_table()["rent"].to_numpy()
    assert abs(answer.mean[0] - rents.mean()) < 2.0 * rents.std()
    assert not present(answer.outlier)[0]


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
    """Return a posterior with a mixture of three as noise, and the logarithm of the target."""
    return train_quickly(make_table(), members=2, noise="mixture", transform="log", epochs=10).posterior


@pytest.fixture(params=["auto", "torch"])
def reload(request: pytest.FixtureRequest) -> Callable[[Posterior], Posterior]:
    return lambda loaded: Posterior(loaded.spec, loaded.tensors, engine=str(request.param))


def rows_of(posterior: Posterior, count: int, *, missing: bool) -> dict[str, Any]:
    """Rows like the training rows, every fifth of them far out, and some with cells to impute."""
    columns = columns_of(posterior, holed(count) if missing else make_table(count, seed=9))
    columns["size"] = np.where(np.arange(count) % 5 == 1, 1e4, columns["size"])
    return columns


@pytest.mark.parametrize(("samples", "missing"), [(0, False), (1, True), (40, False), (40, True)])
@pytest.mark.parametrize("which", ["rent", "mixture"])
def test_each_question_is_answered_as_if_alone(
    which: str, samples: int, missing: bool, reload: Callable[[Posterior], Posterior], request: pytest.FixtureRequest
) -> None:
    posterior = reload(request.getfixturevalue(which))
    posterior.tile_values = 1  # tiles of 256 rows or, where cells are missing, of one
    counts, generator = [1, 3, 1, 1, 12, 300 if samples == 40 and not missing else 2, 1, 1, 9], np.random.default_rng(1)
    columns = rows_of(posterior, sum(counts), missing=missing)
    questions = [
        # A single draw has no Monte Carlo error to compare.
        Question(slice(*ends), replace(asked, samples=samples, mc_error=asked.mc_error and samples != 1))
        for ends, asked in zip(
            pairwise(np.cumsum([0, *counts]).tolist()),
            (ASKED[number] for number in generator.integers(len(ASKED), size=9)),
            strict=True,
        )
    ]
    for question, (together, _) in zip(questions, posterior.predict_questions(columns, questions), strict=True):
        rows = {name: column[question.rows] for name, column in columns.items()}
        assert_same(together, posterior.predict(rows, question.options))


@pytest.mark.parametrize(
    ("slices", "options"),
    [
        ([slice(0, 2), slice(3, 4)], [PredictOptions()] * 2),  # a gap
        ([slice(0, 2), slice(2, 4)], [PredictOptions(seed=1), PredictOptions(seed=2)]),
        ([], []),
    ],
)
def test_questions_that_can_not_share_a_pass_are_refused(
    rent: Posterior, slices: list[slice], options: list[PredictOptions]
) -> None:
    with pytest.raises(ValueError, match="questions"):
        rent.predict_questions(rows_of(rent, 4, missing=False), list(map(Question, slices, options)))


@pytest.mark.parametrize("rare", [False, True])
def test_the_rows_with_something_to_tell_are_those_with_a_warning(rent: Posterior, rare: bool) -> None:
    posterior = rent
    if rare:
        table = make_table()
        names = pa.array(["rare", "rarer", "rarest", *table["district"].to_pylist()[3:]])
        posterior = train_quickly(table.set_column(1, "district", names), epochs=3).posterior
    columns = rows_of(posterior, 60, missing=True)
    columns["district"][::7] = "unheard of"
    columns["district"][3::7] = "east"
    ((answer, found),) = posterior.predict_questions(columns, [Question(slice(0, 60), PredictOptions(), 1000)])
    listed = {warning.row for warning in found}
    has_warnings, outlier = present(answer.has_warnings), present(answer.outlier)
    assert listed == set(np.flatnonzero(has_warnings).tolist())
    assert (has_warnings | ~outlier).all()
    assert not has_warnings.all()
    assert not rare or not listed <= set(np.flatnonzero(outlier).tolist())  # here `outlier` does not tell


@pytest.mark.parametrize("tile", [7, 2048])
def test_each_question_is_told_its_first_values_unlike_the_training_rows_as_if_alone(
    rent: Posterior, monkeypatch: pytest.MonkeyPatch, tile: int
) -> None:
    monkeypatch.setattr(encoder, "_TILE", tile)
    monkeypatch.setattr(encoder, "PIECE_VALUES", 10 * rent.encoder.width)
    columns = rows_of(rent, 60, missing=True)
    columns["district"][::7] = "unheard of"
    columns["size"][5::9] = 1e4
    expected: list[UnfamiliarValue] = []
    for row in range(60):
        cells = row_of(columns, row)
        alone = unfamiliar_values(Distances.of(present(rent.encoder.distribution), cells), rent.schema, cells)
        expected += [replace(value, row=row) for value in alone]
    assert len({value.message for value in expected}) >= 3
    limits = [(slice(0, 1), 9), (slice(1, 20), 4), (slice(20, 20), 9), (slice(20, 40), 0), (slice(40, 60), 1000)]
    questions = [Question(rows, PredictOptions(samples=8), most) for rows, most in limits]
    for (rows, most), (_, found) in zip(limits, rent.predict_questions(columns, questions), strict=True):
        own = [replace(value, row=value.row - rows.start) for value in expected if rows.start <= value.row < rows.stop]
        assert found == own[:most]


@pytest.mark.parametrize("noise", [True, False])
def test_a_draw_is_the_same_whatever_the_number_of_draws(
    mixture: Posterior, noise: bool, reload: Callable[[Posterior], Posterior]
) -> None:
    posterior = reload(mixture)
    columns = rows_of(posterior, 20, missing=False)
    many = posterior.predict(columns, PredictOptions(samples=100, draws=True, noise=noise))
    for samples in (1, 7, 64):
        few = posterior.predict(columns, PredictOptions(samples=samples, draws=True, noise=noise))
        apart = np.abs(few.draws - many.draws[:, :samples])
        assert (apart <= 1e-5 * np.maximum(np.abs(few.draws), many.std[:, None])).all()


ROWS = 80
CROWDED = {
    "rent": (
        PredictOptions(samples=64, draws=True, mc_error=True, thresholds=(500.0,), percentiles=(0.01, 5.0, 50.0, 99.0)),
        # With 41 draws these percentiles are function values of draws.
        PredictOptions(samples=41, draws=True, mc_error=True, noise=False),
        PredictOptions(samples=64, calibrated=False),
    ),
    "rooms": (
        PredictOptions(samples=64, draws=True, mc_error=True, percentiles=(0.5, 33.0, 99.9)),
        PredictOptions(samples=41, draws=True, calibrated=False),
    ),
}


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


@pytest.mark.parametrize("which", CROWDED)
def test_rows_alone_and_in_any_crowd_have_the_same_answers(
    which: str, reload: Callable[[Posterior], Posterior], request: pytest.FixtureRequest
) -> None:
    posterior, all_options = reload(request.getfixturevalue(which)), CROWDED[which]
    columns = rows_near_and_far(posterior)
    alone = [[posterior.predict(row_of(columns, row), options) for row in range(ROWS)] for options in all_options]
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
        for row, (answer, _) in zip(order, posterior.predict_questions(crowd, questions), strict=True):
            assert_same(answer, alone[number][row])

    try:
        compare()
    finally:
        torch.set_num_threads(before)
