from __future__ import annotations

import pyarrow as pa
import pytest
from httptools import HttpParserError
from starlette.exceptions import HTTPException

from murho.model.errors import InputError, Problem
from murho.service import errors
from murho.service.errors import BadInputError, problem_details
from murho.service.http.limits import refusal_of


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.TooLargeError("large"), 413),
        (InputError([Problem("/inputs", "no")]), 422),
        (errors.ComputationError("NaN"), 500),
        (MemoryError(), 503),
        (pa.ArrowMemoryError("malloc of size 64 failed"), 503),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes"), 503),
        (RuntimeError("can't start new thread"), 503),
        (RuntimeError("secret"), 500),
        (HTTPException(405, headers={"Allow": "POST"}), 405),
    ],
)
def test_each_error_has_its_status(error: Exception, status: int) -> None:
    document = problem_details(error, "id").document()
    assert document["status"] == status
    assert document["title"]
    assert document["type"]


def test_the_detail_counts_problems_that_are_not_listed() -> None:
    listed = [Problem(f"/inputs/{row}", "no") for row in range(2)]
    assert "1000 things" in problem_details(BadInputError(listed, 1000), "id").detail
    assert "first 2" in problem_details(BadInputError(listed, 1000), "id").detail
    assert "all are listed" in problem_details(BadInputError(listed), "id").detail


def test_out_of_memory_while_a_request_is_parsed_is_no_malformed_request() -> None:
    error = HttpParserError()
    error.__context__ = MemoryError()
    assert problem_details(refusal_of(error), "id").status == 503
