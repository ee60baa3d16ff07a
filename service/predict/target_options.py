"""Options that are for one kind of target alone: for numbers, or for classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from murho.model.errors import Problem
from murho.service.errors import BadInputError
from murho.service.predict.problems import pointer, shorten

if TYPE_CHECKING:
    from murho.model.tables.schema import Target
    from murho.service.predict.envelope import PredictRequest

__all__ = ["require_options_for"]

OF_NUMBERS = {
    "noise": "A class has no noise that could be left out; leave this option out. epistemic_std and epistemic_entropy "
    "tell what the draws disagree about.",
    "thresholds": "A class can't exceed a threshold; leave this option out. probabilities has the probability of each "
    "class.",
}
OF_CLASSES = {
    "coverage": "It is for prediction sets of classes; leave this option out. For an interval of a given coverage ask "
    'for two percentiles: "percentiles": [5, 95] hold 90 %.',
}


def require_options_for(target: Target, request: PredictRequest) -> None:
    """Checks that a request gives no option of another kind of target.

    Raises:
        BadInputError: It does.
    """
    if target.classes is None:
        if request.coverage is not None:
            _refuse(request, OF_CLASSES, f"{shorten(target.name)!r} is a number.")
    elif request.noise is not None or request.thresholds is not None:
        _refuse(request, OF_NUMBERS, f"{shorten(target.name)!r} is a class.")


def _refuse(request: PredictRequest, advice: dict[str, str], kind: str) -> None:
    given = [name for name in advice if getattr(request, name) is not None]
    raise BadInputError(Problem(pointer(name), f"{kind} {advice[name]}") for name in given)
