from __future__ import annotations

import pytest

from murho.service.errors import BadInputError
from murho.service.predict.rows import MAX_LISTED, Problems, pointer


def test_pointers_are_escaped_as_rfc_6901_says() -> None:
    assert pointer("inputs", 3, "a/b~c") == "/inputs/3/a~1b~0c"
    assert pointer() == ""


def test_problems_come_in_the_order_of_the_request_and_are_counted() -> None:
    problems = Problems()
    problems.add_rows(range(100), 1, lambda row: f"/{row}/b", lambda _: "wrong")
    problems.add(7, 0, "/7/a", "wrong")
    with pytest.raises(BadInputError) as caught:
        problems.raise_any()
    listed = [problem.pointer for problem in caught.value.problems]
    assert len(listed) == MAX_LISTED
    assert listed[6:10] == ["/6/b", "/7/a", "/7/b", "/8/b"]
    assert caught.value.total == 101
