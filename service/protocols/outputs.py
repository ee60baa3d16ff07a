"""The outputs of a model: the fields of its answers, as one table of tensors.

The fields come from `model.predictive.prediction`. Requests, answers and metadata go over the table, and none of them
knows whether a model predicts a number or a class.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from murho.model.predictive.prediction import CLASS_FIELDS, NUMBER_FIELDS, Axis, Unit
from murho.service.protocols.tensors import BYTES

if TYPE_CHECKING:
    from murho.model.predictive.prediction import AnswerField, PredictOptions
    from murho.service.engine.jobs import ModelLike

__all__ = ["Output", "Values", "outputs_of"]

Values: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
Option: TypeAlias = Literal["percentiles", "thresholds", "samples"]

OPTION_OF_AXIS: dict[Axis, Option] = {
    Axis.LEVELS: "percentiles",
    Axis.THRESHOLDS: "thresholds",
    Axis.SAMPLES: "samples",
}
"""The option whose values, or whose number, an axis goes over."""
EXAMPLES: dict[Option, str] = {"percentiles": "5,50,95", "thresholds": "20,30", "samples": "256"}
DATATYPES = {Unit.CLASS: BYTES, Unit.CLASS_SET: "BOOL"}
"""Datatypes of what is no number; a class goes by its name."""


@dataclass(frozen=True, slots=True)
class Output:
    """One output of a model.

    Attributes:
        name: Its name.
        field: The field of the answer.
        classes: Names of the classes; None: the model predicts a number.
        within: The field that it is a part of, such as Monte Carlo errors, which are computed only when asked for.
    """

    name: str
    field: AnswerField = field(repr=False)
    classes: tuple[str, ...] | None = None
    within: AnswerField | None = None

    @property
    def datatype(self) -> str:
        """Its datatype in the protocol."""
        return DATATYPES.get(self.field.unit, "FP64")

    @property
    def options(self) -> tuple[Option, ...]:
        """The options that its axes depend on."""
        return tuple(OPTION_OF_AXIS[axis] for axis in self.field.axes if axis in OPTION_OF_AXIS)

    @property
    def include(self) -> Literal["draws", "mc_error"] | None:
        """The part of a prediction that is only computed when it is asked for (`PredictOptions`)."""
        if self.within is not None:
            return "mc_error"
        return "draws" if self.field.name == "draws" else None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape in metadata: -1 for each size that depends on the request."""
        return tuple(len(self.classes or ()) if axis is Axis.CLASSES else -1 for axis in self.field.axes)

    @property
    def on_request(self) -> bool:
        """Whether it is there only if the request asks for it, or has an option that it needs."""
        return self.include is not None or "thresholds" in self.options

    def absence(self, options: PredictOptions) -> str | None:
        """Returns why a request with these options can't have this output; None if it can."""
        if not self.field.without_draws and not options.samples:
            return "needs draws, and the parameter samples is 0."
        missing = next((name for name in self.options if not getattr(options, name)), None)
        return None if missing is None else f"needs the parameter {missing}, such as {EXAMPLES[missing]!r}."

    def values(self, prediction: Any) -> Values | None:
        """Its array of a prediction, `[B, …]`."""
        source = prediction if self.within is None else getattr(prediction, self.within.name)
        found: Values | None = None if source is None else getattr(source, self.field.name)
        if found is not None and self.field.unit is Unit.CLASS:
            return np.array(self.classes, dtype=object)[found]
        return found

    def size(self, options: PredictOptions) -> int:
        """How many values it has for each row."""
        size = 1
        for axis in self.field.axes[1:]:
            if axis is Axis.CLASSES:
                size *= len(self.classes or ())
            else:
                value = getattr(options, OPTION_OF_AXIS[axis])
                size *= value if isinstance(value, int) else len(value)
        return size


def outputs_of(model: ModelLike) -> tuple[Output, ...]:
    """Returns the outputs of a model, those first that are there by default."""
    return _outputs(model.schema.target.classes)


@lru_cache(maxsize=64)
def _outputs(classes: tuple[str, ...] | None) -> tuple[Output, ...]:
    found = []
    for each in NUMBER_FIELDS if classes is None else CLASS_FIELDS:
        if each.parts:
            found += [Output(f"{part.name}_{each.name}", part, classes, within=each) for part in each.parts]
        else:
            found.append(Output(each.name, each, classes))
    return tuple(found)
