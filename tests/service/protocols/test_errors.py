from __future__ import annotations

import json

import pytest

from murho.model.errors import Problem
from murho.service.errors import BadInputError, QueueFullError, UnauthorizedError, problem_details
from murho.service.protocols.documents import error_response, is_inference_path


@pytest.mark.parametrize(
    ("path", "is_one"),
    [("/v2", True), ("/v2/", True), ("/v2/models/a/infer", True), ("/v2x", False), ("/predict", False), ("/", False)],
)
def test_the_paths_of_the_protocol(path: str, is_one: bool) -> None:
    assert is_inference_path(path) is is_one


def test_bad_input_is_400_with_every_place() -> None:
    error = BadInputError([Problem("/inputs/a/0", "Expected a number."), Problem("", "And more.")])
    response = error_response(problem_details(error, "id"))
    assert response.status_code == 400
    assert json.loads(bytes(response.body)) == {"error": "/inputs/a/0: Expected a number. And more."}


def test_headers_of_other_errors_stay() -> None:
    response = error_response(problem_details(QueueFullError("full", retry_after=3), "id"))
    assert (response.status_code, response.headers["retry-after"]) == (429, "3")
    response = error_response(problem_details(UnauthorizedError("no key"), "id"))
    assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer")
