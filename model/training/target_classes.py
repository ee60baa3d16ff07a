"""Whether a training predicts a number or classes, and which classes. Needs no PyTorch: what is wrong is said early."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from murho.model.data.class_targets import classes_of, holds_classes, labels_from_table
from murho.model.data.reading_inference import NO_HINTS
from murho.model.data.schema import FeatureKind
from murho.model.data.schema_inference import require_column
from murho.model.encoding.encodings import MIXED
from murho.model.errors import OptionError, TableError
from murho.model.training.options import flag

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from numpy.typing import NDArray

    from murho.model.data.reading_inference import ReadingHints
    from murho.model.training.options import TrainOptions

__all__ = ["choose_classes", "say_if_few_numbers"]

OF_NUMBERS = {
    "noise": "auto",
    "noise_sigma": None,
    "transform": "auto",
    "target_minimum": None,
    "target_maximum": None,
}
"""Options that only numbers have, and the values that say nothing."""
FEW_ROWS_OF_A_CLASS = 10
SHOWN = 12
FEW_NUMBERS = 10
"""A number with at most so many different values may be meant as classes, so the user is told how to say so."""


def choose_classes(
    table: pa.Table,
    target: str,
    options: TrainOptions,
    say: Callable[[str], None],
    hints: ReadingHints = NO_HINTS,
) -> tuple[str, ...] | None:
    """The classes of a training's target, sorted; None: it is predicted as a number.

    It is what ``--task`` says, else classes for text and truth values.

    Args:
        table: The table.
        target: The predicted column.
        options: Options of the training.
        say: Gets what the user should know about the choice.
        hints: What decides where cells leave open how they are to be read.

    Raises:
        TableError: The target doesn't exist, or has fewer than two classes, or too many.
        OptionError: An option of numbers is given for classes, or the target's declared kind fits no task.
    """
    require_column(table, target, "the target")
    declared = options.columns[target].kind if target in options.columns else None
    classes = options.task == "classification"
    if options.task == "auto":
        of_kind = {FeatureKind.CATEGORICAL: True, FeatureKind.BOOLEAN: True, FeatureKind.NUMERIC: False}
        classes = of_kind[declared] if declared in of_kind else holds_classes(table, target, hints)
    if not classes:
        if options.task == "regression" and holds_classes(table, target, hints):
            raise TableError(
                f"the target {target!r} is text or truth values, not numbers: leave out --task regression to predict "
                "its classes"
            )
        if options.encoding == MIXED:
            raise OptionError(
                f"--encoding {MIXED} is for classes, and {target!r} is a number: give auto, standard or piecewise"
            )
        return None
    if declared is FeatureKind.NUMERIC and options.task == "classification":
        raise OptionError(f"--task classification: the column {target!r} is declared numeric; declare it categorical")
    labels = labels_from_table(table, target)
    found = classes_of(labels, target)
    _require_options(options, len(found))
    _describe(labels, target, say)
    return found


def _require_options(options: TrainOptions, classes: int) -> None:
    """Check that no option is given that only numbers have."""
    given = [name for name, value in OF_NUMBERS.items() if getattr(options, name) != value]
    if given:
        raise OptionError(
            f"{flag(given[0])} is for a target that is a number; this one has {classes} classes: leave it out, or give "
            "--task regression if the target is a number"
        )


def _describe(labels: NDArray[np.object_], target: str, say: Callable[[str], None]) -> None:
    """Tell the user how many rows each class has, and which classes have too few to be learned well."""
    counts = Counter(label for label in labels.tolist() if label is not None)
    listed = ", ".join(f"{name!r} {count:,}" for name, count in counts.most_common(SHOWN))
    more = f" and {len(counts) - SHOWN} more" if len(counts) > SHOWN else ""
    say(f"the target {target!r} has {len(counts)} classes, with rows: {listed}{more}")
    rare = {name: count for name, count in counts.items() if count < FEW_ROWS_OF_A_CLASS}
    if rare:
        shown = ", ".join(f"{name!r} ({count})" for name, count in sorted(rare.items())[:SHOWN])
        say(
            f"classes with fewer than {FEW_ROWS_OF_A_CLASS} rows: {shown}{', …' if len(rare) > SHOWN else ''}; "
            "their probabilities rest on little"
        )


def say_if_few_numbers(targets: NDArray[np.float64], target: str, say: Callable[[str], None]) -> None:
    """Tell the user how to predict classes where a number has few different values.

    Args:
        targets: ``[N]``, NaN where missing.
        target: Name of the target.
        say: Gets the message.
    """
    numbers = np.unique(targets[~np.isnan(targets)])
    if 1 < len(numbers) <= FEW_NUMBERS and len(numbers) ** 2 < len(targets):
        shown = ", ".join(f"{number:g}" for number in numbers)
        say(
            f"the target {target!r} has {len(numbers)} different numbers ({shown}): it is predicted as a number; "
            "--task classification predicts a probability of each instead"
        )
