"""The warnings of the service's answers, placed in the data as given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["PredictionWarning", "read_warnings"]


@dataclass(frozen=True, slots=True)
class PredictionWarning:
    """A value unlike the training rows.

    Attributes:
        row: The row's number in the prediction, from 0; None if the warning isn't about one row.
        label: The row's label in the data as given: its index value in pandas, else its number.
        feature: The feature.
        message: What is unusual.
    """

    row: int | None
    label: Any
    feature: str | None
    message: str

    def __str__(self) -> str:
        place = [] if self.row is None else [f"row {self.label!r}"]
        place += [] if self.feature is None else [self.feature]
        return f"{', '.join(place)}: {self.message}" if place else self.message


def read_warnings(
    answers: Sequence[Mapping[str, Any]], counts: Sequence[int], labels: Sequence[Any] | None
) -> tuple[PredictionWarning, ...]:
    """The warnings of all answers.

    Args:
        answers: The JSON answers for consecutive rows.
        counts: Number of rows of each answer.
        labels: The rows' labels in the data as given `[B]`; None for row numbers.
    """
    found: list[PredictionWarning] = []
    start = 0
    for answer, count in zip(answers, counts, strict=True):
        for item in answer.get("warnings", ()):
            row, feature, message = _locate(str(item["pointer"]), str(item["message"]))
            if row is not None and row < count:
                row += start
                label = row if labels is None else labels[row]
            else:
                row = label = None
            warning = PredictionWarning(row, label, feature, message)
            if row is not None or warning not in found:  # one of the whole request comes with each of its parts
                found.append(warning)
        start += count
    return tuple(found)


def _locate(pointer: str, message: str) -> tuple[int | None, str | None, str]:
    """Row, feature and message of a warning.

    The service points to `/inputs/FEATURE/ROW`, to `/inputs/ROW/FEATURE` or, in a matrix, to `/inputs/ROW/COLUMN`, and
    begins its message with the feature.
    """
    place = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[2:]]
    for name, row in (place, place[::-1]) if len(place) == 2 else ():
        if row.isdecimal() and message.startswith(f"{name}: "):
            return int(row), name, message.removeprefix(f"{name}: ")
    if len(place) == 2 and place[0].isdecimal() and ": " in message:
        feature, _, text = message.partition(": ")
        return int(place[0]), feature, text
    return None, None, message
