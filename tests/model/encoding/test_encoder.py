"""What the encoder found out about rows goes with their inputs."""

import copy
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from murho.model.encoding.encoder import ENCODINGS, Encoded, Encoder, InputChoice, with_schema
from murho.model.encoding.feature_encodings import LARGEST
from murho.model.encoding.imputation import IMPUTATIONS
from murho.model.errors import CheckpointError, OptionError
from murho.model.tables.cells import parse_date
from murho.model.tables.schema import Feature, FeatureKind, Schema, Target
from murho.model.tables.schema_inference import columns_from_table, make_schema, plan_columns
from murho.model.tables.table_files import read_table
from tests.model.encoding.distribution_tables import distribution_of, mixed_columns, schema_of
from tests.support import ROOT

CARS = ROOT / "examples" / "cars.csv"


def fitted(
    kind: FeatureKind, cells: list[Any], *, missing: bool = False, encoding: str = "standard", name: str = "x"
) -> tuple[Encoder, npt.NDArray[np.float32]]:
    """Return an encoder of one feature, and its training rows, encoded."""
    categorical = kind is FeatureKind.CATEGORICAL
    column = np.array(cells, dtype=object if categorical else np.float64)
    categories = tuple(sorted({cell for cell in cells if cell is not None})) if categorical else ()
    schema = Schema((Feature(name, kind, None, missing, None, None, categories),), Target("y", None), {})
    encoder = Encoder.fit(schema, {name: column}, encoding=encoding)
    return encoder, encoder.encode({name: column}).inputs


def encode(encoder: Encoder, cells: list[Any]) -> npt.NDArray[np.float32]:
    categorical = encoder.schema.features[0].kind is FeatureKind.CATEGORICAL
    return encoder.encode({"x": np.array(cells, dtype=object if categorical else np.float64)}).inputs


@pytest.fixture(scope="module")
def cars() -> tuple[Schema, dict[str, npt.NDArray[Any]]]:
    table = read_table(CARS)
    plan = plan_columns(table, "Miles_per_Gallon")
    columns = columns_from_table(table, plan.schema)
    return make_schema(plan.schema, columns), columns


class TestStandard:
    def test_a_missing_cell_is_the_mean_and_is_indicated(self) -> None:
        encoder, encoded = fitted(FeatureKind.NUMERIC, [1.0, np.nan, 3.0], missing=True)
        assert encoded.tolist() == [[-1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
        assert encoder.names == ("x", "x is missing")

    def test_a_column_without_values_is_zero(self) -> None:
        for encoding in ENCODINGS:
            _, encoded = fitted(FeatureKind.NUMERIC, [np.nan, np.nan], missing=True, encoding=encoding)
            assert encoded.tolist() == [[0.0, 1.0], [0.0, 1.0]]


class TestPiecewise:
    def test_it_is_equation_1_of_gorishniy_et_al(self) -> None:
        training = np.random.default_rng(1).gamma(2.0, 3.0, 500)
        encoder, _ = fitted(FeatureKind.NUMERIC, training.tolist(), encoding="piecewise")
        limits = training.mean() - 5 * training.std(), training.mean() + 5 * training.std()
        edges = np.quantile(training.clip(*limits), np.linspace(0, 1, 17), method="lower")

        def reference(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
            x = x.clip(*limits)
            bins = np.empty((len(x), 16))
            for row, value in enumerate(x):
                for t in range(1, 17):
                    if value < edges[t - 1] and t > 1:
                        bins[row, t - 1] = 0
                    elif value >= edges[t] and t < 16:
                        bins[row, t - 1] = 1
                    else:
                        bins[row, t - 1] = (value - edges[t - 1]) / (edges[t] - edges[t - 1])
            return bins

        x = np.concatenate([[-50.0, 100.0], edges, np.random.default_rng(2).uniform(-10, 50, 100)])
        trained = reference(training)
        expected = (reference(x) - trained.mean(axis=0)) / trained.std(axis=0)
        encoded = encode(encoder, x.tolist())
        np.testing.assert_allclose(encoded[:, 1:], expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(
            encoded[:, 0], (x.clip(*limits) - training.mean()) / training.std(), rtol=1e-5, atol=1e-6
        )


class TestOneHot:
    def test_each_category_has_a_column_and_so_have_unseen_ones(self) -> None:
        encoder, encoded = fitted(FeatureKind.CATEGORICAL, ["b", "a", None], missing=True)
        assert encoder.names == ("x=a", "x=b", "x is unseen", "x is missing")
        assert encoded.tolist() == [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1]]
        assert encode(encoder, ["c"]).tolist() == [[0, 0, 1, 0]]

    def test_categories_of_one_or_two_rows_share_the_column_of_unseen_ones(self) -> None:
        encoder, _ = fitted(FeatureKind.CATEGORICAL, ["a", "a", "a", "b", "b", "c"])
        assert encoder.names == ("x=a", "x is unseen")
        assert encode(encoder, ["a", "b", "c", "d"]).tolist() == [[1, 0], [0, 1], [0, 1], [0, 1]]
        again = Encoder.from_json(with_schema(encoder.to_json(), encoder.schema.to_json()))
        assert again.names == encoder.names
        assert encode(again, ["b"]).tolist() == [[0, 1]]
        assert 1 not in encoder.zero_in_training


class TestDates:
    def test_the_parts_of_the_calendar_that_vary_are_cycles(self) -> None:
        days = [float(day) for day in range(400)]
        encoder, _ = fitted(FeatureKind.DATE, days, missing=True)
        assert encoder.names == (
            "x",
            "x month sine",
            "x month cosine",
            "x weekday sine",
            "x weekday cosine",
            "x is missing",
        )
        april = encode(encoder, [parse_date("2026-04-06")])[0]  # a Monday
        np.testing.assert_allclose(april[1:], [1, 0, 0, 1, 0], atol=1e-7)
        october = encode(encoder, [parse_date("1969-10-07")])[0]  # a Tuesday before 1970
        tuesday = [np.sin(2 * np.pi / 7), np.cos(2 * np.pi / 7)]
        np.testing.assert_allclose(october[1:], [-1, 0, *tuesday, 0], atol=1e-6)
        assert encode(encoder, [np.nan]).tolist() == [[0, 0, 0, 0, 0, 1]]


class TestEncoder:
    @pytest.mark.parametrize("encoding", ENCODINGS)
    @settings(deadline=None, max_examples=30)
    @given(data=st.data())
    def test_a_row_alone_is_the_row_in_any_batch(
        self, cars: tuple[Schema, dict[str, npt.NDArray[Any]]], encoding: str, data: st.DataObject
    ) -> None:
        encoder = Encoder.fit(*cars, encoding=encoding)
        rows = data.draw(st.lists(st.integers(0, 405), min_size=1, max_size=40))
        batch = encoder.encode({name: column[rows] for name, column in cars[1].items()}).inputs
        for position, row in enumerate(rows):
            alone = encoder.encode({name: column[row : row + 1] for name, column in cars[1].items()}).inputs
            assert np.array_equal(alone[0], batch[position])

    @pytest.mark.parametrize("encoding", ENCODINGS)
    @pytest.mark.parametrize("kind", [FeatureKind.NUMERIC, FeatureKind.DATE])
    @settings(deadline=None, max_examples=30)
    @example(training=[-1.0, 0.0, 5e-324, 1.0], others=[0.5])
    @example(training=[-1.7e308, 0.0, 1.7e308], others=[1e308])
    @given(
        training=st.lists(st.floats(allow_infinity=False), min_size=1, max_size=30),
        others=st.lists(st.floats(allow_infinity=False), max_size=5),
    )
    def test_encoded_numbers_are_finite_whatever_the_cells_are(
        self, encoding: str, kind: FeatureKind, training: list[float], others: list[float]
    ) -> None:
        encoder, encoded = fitted(kind, training, missing=True, encoding=encoding)
        assert np.abs(encoded).max() <= LARGEST
        unlimited = encode(encoder, [*others, 1.7e308, -1.7e308])
        assert np.isfinite(unlimited).all()
        assert np.abs(unlimited).max() <= LARGEST

    @pytest.mark.parametrize(
        ("path", "value", "message"),
        [
            (["encoding"], "other", r"encoder\.encoding: expected 'standard' or 'piecewise'"),
            (["parts", 0, "scale", "std"], 0, r"parts\[0\]\.scale\.std: expected greater than 0"),
            (["parts", -1, "x"], 1, r"parts\[\d\]\.x: the field is not known"),
        ],
    )
    def test_edited_data_are_refused_with_their_field(
        self, cars: tuple[Schema, dict[str, npt.NDArray[Any]]], path: list[Any], value: object, message: str
    ) -> None:
        data = copy.deepcopy(Encoder.fit(*cars, encoding="piecewise").to_json())
        place: Any = data
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        with pytest.raises(CheckpointError, match=message):
            Encoder.from_json(with_schema(data, cars[0].to_json()), "encoder")


COLUMNS = mixed_columns(500)
SCHEMA = schema_of(COLUMNS)
ENCODER = Encoder.fit(SCHEMA, COLUMNS, distribution=distribution_of(COLUMNS))


def asked() -> dict[str, np.ndarray]:
    """Return an ordinary row, one a little beyond a range, one far, an odd combination and an unseen category."""
    return {
        "first": np.array([0.0, 0.0, 0.0, 2.0, 0.0]),
        "second": np.array([1.0, 1.0, 1.0, 0.4, 1.0]),
        "kind": np.array(["A", "A", "A", "A", "Z"], dtype=object),
        "lift": np.zeros(5),
        "day": np.array([18_500.0, COLUMNS["day"].max() + 10.0, 25_000.0, 18_500.0, 18_500.0]),
    }


def test_one_number_barely_beyond_its_range_makes_no_row_unlike() -> None:
    training = ENCODER.encode(COLUMNS)
    assert not (training.out_of_range | training.outlier | training.has_warnings).any()
    encoded = ENCODER.encode(asked())
    assert encoded.out_of_range.tolist() == [False, True, True, True, True]
    assert encoded.outlier.tolist() == encoded.has_warnings.tolist() == [False, False, True, True, True]


def test_of_copies_a_row_is_unlike_if_all_are_and_there_is_something_to_tell_of_it() -> None:
    columns = asked() | {"lift": np.full(5, np.nan)}
    encoded = ENCODER.encode_copies(columns)
    assert encoded.inputs.shape == (IMPUTATIONS, 5, ENCODER.width)
    assert encoded.out_of_range.shape == (IMPUTATIONS, 5)
    assert encoded.outlier.tolist() == [False, False, True, True, True]
    assert encoded.has_warnings.all()


def test_pieces_have_each_row_once_as_it_is_alone() -> None:
    columns = asked()
    columns["lift"][[1, 3]] = np.nan
    (complete, plain), (incomplete, copies) = ENCODER.encode_pieces(columns)
    assert (complete.tolist(), incomplete.tolist()) == ([0, 2, 4], [1, 3])
    np.testing.assert_array_equal(plain.inputs, ENCODER.encode(asked())[np.array([0, 2, 4])].inputs)
    alone = ENCODER.encode_copies({name: column[3:4] for name, column in columns.items()})
    np.testing.assert_allclose(copies[1:].inputs, alone.inputs, rtol=1e-6)
    ((every, whole),) = ENCODER.encode_pieces(asked())
    assert every.tolist() == list(range(5))
    assert len(whole) == 5


def test_choices_that_can_not_be_are_refused() -> None:
    with pytest.raises(OptionError, match="'quantile' is not known; use one of standard, piecewise"):
        Encoder.fit(SCHEMA, COLUMNS, encoding="quantile")
    with pytest.raises(CheckpointError, match="at least one that is read"):
        Encoder.fit(SCHEMA, COLUMNS, unread=list(COLUMNS))
    with pytest.raises(CheckpointError, match="because a feature has imputed cells"):
        Encoder.fit(SCHEMA, COLUMNS)
    assert InputChoice("standard", unread=(("a", "b"), ("b", "c"))).unread_by_all == ("b",)
    assert not Encoded.like(np.zeros((3, 2), dtype=np.float32)).has_warnings.any()


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_rows_are_the_same_across_tiles(cars: tuple[Schema, dict[str, npt.NDArray[Any]]], encoding: str) -> None:
    encoder = Encoder.fit(*cars, encoding=encoding)
    many = encoder.encode({name: np.tile(column, 100) for name, column in cars[1].items()}).inputs
    assert np.array_equal(many, np.tile(encoder.encode(cars[1]).inputs, (100, 1)))
