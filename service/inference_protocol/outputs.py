"""The outputs of a model: what an answer has, as one table of tensors.

This is the only place that knows which numbers a prediction has. Requests, answers and metadata go over the table. A
model of another kind has a table of its own, and `outputs_of` picks it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from murho.model.engines.prediction import Prediction, PredictOptions
    from murho.service.jobs import ModelLike

__all__ = ["Output", "Values", "outputs_of"]

Values: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
Axis: TypeAlias = Literal["percentiles", "thresholds", "samples"]
"""The option whose values, or whose number, the second axis of an output goes over."""


@dataclass(frozen=True, slots=True)
class Output:
    """One output of a model.

    Attributes:
        name: Its name.
        datatype: Its datatype in the protocol.
        values: Takes its array out of a prediction, `[B]` or `[B, size of the axis]`.
        axis: What its second axis goes over; None: it has one number a row.
        needs_draws: Whether there is none with `samples` 0.
        include: The part of a prediction that is only computed when it is asked for (`PredictOptions`).
        sentence: What it is, for people.
    """

    name: str
    datatype: str
    values: Callable[[Prediction], Values | None]
    sentence: str
    axis: Axis | None = None
    needs_draws: bool = True
    include: Literal["draws", "mc_error"] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape in metadata: -1 for each size that depends on the request."""
        return (-1,) if self.axis is None else (-1, -1)

    @property
    def on_request(self) -> bool:
        """Whether it is there only if the request asks for it, or has an option that it needs."""
        return self.include is not None or self.axis == "thresholds"

    def absence(self, options: PredictOptions) -> str | None:
        """Returns why a request with these options can't have this output; None if it can."""
        if self.needs_draws and not options.samples:
            return "needs draws, and the parameter samples is 0."
        if self.axis is not None and not getattr(options, self.axis):
            return f"needs the parameter {self.axis}, such as {EXAMPLES[self.axis]!r}."
        return None


EXAMPLES: dict[Axis, str] = {"percentiles": "5,50,95", "thresholds": "20,30", "samples": "256"}


def _mc_error(name: str) -> Callable[[Prediction], Values | None]:
    return lambda prediction: None if prediction.mc_error is None else getattr(prediction.mc_error, name)


REGRESSION = (
    Output("mean", "FP64", lambda answer: answer.mean, "the mean", needs_draws=False),
    Output("std", "FP64", lambda answer: answer.std, "the standard deviation"),
    Output("epistemic_std", "FP64", lambda answer: answer.epistemic_std, "its part that more data would remove"),
    Output("aleatoric_std", "FP64", lambda answer: answer.aleatoric_std, "its part that is noise"),
    Output("percentiles", "FP64", lambda answer: answer.percentiles, "[rows, levels]", axis="percentiles"),
    Output("exceedance", "FP64", lambda answer: answer.exceedance, "[rows, thresholds]", axis="thresholds"),
    Output("draws", "FP64", lambda answer: answer.draws, "[rows, samples]", axis="samples", include="draws"),
    Output("mean_mc_error", "FP64", _mc_error("mean"), "the Monte Carlo error of mean", include="mc_error"),
    Output("std_mc_error", "FP64", _mc_error("std"), "the Monte Carlo error of std", include="mc_error"),
    Output(
        "percentiles_mc_error",
        "FP64",
        _mc_error("percentiles"),
        "those of the percentiles",
        axis="percentiles",
        include="mc_error",
    ),
)
"""All in the target's own unit, but for `exceedance`, which are probabilities."""


def outputs_of(model: ModelLike) -> tuple[Output, ...]:  # noqa: ARG001 - every model predicts a number so far
    """Returns the outputs of a model, those first that are there by default."""
    return REGRESSION
