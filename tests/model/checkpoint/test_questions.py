"""Several questions in one pass: each is answered as if it were alone."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from murho.model.checkpoint.posterior import Posterior
from murho.model.predictive.prediction import Prediction, PredictOptions, Question
from murho.model.tables.schema_inference import columns_from_table
from tests.model.checkpoint.test_imputed_rows import holed
from tests.model.conftest import make_table, present, train_quickly

if TYPE_CHECKING:
    from murho.model.tables.schema import Columns

OPTIONS = (
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
        Question(slice(int(start), int(stop)), replace(OPTIONS[generator.integers(len(OPTIONS))], samples=samples))
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
