"""The errors of the client."""

from __future__ import annotations

import pickle

import murho_client
from murho_client import Busy, InvalidInput, MurhoClientError, Problem


def test_every_error_is_exported_and_has_one_root() -> None:
    errors = [item for item in vars(murho_client).values() if isinstance(item, type) and issubclass(item, Exception)]
    assert len(errors) == 12
    assert all(issubclass(error, MurhoClientError) for error in errors)
    assert {error.__name__ for error in errors} <= set(murho_client.__all__)


def test_problems_name_their_place_first_and_are_counted() -> None:
    for problem, text in (
        (Problem("Nothing to predict."), "Nothing to predict."),
        (Problem("No number.", row=3, label=3, feature="x"), "row 3, x: No number."),
        (Problem("No number.", row=3, label="b"), "row 3 (index 'b'): No number."),
    ):
        assert str(InvalidInput([problem])) == text
    lines = str(InvalidInput([Problem("No number.", row=row) for row in range(12)], total=500)).splitlines()
    assert lines[0] == "500 validation errors:"
    assert lines[1] == "  row 0: No number."
    assert lines[-1] == "  … and 490 more"


def test_errors_survive_another_process() -> None:
    busy = pickle.loads(pickle.dumps(Busy("Full.", 429, {"detail": "Full."}, 3.0)))  # noqa: S301 - its own
    assert (str(busy), busy.status, busy.retry_after) == ("Full.", 429, 3.0)
    invalid = pickle.loads(pickle.dumps(InvalidInput([Problem("No.")], 4, 422)))  # noqa: S301 - its own
    assert (invalid.problems, invalid.total, invalid.status) == ((Problem("No."),), 4, 422)
