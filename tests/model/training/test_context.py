"""The options --group and --time: which columns they take, and what they make of them."""

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from murho.model.encoding.encoder import Encoder, InputChoice
from murho.model.errors import OptionError, TableError
from murho.model.tables.overrides import ColumnOverride
from murho.model.tables.readings import NO_HINTS
from murho.model.tables.schema import FeatureKind
from murho.model.tables.schema_inference import columns_from_table, make_schema, plan_columns
from murho.model.tables.splits import Split, split_rows
from murho.model.training.context import Training, hold_out, split_table
from murho.model.training.options import make_options
from murho.model.training.prepared_table import prepare_table
from tests.model.conftest import Notes, make_table, present, train_quickly
from tests.model.encoding.distribution_tables import schema_of


def _hold_out(table: pa.Table, **options: object) -> tuple[Split, list[str]]:
    columns = columns_from_table(table, plan_columns(table, "rent").schema)
    return hold_out(table, "rent", columns, make_options(dict(options)), NO_HINTS)


def _with(table: pa.Table, **columns: object) -> pa.Table:
    for name, column in columns.items():
        table = table.append_column(name, pa.array(column))
    return table


def test_few_groups_are_said_to_be_few() -> None:
    _, notes = _hold_out(_with(make_table(), house=np.arange(160) // 40), group=("house",))
    assert any("only 4 groups: bands above 80 %" in note for note in notes)


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64(), pa.decimal128(38, 0), pa.string()])
def test_groups_are_told_apart_by_all_digits_of_a_number(kind: pa.DataType) -> None:
    orders = pa.array([2**53 + row // 8 for row in range(160)]).cast(kind)
    split, _ = _hold_out(_with(make_table(), order_id=orders), group=("order_id",))
    assert present(split.units).count == 20


def test_the_order_of_the_rows_is_a_time_unless_a_column_has_the_name() -> None:
    assert np.array_equal(present(_hold_out(make_table(), time="row-order")[0].times), np.arange(160.0))
    backwards = np.arange(160.0)[::-1].copy()
    split, _ = _hold_out(_with(make_table(), **{"row-order": backwards}), time="row-order")
    assert np.array_equal(present(split.times), backwards)
    days = np.datetime64("2020-01-01") + np.arange(160)
    assert _hold_out(_with(make_table(), when=days), time="when")[0].ahead == 16.0


def test_columns_that_are_absent_or_no_time_or_the_target_are_refused() -> None:
    with pytest.raises(TableError, match=r"the --time column 'dya'.*did you mean 'day'"):
        _hold_out(make_table(), time="dya")
    with pytest.raises(OptionError, match=r"--time district.*dates or numbers, not categorical"):
        _hold_out(make_table(), time="district")
    with pytest.raises(OptionError, match="this is the target"):
        _hold_out(make_table(), group=("rent",))
    with pytest.raises(OptionError, match="can't be combined"):
        make_options({"group": ("a",), "time": "b"})


def test_a_group_column_is_no_feature() -> None:
    table = _with(make_table(), house=[f"house {number // 4}" for number in range(160)])
    notes = Notes()
    trained = train_quickly(table, notes, group=("house",))
    assert trained.spec.schema.left_out["house"] == "it names the groups that are held out"
    assert any("40 groups" in line for line in notes.lines)
    assert trained.spec.calibration is not None


def test_rows_as_far_ahead_as_was_judged_are_within_the_range() -> None:
    """Bands are calibrated that far; beyond, doubt grows as beyond any range."""
    table = _with(make_table().drop_columns(["day"]), day=np.arange(160.0))
    plan = plan_columns(
        table, "rent", ignore=("size", "district"), overrides={"day": ColumnOverride(FeatureKind.NUMERIC)}
    )
    columns = columns_from_table(table, plan.schema)
    split, _ = hold_out(table, "rent", columns, make_options({"time": "day"}), NO_HINTS)
    schema = make_schema(plan.schema, columns, {"day": split.ahead})
    assert (schema.features[-1].maximum, schema.features[-1].range_end) == (159.0, 159.0 + 16.0)
    encoder = Encoder.fit(schema, columns)
    later = {"lift": np.ones(3), "day": np.array([159.0, 175.0, 400.0])}
    encoded = encoder.encode(later)
    beyond = encoded.inputs[:, encoder.names.index("day beyond the training rows")]
    assert beyond[:2].tolist() == [0.0, 0.0]
    assert beyond[2] > 1.0
    assert encoded.has_warnings.tolist() == [False, False, True]
    (warning,) = encoder.unfamiliar_values({name: column[2:] for name, column in later.items()}, encoded, np.array([2]))
    assert (
        warning.message
        == "400 is above the training range, 0 to 159, and beyond 175, as far ahead as the model was judged"
    )


def test_a_time_that_does_not_help_is_no_feature_and_the_last_fit_takes_the_newest_rows() -> None:
    days = np.datetime64("2020-01-01") + np.arange(160)
    notes = Notes()
    trained = train_quickly(_with(make_table(), when=days), notes, time="when")
    assert notes.titles[-1] == "on the newest rows"
    assert trained.spec.calibration is not None
    assert trained.spec.calibration.method == "forward-conformal"  # the networks that answer judged no row
    assert sum("as a feature, judged on later rows" in line for line in notes.lines) == 2
    features = [feature.name for feature in trained.spec.schema.features]
    assert ("when" in features) == ("when" not in trained.spec.schema.left_out)


@pytest.mark.parametrize("members", [1, 2])
def test_row_order_trains_with_any_number_of_members(members: int) -> None:
    trained = train_quickly(make_table(), time="row-order", members=members)
    assert trained.spec.training["rows"] == 160
    assert trained.spec.calibration is not None
    assert trained.spec.calibration.method == "forward-conformal"


def _learnable(table: pa.Table, rows: np.ndarray[Any, Any] | None = None, **options: Any) -> tuple[Training, str]:
    """Return the rows, and what was said of them."""
    notes = Notes()
    validated = make_options(options)
    prepared = replace(prepare_table(table, "rent", validated), rows=rows)
    return split_table(prepared, notes), "\n".join(notes.lines)


def _without_some_targets() -> pa.Table:
    table = make_table()
    rent = table.column("rent").to_numpy().copy()
    rent[[2, 5]] = np.nan
    return table.set_column(4, "rent", pa.array(rent, from_pandas=True))


def test_rows_keep_their_number_in_the_users_table() -> None:
    rows, said = _learnable(_without_some_targets())
    assert rows.row_numbers.tolist() == [number for number in range(1, 161) if number not in {3, 6}]
    assert rows.left_out == 2
    assert len(rows.targets) == len(rows.columns["size"]) == 158
    assert "left out 2 of 160 rows: 'rent' is missing" in said


def _training(targets: np.ndarray) -> Training:
    columns = {"x": np.linspace(0.0, 1.0, len(targets))}
    split = split_rows(len(targets), 0, 5)
    return Training(schema_of(columns, imputed=False), columns, targets, split, make_options({"skip": False}))


def test_targets_are_standardised_behind_the_transform() -> None:
    targets = np.exp(np.random.default_rng(0).normal(3.0, 2.0, 200))
    training, validation = _training(targets).rows(InputChoice("standard"), "log")
    assert float(training.targets.mean()) == pytest.approx(0.0, abs=1e-5)
    assert float(training.targets.std(correction=0)) == pytest.approx(1.0, abs=1e-5)
    assert training.folds is not None
    assert len(validation) == 200


def test_a_transform_out_of_its_domain_is_refused_with_the_least_target() -> None:
    data = _training(np.linspace(-2.5, 9.0, 100))
    assert not data.bends("log")
    with pytest.raises(OptionError, match=r"-2\.5"):
        data.standardisation("log")


def test_a_logarithm_that_is_nearly_a_line_is_not_worth_a_trial() -> None:
    assert _training(np.linspace(1.0, 9.0, 100)).bends("log")
    assert not _training(np.linspace(420.0, 495.0, 100)).bends("log")


def test_a_constant_target_teaches_nothing() -> None:
    with pytest.raises(TableError, match="same value"):
        _training(np.full(60, 3.0)).standardisation("none")


def _times(factor: float) -> pa.Table:
    table = make_table()
    return table.set_column(
        table.column_names.index("rent"), "rent", pa.array(factor * table["rent"].to_numpy().astype(np.float64))
    )


@pytest.mark.parametrize(
    ("factor", "message"),
    [
        (1e-200, r"differ by .*e-\d+ at most, too little to compute with: give it in a smaller unit, such as times"),
        (1e200, "row .*: .*e.2.. is too large to compute with: .*, or give the target in a larger unit"),
    ],
)
def test_a_target_whose_squares_are_no_numbers_is_refused_with_the_remedy(factor: float, message: str) -> None:
    data = split_table(prepare_table(_times(factor), "rent", make_options({})), Notes())
    with pytest.raises(TableError, match=message):
        data.standardisation("none")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("factor", [1e-130, 1e130])
def test_very_small_and_large_targets_are_scored_as_others(factor: float) -> None:
    scores, others = (train_quickly(_times(each), members=2).spec.metrics for each in (1.0, factor))
    for name in ("rmse", "crps"):
        assert others[name] / factor == pytest.approx(scores[name], rel=1e-3)
    assert others["raw"]["width"]["90"] / factor == pytest.approx(scores["raw"]["width"]["90"], rel=1e-3)
