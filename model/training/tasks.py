"""Regression and classification: the task of a target. A new kind of target is a new task here.

A `Task` names the observation models of the search, scores fits, and calibrates the chosen one.
`model.training.target_classes` chooses between the tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from murho.model.training.classification_task import ClassificationTask
from murho.model.training.regression_task import RegressionTask

if TYPE_CHECKING:
    from murho.model.data.schema import Target
    from murho.model.training.task import Task

__all__ = ["task_of"]


def task_of(target: Target) -> Task:
    """The task of a target whose kind is known."""
    return RegressionTask() if target.classes is None else ClassificationTask(target.classes)
