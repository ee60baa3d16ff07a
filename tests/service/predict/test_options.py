from __future__ import annotations

from typing import Any

import orjson
import pytest

from murho.model.predictive.prediction import PredictOptions
from murho.model.tables.schema import Target
from murho.service.errors import BadInputError
from murho.service.predict.options import PredictRequest, predict_options, query_options, validate_document
from murho.service.settings import Settings

NUMBER, CLASS = Target("Consumption", "mpg"), Target("kind", None, ("a", "b"))


def read(given: dict[str, Any] | bytes, target: Target = NUMBER, **settings: Any) -> PredictOptions:
    document = orjson.loads(given) if isinstance(given, bytes) else given
    return predict_options(
        validate_document(PredictRequest, {"inputs": None, **document}), Settings(**settings), target
    )


def problems(given: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(BadInputError) as caught:
        read(given)
    return {problem.pointer: problem.message for problem in caught.value.problems}


def test_options_have_defaults_and_null_is_an_option_that_is_not_given() -> None:
    names = ("samples", "percentiles", "seed", "noise", "calibrated", "thresholds", "include", "coverage", "timeout")
    assert read({}) == read(dict.fromkeys(names)) == PredictOptions()
    assert read({}, samples=256, max_samples=100).samples == 100


def test_options_are_read() -> None:
    options = read(
        b'{"samples": 0, "percentiles": [2.5, 97], "seed": 9223372036854775807, "noise": false, "calibrated": false,'
        b'"thresholds": [20, -1e300], "include": ["draws"]}'
    )
    expected = PredictOptions(
        0, (2.5, 97.0), 2**63 - 1, noise=False, thresholds=(20.0, -1e300), draws=True, calibrated=False
    )
    assert options == expected
    both = read({"include": ["mc_error", "draws"]})
    assert both.mc_error
    assert both.draws


def test_a_query_says_the_same() -> None:
    query = {"samples": "8", "percentiles": "5, 50", "noise": "false", "thresholds": "", "timeout": ".5"}
    options, request = query_options(query, Settings(), NUMBER)
    assert options == PredictOptions(8, (5.0, 50.0), noise=False)
    assert request.timeout == 0.5
    for wrong in ({"inputs": "1"}, {"samples": "many"}, {"seed": "1e400"}, {"percentiles": "5,,50"}):
        with pytest.raises(BadInputError):
            query_options(wrong, Settings(), NUMBER)


@pytest.mark.parametrize(
    ("options", "pointer", "said"),
    [
        ({"samples": 4097}, "/samples", "This service draws at most 4096"),
        ({"samples": 1.5}, "/samples", "Expected a whole number, not 1.5."),
        ({"seed": 2**63}, "/seed", "a number of 9223372036854775807 or less, not 9223372036854775808."),
        ({"percentiles": [5, 100]}, "/percentiles/1", "Expected a number below 100, not 100."),
        ({"percentiles": [5e-324]}, "/percentiles/0", ""),
        ({"percentiles": [1] * 101}, "/percentiles", "Expected at most 100 entries, not a list of 101."),
        ({"thresholds": ["x"] * 1_000_000}, "/thresholds", ""),
        ({"ids": [1] * 1_000_000}, "/ids/0", "Expected a string, not 1."),
        ({"noise": "true"}, "/noise", "Expected true or false, not the string 'true'."),
        ({"include": ["all"]}, "/include/0", "'why' or 'worth_asking', not the string"),
        ({"a/b": 3}, "/a~1b", ""),
    ],
    ids=lambda value: str(value)[:40],
)
def test_wrong_options_are_named_in_plain_words(options: dict[str, Any], pointer: str, said: str) -> None:
    ((found, message),) = problems(options).items()
    assert found == pointer
    assert said in message


def test_missing_rows_and_many_unknown_options_are_told() -> None:
    with pytest.raises(BadInputError) as caught:
        validate_document(PredictRequest, {"samples": 3})
    assert [problem.pointer for problem in caught.value.problems] == ["/inputs"]
    with pytest.raises(BadInputError) as caught:
        validate_document(PredictRequest, {"inputs": [], **{f"option {index}": 1 for index in range(100_000)}})
    assert len(caught.value.problems) == 50
    assert caught.value.total == 100_000


@pytest.mark.parametrize(
    ("target", "given", "advice"),
    [
        (NUMBER, {"coverage": 0.8}, "percentiles"),
        (CLASS, {"noise": True}, "leave this option out"),
        (CLASS, {"thresholds": []}, "probabilities"),
    ],
)
def test_an_option_of_another_kind_of_target_is_refused_with_advice(
    target: Target, given: dict[str, Any], advice: str
) -> None:
    with pytest.raises(BadInputError) as caught:
        read(given, target)
    (problem,) = caught.value.problems
    assert problem.pointer == f"/{next(iter(given))}"
    assert target.name in problem.message
    assert advice in problem.message
    assert read({"coverage": 0.75}, CLASS).coverage == 0.75


@pytest.mark.parametrize("text", ["null", "1_0", "nan", "[5]", '"5"', "{}", "True"])
def test_a_text_in_a_query_that_is_no_number_is_none(text: str) -> None:
    with pytest.raises(BadInputError) as caught:
        query_options({"seed": text}, Settings(), NUMBER)
    assert [problem.pointer for problem in caught.value.problems] == ["/seed"]
