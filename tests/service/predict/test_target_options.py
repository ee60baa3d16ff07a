from __future__ import annotations

from typing import Any

import pytest

from murho.model.tables.schema import Target
from murho.service.errors import BadInputError
from murho.service.predict.envelope import check_document, predict_options

NUMBER, CLASS = Target("y", "kg"), Target("kind", None, ("a", "b"))


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
        predict_options(check_document({"inputs": [], **given}), 256, 4096, target)
    (problem,) = caught.value.problems
    assert problem.pointer == f"/{next(iter(given))}"
    assert target.name in problem.message
    assert advice in problem.message


def test_coverage_is_nine_tenths_unless_given() -> None:
    assert predict_options(check_document({"inputs": []}), 256, 4096, CLASS).coverage == 0.9
    assert predict_options(check_document({"inputs": [], "coverage": 0.75}), 256, 4096, CLASS).coverage == 0.75
