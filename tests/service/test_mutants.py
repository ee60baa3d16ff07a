"""Good bodies of every format are read, and mutants of them are read or refused, as a library and over HTTP."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murho.model.errors import MurhoError
from murho.service.predict.answers import Terms
from murho.service.predict.routes import reader_of
from tests.service.mutants import FORMS, LIMITS, Mutant, mutants, search
from tests.service.protocols.support import NUMBERS
from tests.service.support import SCHEMA, AppClient, FakeModel, make_client


@pytest.fixture(scope="module")
def client() -> Iterator[AppClient]:
    models = FakeModel(), FakeModel("numbers", schema=NUMBERS)
    with make_client(*models, default_model="cars", max_rows=1000, samples=4) as client:
        yield client


@pytest.mark.parametrize("form", FORMS)
def test_good_bodies_are_answered(client: AppClient, form: str) -> None:
    for parts in FORMS[form].good():
        body = Mutant(b"".join(parts), False, str(len(parts[0])) if len(parts) > 1 else None)
        response = client.post(FORMS[form].path, content=body.body, headers=FORMS[form].headers(body))
        assert response.status_code == 200, response.text


@pytest.mark.parametrize("form", FORMS)
def test_some_hundred_mutants_are_read_or_refused(form: str) -> None:
    found = search(form, 400)
    assert not found.failed
    assert found.read
    assert found.refused


@pytest.mark.parametrize("form", FORMS)
def test_some_mutants_are_answered_or_refused(client: AppClient, form: str) -> None:
    for number, mutant in enumerate(mutants(form, 60, seed=1)):
        response = client.post(FORMS[form].path, content=mutant.body, headers=FORMS[form].headers(mutant))
        assert response.status_code in {200, 400, 413, 422}, (number, response.text)


NAMES = st.sampled_from(["samples", "percentiles", "seed", "noise", "calibrated", "thresholds", "include"])
VALUES = st.text(max_size=12) | st.sampled_from(["0", "true", "5,50", "1e400", "-1", "draws,mc_error", "9" * 30])


@settings(max_examples=100, deadline=None, derandomize=True)
@given(query=st.dictionaries(NAMES | st.text(max_size=5), VALUES, max_size=3))
def test_any_options_in_a_query_are_read_or_refused(query: dict[str, str]) -> None:
    for form in ("csv", "arrow"):
        with contextlib.suppress(MurhoError):
            reader_of(FORMS[form].media_type).decode(FORMS[form].good()[0][0], Terms(query, SCHEMA, LIMITS))
