"""Regression and classification: what differs in a training between a target that is a number and one that is classes.

A `Task` reads the target, names the observation models of the search, scores fits, and calibrates the chosen one. A new
kind of target is a new task, chosen by `choose_task`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from murho.model.data.class_targets import classes_of, holds_classes, labels_from_table
from murho.model.data.schema import FeatureKind
from murho.model.data.schema_inference import require_column, target_from_table
from murho.model.data.targets import read_targets
from murho.model.errors import OptionError, TableError
from murho.model.training.classification_task import ClassificationTask
from murho.model.training.regression_task import RegressionTask

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from murho.model.data.schema import Target
    from murho.model.training.options import TrainOptions
    from murho.model.training.task import Task

__all__ = ["choose_task", "read_targets", "task_of"]

FEW_NUMBERS = 10
"""A number with at most so many different values may be meant as classes, so the user is told how to say so."""


def task_of(target: Target) -> Task:
    """The task of a target whose kind is known."""
    return RegressionTask() if target.classes is None else ClassificationTask(target.classes)


def choose_task(table: pa.Table, target: str, options: TrainOptions, say: Callable[[str], None]) -> Task:
    """The task of a training: what the option says, else classes for text and truth values.

    Args:
        table: The table.
        target: The predicted column.
        options: Options of the training.
        say: Gets what the user should know about the choice.

    Raises:
        TableError: The target doesn't exist, or has fewer than two classes, or too many.
        OptionError: An option of regression is given for classes, or the target's declared kind fits no task.
    """
    require_column(table, target, "the target")
    declared = options.columns[target].kind if target in options.columns else None
    classes = options.task == "classification"
    if options.task == "auto":
        of_kind = {FeatureKind.CATEGORICAL: True, FeatureKind.BOOLEAN: True, FeatureKind.NUMERIC: False}
        classes = of_kind[declared] if declared in of_kind else holds_classes(table, target)
    if not classes:
        if options.task == "regression" and holds_classes(table, target):
            raise TableError(
                f"the target {target!r} is text or truth values, not numbers: leave out --task regression to predict "
                "its classes"
            )
        if options.task == "auto":
            _say_if_few_numbers(table, target, say)
        return RegressionTask()
    if declared is FeatureKind.NUMERIC and options.task == "classification":
        raise OptionError(f"--task classification: the column {target!r} is declared numeric; declare it categorical")
    labels = labels_from_table(table, target)
    task = ClassificationTask(classes_of(labels, target))
    task.require_options(options)
    task.describe(labels, target, say)
    return task


def _say_if_few_numbers(table: pa.Table, target: str, say: Callable[[str], None]) -> None:
    numbers = np.unique(target_from_table(table, target))
    numbers = numbers[~np.isnan(numbers)]
    if 1 < len(numbers) <= FEW_NUMBERS and len(numbers) * len(numbers) < table.num_rows:
        shown = ", ".join(f"{number:g}" for number in numbers)
        say(
            f"the target {target!r} has {len(numbers)} different numbers ({shown}): it is predicted as a number; "
            "--task classification predicts a probability of each instead"
        )
