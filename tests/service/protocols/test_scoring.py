"""Any document for /invocations is read, or refused with its place. Its forms: `routes.test_invocations`."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from murho.service.errors import BadInputError
from murho.service.protocols.invocations import ScoringCodec
from murho.service.settings import Settings
from tests.service.support import NAMES, ROW, SCHEMA

LIMITS = Settings(max_rows=100)
SCALARS: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=5) | st.sampled_from([*ROW.values()])
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
)
KEYS = st.sampled_from(["dataframe_split", "dataframe_records", "instances", "inputs", "params", "rows"])
COLUMN_NAMES = st.lists(st.sampled_from(NAMES) | st.text(max_size=3), max_size=6)
ROWS_OF_SPLIT = st.lists(st.lists(SCALARS, max_size=6), max_size=3)
SPLITS = st.fixed_dictionaries({}, optional={"columns": COLUMN_NAMES | VALUES, "data": ROWS_OF_SPLIT | VALUES})


@given(document=st.dictionaries(KEYS, VALUES | SPLITS | st.just([ROW]), max_size=3))
@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
def test_any_document_is_read_or_refused_with_its_place(document: dict[str, Any]) -> None:
    try:
        asked = ScoringCodec().decode(orjson.dumps(document), {}, SCHEMA, LIMITS)
    except BadInputError as error:
        for problem in error.problems:
            assert not problem.pointer or problem.pointer.split("/")[1] in document
    else:
        assert list(asked.inputs.columns) == NAMES


@pytest.mark.parametrize("twice", [True, False])
def test_a_hundred_thousand_columns_are_refused(twice: bool) -> None:
    # Work that grows with the square of their number would run into the test's time limit.
    names = [f"column {number}" for number in range(100_000)] + ["column 99999" if twice else "last"]
    body = orjson.dumps({"dataframe_split": {"columns": names, "data": [[1] * len(names)]}})
    with pytest.raises(BadInputError):
        ScoringCodec().decode(body, {}, SCHEMA, LIMITS)
